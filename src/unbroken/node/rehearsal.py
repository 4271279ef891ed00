"""A rehearsal: a standby's query runs for a while, so that it is ready when it has to go on.

    shipped ─ fork ─▶ scratch ─▶ one epoch of every input, again and again ─▶ nobody hears it

* A first batch takes ten times as long as a tenth: code is generated and compiled, Python processes
  are started.  Whoever takes over should have that behind it.
* It works on a fork of its own, under a name of its own, and reads one epoch that the stream has
  anyway, so that it depends on nothing that is trimmed meanwhile.  It acks nothing, seals nothing
  and leaves nothing behind.
* It is worth something, and not necessary: it ends when it is told to, when it fails, and after
  `REHEARSE_S_MAX`, also when the stream is quiet.  Only epochs that ran count.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from unbroken.checkpoints import fork
from unbroken.engine.plan import Plan
from unbroken.epochs import Epoch
from unbroken.errors import UnbrokenError
from unbroken.gate import Gate
from unbroken.node.book import BookReader
from unbroken.node.lines import PlanFor
from unbroken.node.replica import Replica
from unbroken.query import Fragment
from unbroken.streams.follow import Follower

REHEARSE_EPOCHS = 20
REHEARSE_S_MAX = 60.0
#: How long Spark may take until its maintenance lets go of the state of a query that has ended.
UNLOAD_S = 10.0
LOOK_S = 0.05
#: After a fragment's name, for its query: no fragment can be called so.
MARK = "~rehearsal"


class Rehearsal(Replica):
    """A replica that goes on from a fork, with one epoch again and again, and says nothing."""

    def __init__(
        self, fragment: Fragment, folder: Path, book: BookReader, known: Plan,
        epochs: Mapping[str, Epoch],
    ) -> None:  # fmt: skip
        super().__init__(fragment, folder, book, known, name="")
        self._epochs = epochs

    def _stage(self, *, committed: int | None) -> None:
        """Nothing is shown, so nothing waits to be shown."""

    def _check_output(self, committed: int) -> None:
        """It has no output of before."""

    def _mute(self, number: int) -> bool:
        return True

    def _waiting(self, first: int, gate: Gate) -> Repeated:
        return Repeated(self._epochs, first, arrived=gate.offer)


class Repeated:
    """One epoch of each input, under every number from `first` on.

    >>> import pyarrow as pa
    >>> came = []
    >>> clicks = Epoch.of("clicks", 7, pa.table({"n": [1]}))
    >>> inputs = Repeated({"clicks": clicks}, 9, arrived=lambda *what: came.append(what))
    >>> inputs.done(9); came, inputs.epoch("clicks", 10).number
    ([('clicks', 9), ('clicks', 10)], 10)
    """

    refused: ClassVar[list[str]] = []

    def __init__(
        self, epochs: Mapping[str, Epoch], first: int, *, arrived: Callable[[str, int], None]
    ) -> None:
        self.error: UnbrokenError | None = None
        self._epochs = epochs
        self._arrived = arrived
        self._arrive(first)

    def _arrive(self, number: int) -> None:
        for stream in self._epochs:
            self._arrived(stream, number)

    def epoch(self, stream: str, number: int) -> Epoch:
        """The same rows under every number."""
        return self._epochs[stream].with_header(number=number)

    def done(self, number: int) -> None:
        """The next one is there at once."""
        self._arrive(number + 1)

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """Nobody is asked."""

    def begin(self) -> None:
        """The first one is there already."""

    def stop(self) -> None:
        """There is nothing to stop."""


class Rehearsals:
    """The rehearsals of one node; their folders are in `scratch`, and nobody else's."""

    def __init__(self, scratch: Path, book: BookReader) -> None:
        self._scratch = scratch
        # An earlier process may have been killed in the middle of one.
        shutil.rmtree(scratch, ignore_errors=True)
        self._book = book
        self._numbers = itertools.count(1)
        #: By the name that their queries give.
        self.running: dict[str, Replica] = {}

    def run(
        self,
        fragment: Fragment,
        known: Plan,
        shipped: Path,
        plan_for: Callable[[str], PlanFor],
        stop: threading.Event,
    ) -> int:
        """Rehearses `fragment` on a fork of what is in `shipped`; how many epochs have run.

        0: there was nothing to rehearse with, or it was told to stop.
        """
        began_s = time.monotonic()
        # One that is told to stop is not waited for, and the next may begin meanwhile.
        number = next(self._numbers)
        key, folder = f"{fragment.name}{MARK}-{number}", self._scratch / str(number)

        def over() -> bool:
            return stop.is_set() or time.monotonic() - began_s > REHEARSE_S_MAX

        rehearsal: Rehearsal | None = None
        try:
            forked = fork.fork_newest(
                shipped, folder / "1", with_watermarks=known.notes_watermarks, boot=fork.boot_id()
            )
            epochs = self._first_epochs(fragment, forked[1].epoch + 1, over) if forked else None
            if epochs is None:
                return 0
            self.running[key] = rehearsal = Rehearsal(fragment, folder, self._book, known, epochs)
            rehearsal.start(plan_for(key))
            why = ""
            while rehearsal.epochs_done < REHEARSE_EPOCHS and not (over() or why):
                stop.wait(LOOK_S)
                why = rehearsal.failed or rehearsal.stumbled
            done = rehearsal.epochs_done
            if why:
                # A sentence for `status`: nobody is asked to do anything about it.
                raise UnbrokenError(f"it failed after {done} epochs: {why.splitlines()[0]}")
            if not done and not stop.is_set():
                raise UnbrokenError(f"no epoch ran within {REHEARSE_S_MAX:.0f} s")
            return done
        finally:
            if rehearsal is not None:
                rehearsal.stop()
                del self.running[key]
                stop.wait(UNLOAD_S)
            # It holds on to layers that nobody needs any more.
            shutil.rmtree(folder, ignore_errors=True)

    def _first_epochs(
        self, fragment: Fragment, first: int, over: Callable[[], bool]
    ) -> dict[str, Epoch] | None:
        """The epoch `first` of every input; None if it does not come in time."""
        epochs: dict[str, Epoch] = {}
        for stream in fragment.inputs:
            follower = Follower(stream, first, partial(self._book.replicas, stream))
            try:
                while stream not in epochs:
                    if over():
                        return None
                    epoch = follower.take(timeout_s=LOOK_S)
                    if epoch is not None:
                        epochs[stream] = epoch
            finally:
                follower.close()
        return epochs
