"""The course of a measurement of partitions: warm up, then cut and heal, each time for longer.

    start ─▶ warm ─▶ ┌ quiet (what is usual) ─▶ cut ─▶ its length ─▶ heal ─▶ stable again ┐
                     └──────────────────── no branch is left ◀────────────────────────────┘
          ─▶ the load ends ─▶ all rows compared, cut by cut

* One cluster per shape and choice is cut for every length, one after the other: a start takes
  longer than most cuts.
* What a cut changed for good would show in the epochs from it on, up to the next one: these are
  compared with the answer, row by row.

What is known is in `Found` at every moment, so that a run that is broken off tells what it has.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from unbroken.epochs import Epoch
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.measure import compare
from unbroken.measure.clustered import Clustered, holders
from unbroken.measure.compare import Difference
from unbroken.measure.course import MEASURED, STALE_S_MAX, UNDER_WAY, Course
from unbroken.measure.ears import USUAL_EPOCHS, Ears, Effect
from unbroken.measure.offer import Offer
from unbroken.measure.shapes import FAR, NEAR, Shape
from unbroken.measure.workload import EPOCH_S
from unbroken.tentative.branch import SUSPEND, WAITING_PART

#: Spark is warm after so many results, and ready to be cut when so many in a row are this late at
#: most.
WARM_EPOCHS, STEADY_EPOCHS, LATE_S_MAX = 20, 5, 3.0
#: How long it may take until all is stable again, beside the length of the cut.
STABLE_S_MAX = 300.0


@dataclass
class Cell:
    """One cut: how long it was, what it did, and how the stable rows since then differ.

    >>> cell = Cell(10.0, first=40, effect=Effect(3.1, 0.5, 4.0, tentative_rows=70))
    >>> cell.rows_per_s
    7.0
    """

    length_s: float
    #: The epochs from this one on were sealed after the cut.
    first: int
    effect: Effect
    difference: Difference | None = None

    @property
    def rows_per_s(self) -> float:
        """Tentative rows per second of failure."""
        return round(self.effect.tentative_rows / self.length_s, 1)


@dataclass
class Found:
    """What is known about one shape under one choice of `when_cut`.

    >>> Found("union", "delay", "union of three inputs").differs
    False
    """

    shape: str
    when_cut: str
    workload: str
    outcome: str = UNDER_WAY
    cells: list[Cell] = field(default_factory=list)
    rows: int = 0
    #: Over the whole run, also what came before the first cut.
    difference: Difference | None = None

    @property
    def differs(self) -> bool:
        """Whether a stable row was lost, repeated or wrong."""
        return self.difference not in (None, Difference())

    @property
    def failed(self) -> bool:
        """Whether it came to no end, or to a wrong one."""
        open_ones = any(cell.effect.open for cell in self.cells)
        return self.differs or open_ones or self.outcome.startswith("failed")

    def broken(self, x_s: float) -> list[str]:
        """What was promised and not kept, in sentences: results within X and an epoch, and nothing
        tentative in a failure that is shorter than what may be waited.

        Nothing is promised where an epoch takes longer than it lasts when nothing is cut.

        >>> slow = Cell(5.0, first=40, effect=Effect(4.4, 0.5, 4.0))
        >>> Found("union", "delay", "union of three", cells=[slow]).broken(3.0)
        ['a cut of 5 s: a new result waited for 4.4 s, X is 3 s and an epoch 1 s']
        """
        told = []
        for cell in self.cells:
            effect, cut = cell.effect, f"a cut of {cell.length_s:g} s"
            if (effect.usual_s or 0.0) > EPOCH_S:
                continue
            if self.when_cut != SUSPEND and (effect.wait_s or 0.0) > x_s + EPOCH_S:
                told.append(f"{cut}: a new result waited for {effect.wait_s:.1f} s, X is {x_s:g} s "
                            f"and an epoch {EPOCH_S:g} s")  # fmt: skip
            if effect.said and cell.length_s < WAITING_PART * x_s:
                told.append(f"{cut} is shorter than {WAITING_PART * x_s:g} s, and {effect.said} "
                            "epochs were tentative")  # fmt: skip
        return told

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs.

        >>> Found("join", "process", "a join").to_json()["when_cut"]
        'process'
        """
        return asdict(self)


class Cuttable(Protocol):
    """What the course of a run needs of a system that is cut."""

    @property
    def ears(self) -> Ears:
        """What a client has heard of its result."""

    @property
    def sealed(self) -> int:
        """How many epochs its sources have sealed."""

    def start(self) -> None:
        """Starts everything; returns when rows may be sent."""

    def send(self, tick: int, due_s: float, tables: Any) -> None:
        """Takes the rows of a tick."""

    def cut(self) -> None:
        """Cuts one input off."""

    def heal(self) -> None:
        """Puts the cable back."""

    def together(self) -> bool:
        """Whether no branch is left."""

    def check(self) -> None:
        """Raises what ended it, if anything did."""

    def ended(self) -> tuple[Sequence[pa.Table], list[Epoch]]:
        """No more rows will come: the answer, and what came out."""

    def close(self) -> None:
        """Ends every process."""


class Cabled(Clustered):
    """A cluster of ours with cables; the one between `near` and `far` is cut."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape, None, shape.nodes, cables=True)
        self._sink = shape.sink

    @property
    def ears(self) -> Ears:
        """What a client has heard of its result."""
        return self._sinks[self._sink].ears

    @property
    def sealed(self) -> int:
        """How many epochs its sources have sealed."""
        return max(following.next for following in self._sources.values())

    def cut(self) -> None:
        """Pulls the cable between the two."""
        status = self._cluster.status()
        self._cluster.cut(holders(status, NEAR)[0], holders(status, FAR)[0])

    def heal(self) -> None:
        """Puts it back."""
        self._cluster.heal()

    def together(self) -> bool:
        """Whether every fragment runs, and none of them on a branch."""
        try:
            status = self._cluster.status()
        except Unreachable:
            return False
        told = [node["fragments"] for node in status["nodes"].values()]
        return self.whole() and not any(
            fragment.get("branch") for fragments in told for fragment in fragments.values()
        )

    def ended(self) -> tuple[Sequence[pa.Table], list[Epoch]]:
        """The answer, and what came out."""
        return self.outcome()[self._sink]


def measure(
    found: Found,
    shape: Shape,
    make: Callable[[], Cuttable],
    lengths: Sequence[float],
    *,
    say: Callable[[str], None],
) -> None:
    """Runs one shape through all cuts; whatever goes wrong with it is its outcome."""
    with contextlib.closing(make()) as made:
        say(f"{found.shape}, {found.when_cut}: starting; {found.workload}")
        try:
            made.start()
        except UnbrokenError as error:
            found.outcome = f"failed: {error.what}"
            return
        offer = Offer(shape, made.send)
        try:
            _Course(made, offer, found, say).run(lengths)
        except UnbrokenError as error:
            found.outcome = f"failed: {error.what}"
        finally:
            offer.stop()


class _Course(Course):
    def __init__(
        self, made: Cuttable, offer: Offer, found: Found, say: Callable[[str], None]
    ) -> None:
        super().__init__(made, offer)
        self._made, self._found, self._say = made, found, say
        self._name = f"{found.shape}, {found.when_cut}"

    def run(self, lengths: Sequence[float]) -> None:
        self._offer.start()
        self.until(
            lambda: len(self._made.ears.heard) >= WARM_EPOCHS and self._steady(),
            "results to come in time",
        )
        for number, length_s in enumerate(lengths):
            self.until(lambda: self._made.together() and self._steady(), "all to be as before")
            self._quiet()
            self._found.cells.append(self._one_cut(length_s))
            self._tell(number + 1, len(lengths))
        self.until(self._made.together, "the branch to end")
        self._offer.stop()
        self._found.rows = self._offer.rows
        self._say(f"{self._name}: comparing {self._offer.rows:,} rows with the answer")
        self._compare(*self._made.ended())
        self._found.outcome = MEASURED

    def _steady(self) -> bool:
        latest_s = self._made.ears.latest_s(STEADY_EPOCHS)
        return latest_s is not None and latest_s < LATE_S_MAX

    def _quiet(self) -> None:
        """Waits for as many results as say what is usual."""
        heard = len(self._made.ears.heard)
        self.until(
            lambda: len(self._made.ears.heard) >= heard + USUAL_EPOCHS, "results to come steadily"
        )

    def _one_cut(self, length_s: float) -> Cell:
        made = self._made
        first, cut_s = made.sealed, time.time()
        made.cut()
        self.sleep(length_s)
        made.heal()
        healed_s, last = time.time(), made.sealed - 1
        # A branch that has just begun is not in the status yet, and nothing of it was heard.
        self.sleep(STALE_S_MAX)
        self.until(
            lambda: (
                made.ears.stable_again(healed_s=healed_s, last=last) is not None
                and made.together()
            ),
            "all to be stable again", limit_s=STABLE_S_MAX + length_s,
        )  # fmt: skip
        return Cell(length_s, first, made.ears.effect(cut_s=cut_s, healed_s=healed_s, last=last))

    def _compare(self, expected: Sequence[pa.Table], came: list[Epoch]) -> None:
        self._found.difference = compare.epochs(expected, came)
        cells = self._found.cells
        ends = [*(cell.first for cell in cells[1:]), len(expected)]
        for cell, after in zip(cells, ends, strict=True):
            cell.difference = compare.between(expected, came, cell.first, after)

    def _tell(self, number: int, cuts: int) -> None:
        cell = self._found.cells[-1]
        told = cell.effect
        self._say(
            f"{self._name}: cut {number} of {cuts}, {cell.length_s:g} s: a new result waited "
            f"{told.wait_s} s at most (usually {told.usual_s}), {told.tentative_rows:,} tentative "
            f"rows, stable again after {told.stable_s} s"
        )
