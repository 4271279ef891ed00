"""When a fragment goes on without an input that is cut off.

    epoch 412   east ├──┤ came at 7.0 s
                west            · · · · · · · · │ 9.7 s: park a fork after 411, go on without west
                         ◀─ bound: 0.9 X ──────▶
    epoch 413   east    ├──┤                      at once (process), or after its own bound (delay)

* X is the longest time that a new result may wait for missing input.  A tenth of it is left for
  the work itself, so what is there of an epoch waits 0.9 X from the moment that it came, less what
  it has waited upstream: the bound counts once along a chain (scenario 10).  Each input by itself:
  what one of them has waited upstream, another has waited here meanwhile.
* Waits that were masked count too: a stable epoch tells how long it was held up for want of input,
  and whoever reads it waits that much less for another one.  As far as that one has been silent
  meanwhile: to whoever catches up, old waits are an old story, and all inputs are talking.
* A failure that ends within the bound is masked: nothing is tentative.
* An epoch of which nothing came yet waits for nothing: there is nothing new to say.
* An input may itself be tentative.  The epoch goes on with what that says, and waits less: in a
  chain the first fragment that is cut off waits, and those behind it follow at once.
* *process*: once on the branch, an input that is behind is not waited for any more; one that keeps
  up is, like any other.  *delay*: every epoch waits its bound, for fewer tentative rows.
  *suspend*: wait, whatever it takes; consistency first.
* The first wait is the whole bound, or a short failure would not be masked.  On the branch an epoch
  waits only as long as leaves time for the work, as the last ones took it.  And while the stable
  line's query starts, which keeps a machine busy for seconds, nobody waits by choice: an epoch that
  is begun at the last moment would be late.
* While the stable line catches up, and is near, the branch gives it the bound to arrive: otherwise
  two that do the same work side by side would never meet.
* Windows close by the lowest watermark.  In the branch an input that is missing follows the lowest
  one that is present, or nothing would come out although results go on (scenario 9).
* Whoever looks late itself (paused, starved) has not waited: the silence begins anew.

This module only decides.  It does no I/O and reads no clock.

>>> silence = Silence(["east", "west"], Bound(3.0), committed=411)
>>> silence.arrived("east", 412, now_s=7.0)
>>> silence.missing(412), round(silence.due_s(412), 3)
(['west'], 9.7)
>>> silence.sentence(412, now_s=9.7)
'going tentative: west silent for 2.7 s'
>>> silence.arrived("east", 413, now_s=9.8)
>>> silence.due_s(413, tentative=True)          # west is behind: not waited for
9.8
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

#: The part of the user's bound that may be spent on waiting; the rest is for the work.
WAITING_PART = 0.9
PROCESS, DELAY, SUSPEND = WHEN_CUT = ("process", "delay", "suspend")
#: What becomes of tentative epochs when all inputs are there again.
CORRECT, CONVERGE = WHEN_HEALED = ("correct", "converge")
#: And the part that an input which keeps up is given in any case: it may only be a moment late, and
#: an epoch that has waited long upstream would go without it.
MOMENT_PART = 0.05
#: A look that comes so much later than it was meant to was late itself.
LATE_S = 1.0


@dataclass(frozen=True)
class Bound:
    """How long a new result may wait for missing input, and what happens then.

    >>> Bound(3.0).wait_s, Bound(3.0, SUSPEND).wait_s
    (2.7, None)
    """

    delay_s_max: float
    when_cut: str = PROCESS
    when_healed: str = CORRECT

    @property
    def wait_s(self) -> float | None:
        """How long an epoch waits for missing input, here and upstream; None: for ever."""
        return None if self.when_cut == SUSPEND else WAITING_PART * self.delay_s_max

    @property
    def late_s(self) -> float:
        """An epoch that has waited for longer has lost what its branch runs for (see `turns`).

        Under `delay` each waits by choice: a moment of work more is not yet late.

        >>> Bound(3.0).late_s, Bound(3.0, DELAY).late_s
        (3.0, 5.7)
        """
        by_choice_s = (self.wait_s or 0.0) if self.when_cut == DELAY else 0.0
        return self.delay_s_max + by_choice_s

    @property
    def answer_s(self) -> float:
        """Producers without news say so that soon: a line that is whole again is found in time.

        >>> round(Bound(3.0).answer_s, 3), Bound(600.0).answer_s, Bound(0.2).answer_s
        (0.3, 2.0, 0.1)
        """
        # More than ten questions a second would cost more than they tell.
        return min(2.0, max(0.1, (1.0 - WAITING_PART) * self.delay_s_max))

    @property
    def text(self) -> str:
        """The bound in a sentence.

        >>> Bound(3.0).text
        'after 2.7 s without an input: goes on without it, tentatively (process)'
        """
        wait_s = self.wait_s
        if wait_s is None:
            return "waits for missing input, however long (suspend)"
        return f"after {wait_s:g} s without an input: goes on without it, tentatively " + (
            f"({self.when_cut})"
            + ("; gives up what it said when it is there again" if self.converges else "")
        )

    @property
    def converges(self) -> bool:
        """Whether tentative epochs are given up instead of corrected.

        >>> Bound(3.0, PROCESS, CONVERGE).converges
        True
        """
        return self.when_healed == CONVERGE


class Silence:
    """Which inputs are missing in which epoch, and since when the others wait for them."""

    def __init__(self, inputs: Sequence[str], bound: Bound, *, committed: int) -> None:
        self.bound = bound
        #: The newest epoch of each input.
        self._newest = dict.fromkeys(inputs, committed)
        #: The newest that an input has said tentatively.
        self._said = dict.fromkeys(inputs, committed)
        #: When each input of an epoch came, and how long it had waited by then.
        self._came: dict[int, dict[str, tuple[float, float]]] = {}
        #: When each input was heard last, whatever it said.
        self._heard_s = dict.fromkeys(inputs, float("-inf"))
        #: Nothing has waited before this moment.
        self._floor_s = float("-inf")

    @property
    def inputs(self) -> list[str]:
        """All inputs, whether they are heard of or not."""
        return list(self._newest)

    def arrived(self, stream: str, number: int, *, now_s: float, waited_s: float = 0.0) -> None:
        """Epoch `number` of `stream` is here; upstream it was held up for `waited_s`.

        >>> silence = Silence(["a", "b"], Bound(1.0), committed=2)
        >>> silence.arrived("b", 3, now_s=4.7); silence.arrived("a", 3, now_s=4.7)
        >>> silence.arrived("a", 4, now_s=5.5, waited_s=0.7)
        >>> round(silence.due_s(4), 3)                  # b is silent for as long
        5.7
        """
        self._newest[stream] = max(number, self._newest[stream])
        self._note(stream, number, now_s, waited_s)

    def heard(self, stream: str, number: int, *, now_s: float, waited_s: float = 0.0) -> None:
        """Epoch `number` of `stream` is here as well as it can be: it is tentative itself.

        It has waited upstream for `waited_s`.
        """
        self._said[stream] = max(number, self._said[stream])
        self._note(stream, number, now_s, waited_s)

    def _note(self, stream: str, number: int, now_s: float, waited_s: float) -> None:
        self._came.setdefault(number, {}).setdefault(stream, (now_s, waited_s))
        self._heard_s[stream] = now_s

    def withdrawn(self, stream: str, first: int) -> None:
        """What `stream` has brought from epoch `first` on is not here any more.

        >>> silence = Silence(["a", "b"], Bound(1.0), committed=2)
        >>> silence.arrived("a", 3, now_s=5.0); silence.withdrawn("a", 3); silence.missing(3)
        ['a', 'b']
        >>> silence.due_s(3) is None
        True
        """
        self._newest[stream] = min(self._newest[stream], first - 1)
        for number in [each for each in self._came if each >= first]:
            self._came[number].pop(stream, None)
            if not self._came[number]:
                del self._came[number]

    def done(self, number: int) -> None:
        """Epoch `number` is done, and those before it."""
        for old in [each for each in self._came if each <= number]:
            del self._came[old]

    def forgive(self, now_s: float) -> None:
        """Nobody could have been heard before this moment: nobody was silent before it.

        >>> silence = Silence(["a", "b"], Bound(1.0), committed=2)
        >>> silence.arrived("a", 3, now_s=0.0); silence.forgive(50.0); silence.due_s(3)
        50.9
        """
        self._floor_s = now_s

    def missing(self, number: int) -> list[str]:
        """The inputs that epoch `number` lacks, or of which it has only what is tentative."""
        return [name for name, newest in self._newest.items() if newest < number]

    def silent(self, number: int) -> list[str]:
        """The inputs of which epoch `number` has nothing.

        >>> silence = Silence(["a", "b"], Bound(1.0), committed=2)
        >>> silence.heard("a", 3, now_s=0.0); silence.missing(3), silence.silent(3)
        (['a', 'b'], ['b'])
        """
        return [name for name in self.missing(number) if self._said[name] < number]

    def waits_since_s(self, number: int) -> float | None:
        """Since when epoch `number` waits for the rest of its inputs; None if nothing of it is
        here.
        """
        came = self._came.get(number)
        return min(max(at_s, self._floor_s) for at_s, _ in came.values()) if came else None

    def waited_s(self, number: int, *, now_s: float) -> float:
        """How long what there is of epoch `number` has waited, here and upstream.

        >>> silence = Silence(["a", "b", "c"], Bound(3.0), committed=2)
        >>> silence.arrived("a", 3, now_s=5.0); silence.heard("b", 3, now_s=7.7, waited_s=2.7)
        >>> round(silence.waited_s(3, now_s=7.7), 3)       # both of them since 5.0
        2.7
        """
        waits = [now_s - max(at_s, self._floor_s) + waited_s
                 for at_s, waited_s in self._came.get(number, {}).values()]  # fmt: skip
        return max(waits, default=0.0)

    def masked_s(self, number: int) -> float:
        """How long epoch `number` was held up for want of input, here and upstream, until it was
        complete.  Not how long it waited for whoever computes.

        >>> silence = Silence(["a", "b"], Bound(3.0), committed=2)
        >>> silence.arrived("a", 3, now_s=5.0, waited_s=0.5); silence.arrived("b", 3, now_s=7.0)
        >>> silence.masked_s(3)
        2.5
        """
        came = self._came.get(number, {})
        complete_s = max((max(at_s, self._floor_s) for at_s, _ in came.values()), default=0.0)
        return self.waited_s(number, now_s=complete_s)

    def due_s(
        self, number: int, *, tentative: bool = False, near: bool = False, work_s: float = 0.0,
        hurry: bool = False,
    ) -> float | None:  # fmt: skip
        """When epoch `number` goes on without what is missing; None if it waits.

        `tentative`: the branch exists already, and `near` says that the stable line will soon be
        where it is.  Its last epochs took `work_s`.  In a `hurry` it does not wait by choice.

        >>> silence = Silence(["a", "b"], Bound(1.0, DELAY), committed=2)
        >>> silence.due_s(3) is None                   # nothing of it is here
        True
        >>> silence.arrived("a", 3, now_s=5.0); silence.due_s(3, tentative=True)
        5.9
        >>> silence.due_s(3, tentative=True, work_s=0.5), silence.due_s(3, work_s=0.5)
        (5.5, 5.9)
        >>> silence.arrived("a", 4, now_s=5.5); silence.due_s(4, tentative=True, hurry=True)
        5.5
        """
        since_s, wait_s = self.waits_since_s(number), self.bound.wait_s
        if since_s is None or wait_s is None:
            return None
        silent = self.silent(number)
        late = [name for name in silent if self._keeps_up(name, number)]
        waited_for = late if hurry or self.bound.when_cut == PROCESS else silent
        if tentative and not waited_for and (hurry or not near):
            return since_s
        if tentative:
            wait_s = min(wait_s, max(0.0, self.bound.delay_s_max - work_s))
        moment_s = MOMENT_PART * self.bound.delay_s_max if late else 0.0
        return max(self._began_s(number, silent) + wait_s, since_s + moment_s)

    def _began_s(self, number: int, silent: Sequence[str]) -> float:
        """When epoch `number` began to wait, here or upstream, for those that are `silent`."""
        heard_s = max((self._heard_s[name] for name in silent), default=float("-inf"))
        began_s = []
        for name, (at_s, waited_s) in self._came[number].items():
            at_s = max(at_s, self._floor_s)
            if self._newest[name] >= number:  # What was masked counts as far as they are silent.
                waited_s = min(waited_s, max(0.0, at_s - max(heard_s, self._floor_s)))
            began_s.append(at_s - waited_s)
        return min(began_s)

    def _keeps_up(self, stream: str, number: int) -> bool:
        return max(self._newest[stream], self._said[stream]) >= number - 1

    def sentence(self, number: int, *, now_s: float) -> str:
        """Why the fragment goes on without all of its inputs."""
        silent = self.silent(number)
        silent_s = now_s - self._began_s(number, silent) if number in self._came else 0.0
        said = [name for name in self.missing(number) if name not in silent]
        reasons = [f"{', '.join(silent)} silent for {silent_s:.1f} s"] if silent else []
        reasons += [f"{', '.join(said)} tentative"] if said else []
        return f"going tentative: {'; '.join(reasons)}"


def branch_name(placed: int, term: int, replica: str) -> str:
    """The name of a branch, which no other one has.

    A replica's own terms begin anew if its node loses the disk; control's, under which it was
    placed there, do not.  (Only a fragment without a policy stays placed as it was, and may begin
    anew under the same name.)

    >>> branch_name(2, 5, "alerts@node-3")
    '2.5@node-3'
    """
    return f"{placed}.{term}@{replica.partition('@')[2]}"


def queued_s(before_s: float, apart_us: int) -> float:
    """How long an epoch was held up at least, whose predecessor was for `before_s`.

    It cannot overtake, however late its own input was fetched.  `apart_us` lies between the two at
    their sources.

    >>> queued_s(2.0, 500_000), queued_s(2.0, 3_000_000), queued_s(2.0, -1)
    (1.5, 0.0, 2.0)
    """
    return max(0.0, before_s - max(0, apart_us) / 1e6)


def followed(
    marks_ms: Sequence[int | None],
    inputs: Sequence[Collection[str]],
    missing: Collection[str],
) -> list[int | None]:
    """Every operator's watermark; those above missing inputs follow the lowest that is present.

    `inputs` are the streams below each operator.

    >>> followed([50, 90, 70], [{"west"}, {"east"}, {"north"}], missing={"west"})
    [70, 90, 70]
    >>> followed([50, None], [{"west"}, {"east"}], missing={"west"})     # nothing to follow
    [50, None]
    """
    absent = [bool(below) and set(below) <= set(missing) for below in inputs]
    present = [mark for mark, gone in zip(marks_ms, absent, strict=True) if not gone]
    known = [mark for mark in present if mark is not None]
    if not present or len(known) < len(present):
        return list(marks_ms)  # Spark itself waits for the first row of every input.
    lowest = min(known)
    return [
        max(lowest, mark if mark is not None else lowest) if gone else mark
        for mark, gone in zip(marks_ms, absent, strict=True)
    ]
