"""Invariants 1 and 2: one content per number, and every reader takes them in order.

    every log ──┐
    every reader ├─ the first content seen under a number ─ another one? out of turn?
    every sink ──┘

What nobody but gap fragments has may be given up with them, until a sink has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbroken.control.intentions import Standing
from unbroken.epochs import GAP
from unbroken.node.staged import STAGED
from unbroken.testing.checkers.base import Looking, text_of
from unbroken.testing.disk import Path
from unbroken.testing.epochs import Epoch, Torn
from unbroken.testing.pasts import Past


class Contents(Looking):
    """Looks at logs and readers."""

    def __init__(self, sim: Any) -> None:
        super().__init__(sim)
        self._read: dict[int, int] = {}

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
            if stream in self.gaps and self._all_there(stream, epoch.number):
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
        piece = self.piece(stream)
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
        # A fragment that is not started yet has not dropped what is torn.
        return bool(logs) and all(number in log and not isinstance(log[number], Torn)
                                  for log in logs)  # fmt: skip

    def took(self, follower: Any, epoch: Epoch) -> None:
        """Invariants 1 and 2: a consumer has fetched an epoch."""
        stream = epoch.header.stream
        if epoch.number != follower.next - 1:
            self.break_(2, f"{follower._consumer} takes {epoch.number} of {stream} out of turn")
        if len(epoch.table) != epoch.header.rows:
            self.break_(1, f"{follower._consumer} takes half of {epoch.number} of {stream}")
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
        if stream in self._behind.streams | self._behind.gaps:
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
