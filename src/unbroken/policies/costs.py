"""What a failure costs, as a formula: detection, then a switch or a start, then computing again.

    active     0
    passive    detection + switch + epochs of one interval × work per epoch
    upstream   detection + start  + epochs that producers keep × work per epoch
    gap        detection + start

* A process that died refuses connections, which is proof; one that is frozen or cut off is waited
  for, as long as the timing says.
* The numbers of a running cluster stand in the place of the words, as far as it has told them.
  Computing again is from then on a bound: mostly less has to be.

>>> seen = Measured(start_s=3.0, work_s=0.2)
>>> failure_costs(Upstream(), 33, seen).text
'detection 0.1 s (of a frozen node 6 s) + start 3 s + 33 epochs × 0.2 s = at most 9.7 s'
"""

from __future__ import annotations

from dataclasses import dataclass

from unbroken.policies.active import Active
from unbroken.policies.gap import Gap
from unbroken.policies.passive import Passive
from unbroken.policies.policy import Policy
from unbroken.policies.upstream import Upstream

#: From kill -9 until control says so: 0.05 to 0.09 s in `bench recovery`.
DETECTION_S = 0.1
#: A held query that has rehearsed: 0.05 to 0.2 s until it asks for its first epoch.
SWITCH_S = 0.2


@dataclass(frozen=True)
class Measured:
    """What a running cluster tells about a fragment; None is not known yet.

    >>> Measured().work_s is None
    True
    """

    #: From the start of its query to its first question.
    start_s: float | None = None
    #: From the release of an epoch to its commit.
    work_s: float | None = None
    #: How long a node may be silent before it is removed.
    frozen_s: float = 6.0


@dataclass(frozen=True)
class Cost:
    """A failure in words, and in seconds if all numbers are known.

    >>> Cost("nothing", 0.0).seconds
    0.0
    """

    text: str
    seconds: float | None


def failure_costs(policy: Policy, again: int | None, measured: Measured) -> Cost:
    """The silence after a kill; `again` epochs at most are computed again, if that can be told.

    >>> failure_costs(Active(), 1, Measured()).text
    'nothing: consumers already have the other copy'
    >>> failure_costs(Passive(), 4, Measured()).text
    'detection 0.1 s (of a frozen node 6 s) + switch 0.2 s + 4 epochs × their work'
    """
    if isinstance(policy, Active):
        return Cost("nothing: consumers already have the other copy", 0.0)
    if not isinstance(policy, Passive | Upstream | Gap):
        away = "a pause until its own node is back; a node that is lost takes the state with it"
        return Cost(away, None)
    parts = [f"detection {DETECTION_S:g} s (of a frozen node {measured.frozen_s:g} s)"]
    lengths_s: list[float | None] = [DETECTION_S]
    if isinstance(policy, Passive):
        parts.append(f"switch {SWITCH_S:g} s")
        lengths_s.append(SWITCH_S)
    else:
        parts.append(f"start {_told(measured.start_s, 'of a query')}")
        lengths_s.append(measured.start_s)
    if not isinstance(policy, Gap):
        count = "the epochs that producers kept" if again is None else f"{again} epochs"
        parts.append(f"{count} × {_told(measured.work_s, 'their work')}")
        known = again is not None and measured.work_s is not None
        lengths_s.append((again or 0) * (measured.work_s or 0.0) if known else None)
    formula = " + ".join(parts)
    if None in lengths_s:
        return Cost(formula, None)
    total_s = round(sum(length_s for length_s in lengths_s if length_s is not None), 2)
    return Cost(f"{formula} = at most {total_s:g} s", total_s)


def _told(length_s: float | None, otherwise: str) -> str:
    return otherwise if length_s is None else f"{round(length_s, 3):g} s"
