"""What a replica reads: a few epochs of every input, ahead of Spark.

    followers ─▶ buffers ─▶ gate

Bodies wait in a bounded buffer until the gate lets them through and Spark has committed them.
What is tentative goes another way: no gate of a stable line ever hears of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from unbroken.epochs import TENTATIVE, Epoch
from unbroken.errors import CheckpointLost, EpochGone, UnbrokenError
from unbroken.node.book import BookReader
from unbroken.streams.both import Both
from unbroken.streams.flight import POLL_S
from unbroken.streams.follow import Follower

#: Epochs fetched ahead of Spark, per input.
AHEAD_EPOCHS = 4
AHEAD_BYTES_MAX = 128 << 20


class Waiting(Protocol):
    """Epochs that wait for Spark, whoever brought them."""

    error: UnbrokenError | None

    def epoch(self, stream: str, number: int) -> Epoch:
        """An epoch that has arrived and is not done."""

    def done(self, number: int) -> None:
        """Spark has committed epoch `number`: it will not be asked for again."""

    @property
    def refused(self) -> list[str]:
        """Producers whose epochs are not taken, and why."""

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """A tentative branch reads on: what it takes, its stable line still has to take."""

    def stop(self) -> None:
        """Brings no more."""


class Inputs:
    """The inputs of one replica from epoch `first` on; `changed` is notified of all that happens.

    `arrived` is called with stream and number under `changed`, in order, none skipped.  `heard` is
    called in the same way with what producers say tentatively; without it nobody listens to that.
    """

    def __init__(
        self,
        streams: Sequence[str],
        first: int,
        book: BookReader,
        *,
        consumer: str,
        changed: threading.Condition,
        arrived: Callable[[str, int], None],
        heard: Callable[[str, Epoch], None] | None = None,
    ) -> None:
        self._changed = changed
        self._heard = heard
        self._arrived = arrived
        self._buffers: dict[str, dict[int, Epoch]] = {name: {} for name in streams}
        self._followers: list[Follower | Both] = []
        self._stopped = False
        self._consumer = consumer
        #: Why no more will come; None while all is well.
        self.error: UnbrokenError | None = None
        for name in streams:
            kind = Follower if heard is None else Both
            follower = kind(name, first, partial(book.replicas, name), consumer=consumer)
            self._followers.append(follower)
            threading.Thread(
                target=self._fill, args=(name, follower), daemon=True, name=f"fill-{name}"
            ).start()

    def _fill(self, name: str, follower: Follower | Both) -> None:
        """Keeps the buffer of one input filled, a few epochs ahead of Spark."""
        buffer = self._buffers[name]
        try:
            while not self._stopped:
                epoch = follower.take(timeout_s=POLL_S)
                if epoch is None:
                    continue
                if epoch.kind == TENTATIVE:
                    assert self._heard is not None, "only whoever listens hears it"
                    with self._changed:
                        self._heard(name, epoch)
                        self._changed.notify_all()
                    continue
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or _has_room(buffer))
                    buffer[epoch.number] = epoch
                    self._arrived(name, epoch.number)
                    self._changed.notify_all()
        except UnbrokenError as error:
            if isinstance(error, EpochGone):
                error = CheckpointLost(error.what, hint=f"{self._consumer} needs it")
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def epoch(self, stream: str, number: int) -> Epoch:
        """An epoch that has arrived and is not done."""
        with self._changed:
            return self._buffers[stream][number]

    def done(self, number: int) -> None:
        """Spark has committed epoch `number`: it will not be asked for again."""
        with self._changed:
            for buffer in self._buffers.values():
                buffer.pop(number, None)
            self._changed.notify_all()

    @property
    def refused(self) -> list[str]:
        """Producers whose epochs are not taken, and why."""
        return [text for follower in self._followers for text in follower.refused]

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """A tentative branch reads on: what it takes, its stable line still has to take.

        `lacks` tells the first epoch of that, None once the stable line asks for itself.
        """
        for follower in self._followers:
            follower.speak_for(lacks)

    def stop(self) -> None:
        """Stops listening."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for follower in self._followers:
            follower.close()


def _has_room(buffer: dict[int, Epoch]) -> bool:
    waiting = sum(epoch.header.bytes for epoch in buffer.values())
    return not buffer or (len(buffer) < AHEAD_EPOCHS and waiting < AHEAD_BYTES_MAX)
