"""Checkers: what must never happen, looked at from outside, one per invariant of the design.

    1  an epoch has one stable content        every log, every reader
    2  taken in order, once, none skipped     every batch, every sink
    3  nothing is trimmed that may be asked   every trim, against what is on consumers' disks
    5  promises of an older life are refused  every ack that was believed
    6  a promise is true when it leaves       every ack, against the disk of whoever gives it
    8  who is counted as live can go on       every replica that becomes live, against its disk
    9  sinks equal the undisturbed run, as the policies promise; gaps are accounted for
    10 when faults stop, sinks get there in time
    11 nothing is raised that nobody expects  assertions of the protocol included

(4 is about tentative epochs, which do not exist yet; 7, limits, is not checked here: logs are never
full in these lives.)

* Checkers know the rows of the sources, what is on every disk, and what was written by sinks.  They
  use none of the protocol's decisions, only its records of who is expected.
* The undisturbed run is computed by the operators alone, from what the sources sealed.  Behind a
  gap it begins anew, from nothing; behind a draw it takes what was drawn, and looks whether each
  draw follows from the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbroken.control.intentions import Standing
from unbroken.epochs import GAP
from unbroken.errors import EpochGone, UnbrokenError
from unbroken.node.staged import STAGED
from unbroken.policies.past import Marks
from unbroken.streams.merge import Merge
from unbroken.testing.behind import Behind
from unbroken.testing.checkpoints import newest
from unbroken.testing.disk import Path
from unbroken.testing.epochs import Epoch, digest_of
from unbroken.testing.operators import Batch, observe, step
from unbroken.testing.pasts import Past
from unbroken.testing.world import Process

OUT = "~out"
NAMES = {
    1: "an epoch has exactly one stable content",
    2: "a consumer takes epochs in order, each once, none skipped",
    3: "no producer trims what an expected consumer may still ask for",
    5: "promises of an older life are refused",
    6: "an ack leaves only after what it promises is true",
    8: "who is counted as live can go on",
    9: "sinks equal the undisturbed run, as the policies promise",
    10: "when faults stop, sinks get there in time, or it is said why not",
    11: "nothing is raised that nobody expects",
}


class Violation(Exception):
    """An invariant does not hold.

    >>> str(Violation(2, "sink-a took 7 after 5"))
    'invariant 2 (a consumer takes epochs in order, each once, none skipped): sink-a took 7 after 5'
    """

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"invariant {number} ({NAMES[number]}): {what}")
        self.number, self.what = number, what


class Checkers:
    """Told of everything that can be seen from outside."""

    merge_class: type[Merge] = Merge

    def __init__(self, sim: Any) -> None:
        self._sim = sim
        self.violation: Violation | None = None
        #: Stream to number to the content that was seen first.
        self.contents: dict[str, dict[int, Epoch]] = {}
        self.runs: list[Any] = []
        self._slow: dict[str, float] = {}
        self._lives: dict[tuple[str, str, str], int] = {}
        self._read: dict[int, int] = {}
        self._placement: dict[str, dict[str, Standing]] = {}
        self._overtaken: set[tuple[str, str]] = set()
        self._version = -1
        #: Fragments that nobody can save any more, and since when.
        self.beyond: dict[str, str] = {}
        self.refusals = 0
        self._cut_off = False
        #: Streams whose epochs may be given up while no sink has them.
        self.gaps = {piece.name for piece in sim.life.pieces if piece.protection == "gap"}
        #: What each epoch of such a graph was made of, by stream, number and digest.
        self._made_of: dict[tuple[str, int, str], list[Any]] = {}
        #: Streams that are not given up themselves, but made of such.
        self._behind = Behind(sim, self)
        #: The numbers that a sink has: these cannot be given up any more.
        self._shown: dict[str, set[int]] = {name: set() for name in self.gaps}
        #: Upstream fragments that died together with the only producer of an input: what that one
        #: kept for them may be gone (docs/upstream.md).
        self._with_producer: set[str] = set()
        #: Gaps whose lost rows can be counted.
        self.countable: dict[str, set[int]] = {name: set() for name in self.gaps}

    def break_(self, number: int, what: str) -> None:
        """An invariant does not hold: the simulation ends."""
        if self.violation is None:
            self.violation = Violation(number, what)
            self._sim.world.say(f"VIOLATION of {self.violation}", "checker")
            self._sim.world.stopped = True

    def broken(self, error: UnbrokenError) -> None:
        """The protocol itself noticed that two contents claim a number, or a batch went astray."""
        self.break_(1 if type(error).__name__ == "DivergenceError" else 2, error.what)

    def slowness(self, node: str) -> float:
        """How many times slower than usual a node computes."""
        return self._slow.get(node, 1.0)

    def slow(self, node: str, factor: float) -> None:
        """From now on a node computes so many times slower."""
        self._slow[node] = factor

    # Logs.

    def appended(self, folder: Path, epoch: Epoch) -> None:
        """Invariant 1: an epoch is there from now on."""
        stream = epoch.header.stream
        if stream.endswith(STAGED) or folder.name == "out":
            return
        if stream in self.gaps and not self._goes_on(folder.disk.name, stream):
            return  # It has not heard that it was replaced; nobody may read it (see `took`).
        if stream in self._behind.streams:
            self._behind.appended(folder, epoch)
            return
        made = self.contents.setdefault(stream, {})
        known = made.setdefault(epoch.number, epoch)
        if stream in self.gaps and epoch.number not in self._shown[stream]:
            made[epoch.number] = known = epoch  # What no sink has may be given up.
        if epoch.kind == GAP:
            self._behind.gap(epoch)
            if self._all_there(stream, epoch.number):
                self.countable[stream].add(epoch.number)
        if stream in self.gaps and epoch.kind == GAP and self._is_read(stream):
            return  # For a fragment that is behind all sinks: they must not take it (`wrote`).
        if known is not epoch and known.header.digest != epoch.header.digest:
            self.break_(
                1, f"epoch {epoch.number} of {stream} is {text_of(epoch)} in {folder}, and was "
                f"{text_of(known)}",
            )  # fmt: skip

    def _is_read(self, stream: str) -> bool:
        """Whether a fragment reads a stream."""
        return any(stream in piece.inputs for piece in self._sim.life.pieces)

    def _goes_on(self, node: str, fragment: str) -> bool:
        """Whether the line of a gap fragment goes on there, by the records."""
        standing = self.placement.get(fragment, {}).get(node, Standing.LEAVING)
        if standing is Standing.COMING:
            return True
        return standing is not Standing.LEAVING and (fragment, node) not in self._overtaken

    def _all_there(self, stream: str, number: int) -> bool:
        """Whether everybody who serves the inputs of an epoch has it: its rows can be counted."""
        (piece,) = (piece for piece in self._sim.life.pieces if piece.name == stream)
        return all(self._served(name, number) for name in piece.inputs)

    def _served(self, stream: str, number: int) -> bool:
        keeper = self._sim.world.processes["keeper"]
        if stream in self._sim.life.sources and keeper.alive and keeper.life == 1:
            return number in self.contents[stream]  # It remembers what it has trimmed.
        ends = (f"/fragments/{stream}/output", f"/sources/{stream}")
        logs = [
            log for name, disk in self._sim.disks.items() if self._sim.world.processes[name].alive
            for path, log in disk.logs.items() if path.endswith(ends)
        ]  # fmt: skip
        return bool(logs) and all(number in log for log in logs)

    def trimmed(self, folder: Path, stream: str, first: int) -> None:
        """Invariant 3: every consumer that is expected finds what it would go on from."""
        if stream.endswith((STAGED, OUT)):
            return
        for piece in self._sim.life.pieces:
            if stream not in piece.inputs or piece.protection in ("upstream", "gap"):
                continue
            for node, standing in self.placement.get(piece.name, {}).items():
                if standing not in (Standing.LIVE, Standing.COMING):
                    continue
                held = self._holds(node, piece.name)
                if held is not None and held + 1 < first:
                    self.break_(
                        3, f"{folder.disk.name} trimmed {stream} up to {first - 1}, but "
                        f"{piece.name}@{node} can only go on after {held}",
                    )  # fmt: skip
        for sink in self._sim.sinks():
            if sink.stream == stream and sink.next < first:
                self.break_(
                    3, f"{folder.disk.name} trimmed {stream} up to {first - 1}, but "
                    f"{sink.consumer} has only taken up to {sink.next - 1}",
                )  # fmt: skip

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
        return self._placement

    def _holds(self, node: str, fragment: str) -> int | None:
        """The newest epoch after which a replica on that node could go on; None: not its duty."""
        process = self._sim.world.processes[node]
        shell = self._sim.shells.get(node)
        if not process.alive or shell is None:
            return None
        standby = shell.hosted.standbys.get(fragment)
        if standby is not None:
            return int(standby.epoch) if standby.ready else None
        replica = shell.hosted.replicas.get(fragment)
        started = replica is not None and replica.first is not None and not replica.failed
        return int(replica.committed) if started else None

    def on_disk(self, node: str, fragment: str) -> int | None:
        """The newest epoch that the disk of `node` has a usable checkpoint of."""
        folder = self._sim.fragment_folder(node, fragment)
        if folder.text not in folder.disk.checkpoints:
            return None
        notes = self._sim.plans[fragment].notes_watermarks
        found = newest(folder, with_watermarks=notes)
        return found[1].epoch if found is not None else None

    # Readers.

    def took(self, follower: Any, epoch: Epoch) -> None:
        """Invariants 1 and 2: a consumer has fetched an epoch."""
        stream = epoch.header.stream
        if epoch.number != follower.next - 1:
            self.break_(2, f"{follower._consumer} takes {epoch.number} of {stream} out of turn")
        self._same(epoch, f"{follower._consumer} takes")

    def reads(self, run: Any, inputs: Sequence[Epoch]) -> None:
        """Invariants 1 and 2: what an engine is given."""
        numbers = {epoch.number for epoch in inputs}
        after = self._read.get(id(run))
        if len(numbers) != 1 or (after is not None and numbers != {after + 1}):
            self.break_(2, f"{run._plan.name} is given epochs {sorted(numbers)} after {after}")
        self._read[id(run)] = inputs[0].number
        for epoch in inputs:
            self._same(epoch, f"{run._plan.name} on {run._process.name} is given")

    def seals(self, run: Any, past: Past, digest: str) -> None:
        """An engine is about to show what it made of its past.

        A gap fragment begins anew after a failure: what only it had may be given up with it.
        """
        stream = run._plan.name
        if stream in self.gaps:
            made_of = [tuple(epoch.table) for epoch in past.inputs]
            self._made_of[stream, past.number, digest] = made_of
        elif stream in self._behind.streams:
            self._behind.made(stream, past, digest)

    def wrote(self, sink: Any, epoch: Epoch) -> None:
        """Invariants 1 and 2: what a sink has; its log refuses holes by itself."""
        stream = epoch.header.stream
        if stream in self.gaps and epoch.number not in self._shown[stream]:
            self._shown[stream].add(epoch.number)
            self.contents[stream][epoch.number] = epoch
        self._same(epoch, f"{sink.name} has")

    def _same(self, epoch: Epoch, who: str) -> None:
        stream = epoch.header.stream
        if stream in self.gaps and epoch.number not in self._shown[stream]:
            return  # No sink has it.
        if stream in self.gaps and epoch.kind == GAP and not who.startswith("sink-"):
            return  # No copy of this fragment has it.
        if stream in self._behind.streams:
            known = self._behind.known(epoch)
        else:
            known = self.contents[epoch.header.stream].get(epoch.number)
        if known is None or known.header.digest != epoch.header.digest:
            self.break_(
                1, f"{who} {text_of(epoch)} as epoch {epoch.number} of {epoch.header.stream}"
            )

    # Promises.

    def promises(self, process: Process, stream: str, ack: dict[str, Any]) -> None:
        """Invariant 6: an ack leaves."""
        fragment, _, node = ack["consumer"].partition("@")
        if not node:
            return
        shell = self._sim.shells[node]
        standby = shell.hosted.standbys.get(fragment)
        replica = shell.hosted.replicas.get(fragment) or (standby.replica if standby else None)
        if replica is None:
            return
        ack["life"] = id(replica)
        self._sim.keep.append(replica)
        self._lives.setdefault(("", "", str(id(replica))), len(self._lives))
        if replica._seed is not None and ack["processed"] < replica._seed.first:
            return  # It begins there: what lies before is known to its consumers, or given up.
        held = self.on_disk(node, fragment)
        if held is None or held < ack["processed"]:
            self.break_(
                6, f"{ack['consumer']} tells {stream} that it has processed {ack['processed']}, "
                f"but on its disk is {held}",
            )  # fmt: skip
        end = max(replica.log.next, replica.staged.next if replica.staged else 0)
        speak = replica._seed.speak if replica._seed is not None else 0
        if end <= ack["processed"] and ack["processed"] >= speak:
            self.break_(
                6, f"{ack['consumer']} tells {stream} that it has processed {ack['processed']}, "
                f"but its output ends before {end}",
            )  # fmt: skip

    def believed(self, there: Process, ack: dict[str, Any]) -> None:
        """Invariant 5: a producer took an ack."""
        if "life" not in ack:
            return
        life = self._lives["", "", str(ack["life"])]
        key = there.name, ack["stream"], ack["consumer"]
        if life < self._lives.get(key, -1) and not self._still_true(ack):
            self.break_(
                5, f"{there.name} believes an ack of {ack['consumer']} for {ack['stream']} (up to "
                f"{ack['processed']}) of a life that was over when the present one began",
            )  # fmt: skip
        self._lives[key] = life
        fragment, _, node = ack["consumer"].partition("@")
        if there.name == "keeper" and node not in self.placement.get(fragment, {}):
            self.break_(5, f"keeper believes an ack of {ack['consumer']}, which was removed")

    def _still_true(self, ack: dict[str, Any]) -> bool:
        """Whether a standby still holds what an earlier life of it has promised.

        It does not begin anew when it is started again: what was shipped is there.
        """
        fragment, _, node = ack["consumer"].partition("@")
        shell = self._sim.shells.get(node)
        if shell is None or fragment not in shell.hosted.standbys:
            return False
        held = self.on_disk(node, fragment)
        return held is not None and held >= int(ack["processed"])

    def shipped(self, folder: Path, fragment: str, epoch: int) -> None:
        """Invariant 8: a shipment has its name; a replica is its checkpoint and its output."""
        logs = [folder.disk.logs.get(f"{folder.text}/{name}", {}) for name in ("output", "staged")]
        end = max((number for log in logs for number in log), default=-1)
        if end < epoch:
            self.break_(
                8, f"{folder.disk.name} was shipped {fragment} up to {epoch}, but its output ends "
                f"at {end}",
            )  # fmt: skip

    def heard(self, text: str) -> None:
        """Invariant 3: a process says itself that what it was promised is gone."""
        name, _, rest = text.removeprefix("rebuilding ").partition(": ")
        if "cannot be rebuilt: it needs" not in rest or self.excused(name):
            return
        if name in self._with_producer or self._cut_off:
            self.beyond[name] = rest  # Said, and nobody can help it any more.
        else:
            self.break_(3, rest)

    def gone(self, consumer: str, error: UnbrokenError) -> None:
        """Invariant 3: a replica asked for what nobody has any more."""
        fragment, _, node = consumer.partition("@")
        (piece,) = (piece for piece in self._sim.life.pieces if piece.name == fragment)
        standing = self.placement.get(fragment, {}).get(node)
        expected = standing in (Standing.LIVE, Standing.COMING)
        if expected and not self.gaps.intersection(piece.inputs) and not self._cut_off:
            self.break_(3, f"{consumer} is expected, and needs what is gone: {error.what}")

    def refused(self, there: Process, command: dict[str, Any], error: UnbrokenError) -> None:
        """A producer refused something."""
        self.refusals += 1

    def gave_up(self, process: Process, error: UnbrokenError) -> None:
        """A process says that it cannot go on."""

    def became_live(self, fragment: str, node: str) -> None:
        """Invariant 8: control counts a replica that was repaired."""
        (piece,) = (piece for piece in self._sim.life.pieces if piece.name == fragment)
        if piece.protection in ("upstream", "gap") or not self._sim.world.processes[node].alive:
            return
        made = self.contents.get(fragment, {})
        if made and self.on_disk(node, fragment) is None:
            self.break_(8, f"control counts {fragment}@{node} as live, but it has no checkpoint")

    # Losses.

    def died(self, who: str) -> None:
        """A process is dead: which upstream fragments lost their only producer with it?"""
        up = {name for name, process in self._sim.world.processes.items() if process.alive}
        for piece in self._sim.life.pieces:
            if piece.protection == "upstream" and not up & self._nodes(piece.name):
                made = set(piece.inputs) - set(self._sim.life.sources)
                if any(not up & self._nodes(stream) for stream in made):
                    self._with_producer.add(piece.name)

    def _nodes(self, fragment: str) -> set[str]:
        placed = self.placement.get(fragment, {})
        return {node for node, standing in placed.items() if standing is Standing.LIVE}

    def lost(self, who: str) -> None:
        """The disk of `who` lost something: which fragments can nobody save any more?"""
        self._cut_off = True  # Seeds are not synced: older ones may be found, and that is told.
        for piece in self._sim.life.pieces:
            if piece.protection in ("upstream", "gap") or piece.name in self.beyond:
                continue
            placed = self.placement.get(piece.name, {})
            had = who in placed
            good = (Standing.LIVE, Standing.STARTING)
            left = [
                node for node, standing in placed.items()
                if standing in good and self.on_disk(node, piece.name) is not None
            ]  # fmt: skip
            if had and not left:
                self.beyond[piece.name] = f"{who} lost the last copy of {piece.name}"
                self._sim.world.say(self.beyond[piece.name], "checker")

    def excused(self, stream: str, sink: Any = None) -> bool:
        """Whether a stream may stop: it, or one before it, is beyond what its policy survives.

        A sink that was away while the only node of a gap fragment was lost may be behind the
        hole; it says so.
        """
        piece = next((p for p in self._sim.life.pieces if p.name == stream), None)
        if sink is not None and stream in self.gaps and isinstance(sink.error, EpochGone):
            return True
        if piece is None:
            return False
        return stream in self.beyond or any(self.excused(name) for name in piece.inputs)

    # The end.

    def outputs(self) -> None:
        """Invariant 9: every stream is what its operators make of its inputs."""
        for piece in self._sim.life.pieces:
            self._output(piece)
        for sink in self._sim.sinks():
            self._holes(sink.stream)
            if sink.stream in self._behind.streams:
                self._behind.check(sink)

    def _output(self, piece: Any) -> None:
        if piece.name in self._behind.streams:
            return  # Looked at with its sinks: who has none has no line of its own.
        if piece.name in self.gaps and piece.name not in self._sim.life.sinks:
            return  # Nobody has it but gap fragments, which may begin anew behind it.
        operator = self._sim.plans[piece.name].operator
        made = self.contents.get(piece.name, {})
        state: dict[Any, Any] = {}
        marks, late_ms, drawn = Marks(0, (None,) * operator.watermarks), 0, 0
        for number in range(max(made, default=-1) + 1):
            inputs = [self.contents.get(name, {}).get(number) for name in piece.inputs]
            there = made.get(number)
            gone = there is None or there.kind == GAP
            if any(epoch is None for epoch in inputs) and not gone:
                self.break_(9, f"{piece.name} has epoch {number}, and its inputs do not")
                return
            rows = [tuple(epoch.table) for epoch in inputs if epoch is not None]
            if there is not None and there.kind != GAP:
                rows = self._made_of.get((piece.name, number, there.digest), rows)
            if there is not None and there.kind == GAP:
                if piece.protection != "gap":
                    self.break_(9, f"{piece.name} has a gap at {number}, it is {piece.protection}")
                self._lost_with(piece, there, rows)
                state, marks, late_ms = {}, Marks(0, (None,) * operator.watermarks), 0
                continue
            if operator.name == "draw":
                if there is not None:
                    ((_, before, number_drawn),) = there.table
                    if before != drawn:
                        self.break_(
                            9, f"{piece.name}: epoch {number} follows the draw {before}, but "
                            f"{drawn} was shown",
                        )  # fmt: skip
                    drawn = number_drawn
                continue
            batch = Batch(late_ms, marks.current_ms)
            state, out = step(operator, state, rows, batch)
            late_ms, marks = marks.current_ms, observe(marks, operator, rows)
            if there is not None and there.header.digest != digest_of(out):
                self.break_(
                    9, f"{piece.name}: epoch {number} is {text_of(there)}, undisturbed it would be "
                    f"{out}",
                )  # fmt: skip
                return

    def _lost_with(self, piece: Any, gap: Epoch, rows: Sequence[Any]) -> None:
        """A gap says what it has cost."""
        inputs = [self.contents.get(name, {}).get(gap.number) for name in piece.inputs]
        before = sum(epoch.header.lost for epoch in inputs if epoch is not None)
        cost, told = before + sum(len(each) for each in rows), gap.header.lost
        if told > cost or (gap.number in self.countable[piece.name] and told != cost):
            self.break_(
                9, f"{piece.name}: the gap at {gap.number} says {told} rows are lost, its inputs "
                f"had {cost}",
            )  # fmt: skip

    def _holes(self, stream: str) -> None:
        """Gaps that were delivered are those on record."""
        gaps = {n for n, epoch in self.contents.get(stream, {}).items() if epoch.kind == GAP}
        known = {
            n for hole in self._sim.records.holes(stream) for n in range(hole.first, hole.last + 1)
        }
        if not gaps <= known:
            self.break_(9, f"{stream}: gaps {sorted(gaps - known)} are on no record")


def text_of(epoch: Epoch) -> str:
    """Its content, for people."""
    return "a gap" if epoch.kind == GAP else f"{tuple(epoch.table)}"
