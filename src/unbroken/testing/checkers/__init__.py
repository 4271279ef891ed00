"""Checkers: what must never happen, looked at from outside, one per invariant of the design.

    1  an epoch has one stable content        every log, every reader                  contents
    2  taken in order, once, none skipped     every batch, every sink                  contents
    3  nothing is trimmed that may be asked   every trim, against consumers' disks     promises
    5  promises of an older life are refused  every ack that was believed              promises
    6  a promise is true when it leaves       every ack, against the disk of its giver promises
    7  a full log pushes back, and names whom every append, every log that is full     limits
    8  who is counted as live can go on       every replica that becomes live          promises
    9  sinks equal the undisturbed run, as the policies promise; gaps are on record    outputs
    10 when faults stop, sinks get there in time, or status says why not               losses
    11 nothing is raised that nobody expects  assertions of the protocol included      sim

In lives with a delay bound also, and only there:

    4  what is tentative is known as such     every branch, whoever follows it         tentative
    12 waits are as long as the bound says    every epoch of a branch, every question  tentative

Checkers know the rows of the sources, what is on every disk, and what was written by sinks.  They
use none of the protocol's decisions, only its records of who is expected.
"""

from __future__ import annotations

from typing import Any

from unbroken.epochs import GAP
from unbroken.errors import UnbrokenError
from unbroken.streams.merge import Merge
from unbroken.testing.checkers.base import NAMES, Violation
from unbroken.testing.checkers.contents import Contents
from unbroken.testing.checkers.limits import Limits
from unbroken.testing.checkers.outputs import Outputs
from unbroken.testing.checkers.promises import Promises
from unbroken.testing.disk import Path
from unbroken.testing.epochs import Epoch
from unbroken.testing.world import Process

__all__ = ["NAMES", "Checkers", "Violation"]


class Checkers(Contents, Promises, Limits, Outputs):
    """Told of everything that can be seen from outside.

    A checker of your own derives from it, looks, and calls `break_` with a number above 12:
    `appended` (an epoch is in a log), `took` (a consumer has fetched one), `reads` and `seals` (an
    engine), `wrote` (a sink has one), `trimmed`, `died`, and `outputs` (all is over).  Each calls
    `super()`, for the others look too.
    """

    merge_class: type[Merge] = Merge

    def __init__(self, sim: Any) -> None:
        super().__init__(sim)
        self.runs: list[Any] = []
        self._slow: dict[str, float] = {}

    def appended(self, folder: Path, epoch: Epoch) -> None:
        """An epoch is in a log from now on."""
        super().appended(folder, epoch)
        if epoch.kind == GAP and folder.name == "output":
            self.lost_with(self.piece(epoch.header.stream), epoch)
        self.grown(folder, epoch)

    def broken(self, error: UnbrokenError) -> None:
        """The protocol itself noticed that two contents claim a number, or a batch went astray."""
        self.break_(1 if type(error).__name__ == "DivergenceError" else 2, error.what)

    def went_astray(self, fragment: str, error: UnbrokenError) -> None:
        """An engine ended because of what it was given, or what it made of it."""
        self.broken(error)

    def excuse(self, node: str) -> None:
        """A node could not have gone on up to now (see `tentative`)."""

    def slowness(self, node: str) -> float:
        """How many times slower than usual a node computes."""
        return self._slow.get(node, 1.0)

    def slow(self, node: str, factor: float) -> None:
        """From now on a node computes so many times slower."""
        self._slow[node] = factor

    def point(self, process: Process, where: str, fragment: str, epoch: int) -> None:
        """An engine has planned or sealed an epoch."""
        self._sim.faults.point(process, where, fragment, epoch)
