"""Watch: when results came and how late they were, and what one kill did to them.

    outputs   | | | | | |                | || | | | | |
                       x kill            ^ peak latency
                       ◀── silence ─────▶  ◀─ catching up ─▶ back
                                                             (as late as before, or 1.1 of that)

* The *output gap* is the longest silence around the kill, one that begins at most `AROUND_S` after
  it, less the usual time between two outputs: what a client notices that waits for the next one.
* *Later* is the same of all silences after those: what the repair costs, on a machine that the
  newcomer shares with those who work.
* *Latency* is from the moment when the newest row of an output was due to the moment when the
  client holds the result, whether or not anybody kept up.
* *Back* is the first moment after the worst latency from which outputs are in time again; one
  output in time is chance, `IN_TIME` of them in a row are not.  0 if none was late at all.

Only the arithmetic is here.  It reads no clock: whoever takes a result says when.

>>> watch = Watch()
>>> for i in range(40): watch.take(at_s=i / 2, due_s=i / 2 - 0.3)
>>> for i in range(3): watch.take(at_s=22 + i / 10, due_s=20 + i / 2)    # killed at 19.6
>>> for i in range(9): watch.take(at_s=23 + i / 2, due_s=22.7 + i / 2)
>>> effect = watch.effect(kill_s=19.6)
>>> effect.gap_s, effect.peak_s, effect.back_s
(2.0, 2.0, 3.4)
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

#: So many outputs before a kill say what is usual.
USUAL_OUTPUTS = 20
#: A silence that begins so soon after a kill is put down to it.  What was on its way when a process
#: died may still come; a repair takes longer to begin to disturb.
AROUND_S = 2.0
#: In time again: at most so many times as late as before ...
BACK_FACTOR = 1.1
#: ... and a little, because a tenth of a short latency is less than a busy machine's jitter.
JITTER_S = 0.05
#: So many outputs in a row.
IN_TIME = 3


@dataclass(frozen=True)
class Effect:
    """What one kill did, in seconds; None is: not known, or not back yet.

    >>> Effect(gap_s=0.0, peak_s=0.4, back_s=None).back_s is None
    True
    """

    gap_s: float
    peak_s: float | None
    back_s: float | None
    #: The longest silence afterwards, less the usual one.
    later_s: float = 0.0
    #: From the kill until it was noticed.
    detect_s: float | None = None
    #: The process that was killed.
    killed: str = ""


@dataclass
class Watch:
    """The outputs of one stream, as a client saw them.

    >>> watch = Watch(); watch.take(at_s=1.0, due_s=0.5); watch.outputs
    1
    """

    #: When each output came, and how late it was; None for one whose rows were due at no time.
    came: list[tuple[float, float | None]] = field(default_factory=list)

    def take(self, at_s: float, due_s: float | None) -> None:
        """An output came whose newest row was due at `due_s`."""
        self.came.append((at_s, None if due_s is None else at_s - due_s))

    @property
    def outputs(self) -> int:
        """How many came."""
        return len(self.came)

    @property
    def latency_s(self) -> float | None:
        """How late the newest output was that had rows."""
        return next((late for _, late in reversed(self.came[-10:]) if late is not None), None)

    def usual(self, kill_s: float) -> tuple[float, float | None]:
        """The spacing of outputs and their latency before the kill, medians.

        >>> watch = Watch([(0.0, 0.25), (0.5, 0.5), (1.0, 0.25)]); watch.usual(kill_s=1.2)
        (0.5, 0.25)
        """
        before = [each for each in list(self.came) if each[0] < kill_s][-USUAL_OUTPUTS:]
        spacing = [b - a for (a, _), (b, _) in pairwise(before)]
        late = [latency for _, latency in before if latency is not None]
        return (
            statistics.median(spacing) if spacing else 0.0,
            statistics.median(late) if late else None,
        )

    def silence(self, since_s: float) -> float:
        """The longest silence that began after `since_s`, less the usual one.

        >>> Watch([(0.0, None), (0.5, None), (1.0, None), (2.0, None)]).silence(since_s=0.0)
        0.5
        """
        lengths = [b - a for (a, _), (b, _) in pairwise(list(self.came)) if a >= since_s]
        usual_s = statistics.median(lengths) if lengths else 0.0
        return round(max(lengths, default=0.0) - usual_s, 3)

    def effect(self, kill_s: float) -> Effect:
        """What the kill did, as far as it is seen yet."""
        came = list(self.came)
        spacing_s, before_s = self.usual(kill_s)
        silences = [(a, b - a) for (a, _), (b, _) in pairwise(came) if b > kill_s]
        around = [length for began, length in silences if began <= kill_s + AROUND_S]
        later = [length for began, length in silences if began > kill_s + AROUND_S]
        gap_s, later_s = (max(0.0, max(each, default=0.0) - spacing_s) for each in (around, later))
        effect = Effect(round(gap_s, 3), None, None, round(later_s, 3))
        after = [(at, late) for at, late in came if at > kill_s and late is not None]
        if not after or before_s is None:
            return effect
        back_s = _back(after, kill_s, BACK_FACTOR * before_s + JITTER_S)
        return replace(
            effect, peak_s=round(max(late for _, late in after), 3),
            back_s=None if back_s is None else round(back_s, 3),
        )  # fmt: skip


def _back(after: Sequence[tuple[float, float]], kill_s: float, in_time_s: float) -> float | None:
    worst = max(range(len(after)), key=lambda i: after[i][1])
    if after[worst][1] <= in_time_s:
        # Nothing late so far: believed when there was enough to see.
        return 0.0 if len(after) >= IN_TIME else None
    for i in range(worst + 1, len(after) - IN_TIME + 1):
        if all(late <= in_time_s for _, late in after[i : i + IN_TIME]):
            return after[i][0] - kill_s
    return None


def worst(effects: Iterable[Effect]) -> Effect:
    """One effect for a query with several results: each figure from the one that suffered most.

    >>> worst([Effect(0.5, 1.0, 2.0, 0.2), Effect(0.1, 1.5, None)])
    Effect(gap_s=0.5, peak_s=1.5, back_s=None, later_s=0.2, detect_s=None, killed='')
    """
    given = list(effects)
    peaks = [each.peak_s for each in given if each.peak_s is not None]
    backs = [each.back_s for each in given]
    return Effect(
        max(each.gap_s for each in given),
        max(peaks, default=None),
        None if None in backs else max(back for back in backs if back is not None),
        max(each.later_s for each in given),
    )
