"""What all checkers share: the violation, the records of who is expected, and the disks."""

from __future__ import annotations

from typing import Any

from unbroken.control.intentions import Standing, Step
from unbroken.epochs import GAP
from unbroken.policies.past import Marks
from unbroken.testing.behind import Behind
from unbroken.testing.checkpoints import newest
from unbroken.testing.epochs import Epoch

#: What an operator knows after an epoch: its state, the watermarks, and the one before.
Knows = tuple[dict[Any, Any], Marks, int]
NAMES = {
    1: "an epoch has exactly one stable content",
    2: "a consumer takes epochs in order, each once, none skipped",
    3: "no producer trims what an expected consumer may still ask for",
    4: "a tentative epoch is known as such, and is replaced or given up",
    5: "promises of an older life are refused",
    6: "an ack leaves only after what it promises is true",
    7: "a log that reaches its limit pushes back, and says for whose sake",
    8: "who is counted as live can go on",
    9: "sinks equal the undisturbed run, as the policies promise",
    10: "when faults stop, sinks get there in time, or it is said why not",
    11: "nothing is raised that nobody expects",
    12: "a result waits for missing input as long as its bound says",
}


class Violation(Exception):
    """An invariant does not hold.

    >>> str(Violation(2, "sink-a took 7 after 5"))
    'invariant 2 (a consumer takes epochs in order, each once, none skipped): sink-a took 7 after 5'
    >>> str(Violation(100, "sink-a has epoch 7 after 9 s"))
    'invariant 100 (your own): sink-a has epoch 7 after 9 s'
    """

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"invariant {number} ({NAMES.get(number, 'your own')}): {what}")
        self.number, self.what = number, what


class Looking:
    """A checker: it looks at one simulation from outside."""

    def __init__(self, sim: Any) -> None:
        self._sim = sim
        self.violation: Violation | None = None
        #: Stream to number to the content that was seen first.
        self.contents: dict[str, dict[int, Epoch]] = {}
        #: Streams whose epochs may be given up while no sink has them.
        self.gaps = {piece.name for piece in sim.life.pieces if piece.protection == "gap"}
        #: The numbers that a sink has: these cannot be given up any more.
        self._shown: dict[str, set[int]] = {name: set() for name in self.gaps}
        #: Streams that give up what they said tentatively (see `converging`).
        self.converging = {piece.name for piece in sim.life.pieces if piece.converges}
        #: By number what they have given up; with the last one of each time, what the line that
        #: goes on behind it knows: state, watermarks, and the one before.
        self.given_up: dict[str, dict[int, Knows | None]] = {name: {} for name in self.converging}
        #: Gaps whose lost rows can be counted.
        self.countable: dict[str, set[int]] = {name: set() for name in self.gaps | self.converging}
        #: What each epoch of such a graph was made of, by stream, number and digest.
        self._made_of: dict[tuple[str, int, str], list[Any]] = {}
        self._placement: dict[str, dict[str, Standing]] = {}
        self._overtaken: set[tuple[str, str]] = set()
        #: Newcomers that will be given the state of another: what they have does not count.
        self.to_be_given: set[tuple[str, str]] = set()
        #: Streams that are not given up themselves, but made of such.
        self._behind = Behind(sim, self)
        self._version = -1
        #: Consumers whose producers' disks were lost or cut off, and which stream that was: what
        #: was not synced there may be gone.
        self._forgotten: set[tuple[str, str]] = set()
        #: Sinks that their stream has heard of, and those that came when its beginning was gone.
        self.known_sinks: set[str] = set()
        self._too_late: set[str] = set()
        #: Fragments that nobody can save any more, and since when.
        self.beyond: dict[str, str] = {}
        #: Upstream fragments that died together with the only producer of an input: what that one
        #: kept for them may be gone (docs/upstream.md).
        self._with_producer: set[str] = set()

    def break_(self, number: int, what: str) -> None:
        """An invariant does not hold: the simulation ends."""
        if self.violation is None:
            self.violation = Violation(number, what)
            self._sim.world.say(f"VIOLATION of {self.violation}", "checker")
            self._sim.world.stopped = True

    @property
    def sim(self) -> Any:
        """What is looked at."""
        return self._sim

    @property
    def placement(self) -> dict[str, dict[str, Standing]]:
        """Who is expected, by the records."""
        records = self._sim.records
        if records.version != self._version:
            self._version = records.version
            self._placement = {
                name: {each.node: each.standing for each in placed}
                for name, placed in records.placement().items()
            }
            self._overtaken = records.overtaken()
            self.to_be_given = {
                (intention.fragment, intention.node)
                for intention in records.unfinished()
                if intention.step is Step.EXPECT
            }
        return self._placement

    def on_disk(self, node: str, fragment: str) -> int | None:
        """The newest epoch that the disk of `node` has a usable checkpoint of."""
        folder = self._sim.fragment_folder(node, fragment)
        if folder.text not in folder.disk.checkpoints:
            return None
        notes = self._sim.plans[fragment].notes_watermarks
        found = newest(folder, with_watermarks=notes)
        return found[1].epoch if found is not None else None

    def piece(self, name: str) -> Any:
        """The fragment called `name`, as the life has it."""
        (found,) = (piece for piece in self._sim.life.pieces if piece.name == name)
        return found


def text_of(epoch: Epoch) -> str:
    """What is in an epoch, for people."""
    return "a gap" if epoch.kind == GAP else f"{tuple(epoch.table)}"
