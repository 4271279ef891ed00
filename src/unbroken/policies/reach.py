"""How far back a fragment may ask its producers: how many epochs they must keep for it.

    newest ◀── what consumers may still ask for ──▶ D ◀── history of the state ──▶ in(D - 1)  f
           ◀──────────────────────── kept for an upstream-backup fragment ───────────────────▶

* Restart, gap and active ask for nothing that they have processed: one epoch is on its way.
* Passive asks for what was not confirmed yet: the epochs of one shipping interval.
* Upstream asks for the history of its state *before* what its own consumers may ask for.  So
  along a chain of upstream-backup fragments needs add up, and the first producer keeps the sum.
  Spark evicts by the watermark of the batch before, and one epoch more is replayed for the sake of
  late rows (`past.py`): two epochs on top of the history, one without state.
* How old the oldest open session is nobody knows in advance: then there is no number.
* Event time counts in epochs only while it keeps step with the clock: the numbers are estimates.

>>> windows = Traits(stateful=True, delay_s=10, history_s=5)
>>> epochs_kept(Upstream(), windows, epoch_s=1)
18
>>> epochs_kept(Upstream(), windows, epoch_s=1, consumers=[18])
35
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from unbroken.policies.passive import Passive
from unbroken.policies.policy import Policy
from unbroken.policies.traits import Traits
from unbroken.policies.upstream import Upstream


def epochs_kept(
    policy: Policy, traits: Traits, epoch_s: float | None, consumers: Iterable[int | None] = ()
) -> int | None:
    """How many epochs producers must keep, given what the fragment's own consumers make it keep.

    None if that cannot be told: with epochs that producers close, or with a history without end.

    >>> epochs_kept(Passive(interval="2s"), Traits(), epoch_s=0.5)
    5
    """
    if isinstance(policy, Passive):
        return _epochs(policy.interval_s, epoch_s, plus=1)
    if not isinstance(policy, Upstream):
        return 1
    asked = [1, *consumers]
    if traits.history_s is None or None in asked:
        return None
    # A watermark without state behind it keeps nothing.
    behind = traits.delay_s + traits.history_s if traits.stateful else 0.0
    more = 2 if traits.stateful else 1
    return _epochs(behind, epoch_s, plus=more + max(each for each in asked if each is not None))


def keeps(policy: Policy, traits: Traits, epochs: int | None) -> str:
    """What producers keep for a fragment, as a sentence.

    >>> keeps(Upstream(), Traits(stateful=True, delay_s=10, history_s=5), 18)
    'from in(D - 1) - 1: what can still be in the state before what consumers need, and an epoch \
for late rows, 15 s of event time (watermark 10 s, state 5 s): about 18 epochs'
    """
    text = policy.keeps
    if isinstance(policy, Upstream) and traits.sessions:
        text = (
            "from in(D - 1) - 1: from the first row of the oldest open session before what "
            "consumers need, and an epoch for late rows"
        )
    if isinstance(policy, Upstream) and traits.stateful and traits.history_s is not None:
        behind = traits.delay_s + traits.history_s
        text += (
            f", {_seconds(behind)} of event time "
            f"(watermark {_seconds(traits.delay_s)}, state {_seconds(traits.history_s)})"
        )
    if epochs is None or epochs == 1:
        return text
    return f"{text}: about {epochs} epochs"


def _epochs(length_s: float, epoch_s: float | None, plus: int) -> int | None:
    if not length_s:
        return plus
    if epoch_s is None:
        return None
    # 0.3 / 0.1 is a little more than 3.
    return math.ceil(round(length_s / epoch_s, 6)) + plus


def _seconds(length_s: float) -> str:
    return f"{round(length_s, 2):g} s"
