"""Invariants 3, 5, 6 and 8: what is promised is true when it is said, and is kept.

an ack leaves      6   is it on the disk of whoever says it?
an ack is believed 5   is it of the newest life, of somebody who is expected?
a log is trimmed   3   what would each expected consumer go on from?
a replica is live  8   does it have what it takes to go on?
"""

from __future__ import annotations

from typing import Any

from unbroken.control.intentions import Standing
from unbroken.epochs import GAP
from unbroken.errors import UnbrokenError
from unbroken.node.staged import STAGED
from unbroken.testing.checkers.losses import Losses
from unbroken.testing.checkpoints import Checkpoint, Commit
from unbroken.testing.disk import Path
from unbroken.testing.world import Process

#: After a stream's name: what a sink has written of it.
OUT = "~out"


class Promises(Losses):
    """Looks at acks, trims, shipments and whoever becomes live."""

    def __init__(self, sim: Any) -> None:
        super().__init__(sim)
        self._lives: dict[tuple[str, str, str], int] = {}
        #: How many epochs a giver has made while a shipment of its was on its way, at most.
        self.went_on = 0
        #: Who refused what: it is tried again many times a second.
        self._refused: set[tuple[str, str]] = set()

    def trimmed(self, folder: Path, stream: str, gone: range) -> None:
        """Invariant 3: every consumer that is expected finds what it would go on from."""
        if stream.endswith((STAGED, OUT)):
            return
        first = gone.stop
        for piece in self._sim.life.pieces:
            if stream not in piece.inputs or piece.protection in ("upstream", "gap"):
                continue
            for node, standing in self.placement.get(piece.name, {}).items():
                if standing not in (Standing.LIVE, Standing.COMING):
                    continue
                if (piece.name, node) in self.to_be_given:
                    continue
                held = self._holds(node, piece.name)
                if held is not None and held + 1 < first:
                    self.break_(
                        3, f"{folder.disk.name} trimmed {stream} up to {first - 1}, but "
                        f"{piece.name}@{node} can only go on after {held}",
                    )  # fmt: skip
        for sink in self._sim.sinks():
            if sink.name not in self.known_sinks:
                # Nobody has heard of it: it is a stranger, for whom little is kept.
                if sink.stream == stream and sink.next < first:
                    self._too_late.add(sink.name)
                continue
            lost = stream in self.gaps and self._is_lost(stream, sink.next, gone)
            if sink.stream == stream and sink.next < first and not lost:
                self.break_(
                    3, f"{folder.disk.name} trimmed {stream} up to {first - 1}, but "
                    f"{sink.consumer} has only taken up to {sink.next - 1}",
                )  # fmt: skip

    def _is_lost(self, stream: str, number: int, gone: range) -> bool:
        """Whether an epoch of a gap fragment is lost anyway: in a hole, or before one.

        A hole that is longer than what is kept for strangers goes before its sinks have seen it,
        because whoever begins anew has not heard of them: docs/simulator.md.
        """
        epoch = self.contents[stream].get(number)
        return number < gone.start or epoch is None or epoch.kind == GAP

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
        # A line that is parked counts: everybody goes on from there.
        started = replica is not None and not replica.failed
        started = started and (replica.first is not None or replica.branch is not None)
        return int(replica.committed) if started else None

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
        super().believed(there, ack)
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

    def goes_on(self, fragment: str, checkpoint: Checkpoint, commit: Commit) -> None:
        """Invariant 8: an engine begins from a commit; its layers are of one line of runs."""
        if wrong := checkpoint.whole(commit):
            self.break_(8, f"{fragment} on {checkpoint.disk.name} goes on after {commit.epoch}, "
                        f"but {wrong}")  # fmt: skip

    def shipped(self, folder: Path, fragment: str, epoch: int, made: Checkpoint) -> None:
        """Invariant 8: a shipment has its name; a replica is its checkpoint and its output."""
        newest = made.last(with_watermarks=False)
        wrong = "it has no commit" if newest is None else made.whole(newest)
        if wrong or (newest is not None and newest.epoch != epoch):
            wrong = wrong or "its newest commit is another one"
            self.break_(8, f"{folder.disk.name} was shipped {fragment} up to {epoch}: {wrong}")
        newer = next(reversed(self.contents.get(fragment, {-1: None}))) - epoch
        self.went_on = max(self.went_on, newer)
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
        if name in self._with_producer or self._kept_is_lost(name):
            self.beyond[name] = rest  # Said, and nobody can help it any more.
        else:
            self.break_(3, rest)

    def gone(self, consumer: str, error: UnbrokenError) -> None:
        """Invariant 3: a replica asked for what nobody has any more."""
        fragment, _, node = consumer.partition("@")
        piece = self.piece(fragment)
        standing = self.placement.get(fragment, {}).get(node)
        expected = standing in (Standing.LIVE, Standing.COMING)
        gaps = self.gaps.intersection(piece.inputs)
        lost = gaps or self._kept_is_lost(fragment)
        if expected and not lost:
            self.break_(3, f"{consumer} is expected, and needs what is gone: {error.what}")

    def refused(self, there: Process, command: dict[str, Any], error: UnbrokenError) -> None:
        """A producer refused something, and says why."""
        if (there.name, error.what) not in self._refused:
            self._refused.add((there.name, error.what))
            self._sim.world.say(f"refuses: {error.what}")

    def gave_up(self, process: Process, error: UnbrokenError) -> None:
        """A process says that it cannot go on."""

    def became_live(self, fragment: str, node: str) -> None:
        """Invariant 8: control counts a replica that was repaired."""
        piece = self.piece(fragment)
        if piece.protection in ("upstream", "gap") or not self._sim.world.processes[node].alive:
            return
        made = self.contents.get(fragment, {})
        if made and self.on_disk(node, fragment) is None:
            self.break_(8, f"control counts {fragment}@{node} as live, but it has no checkpoint")
