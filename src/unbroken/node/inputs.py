"""What a replica reads: a few epochs of every input, ahead of Spark.

    followers ─▶ buffers ─▶ gate

Bodies wait in a bounded buffer until the gate lets them through and Spark has committed them.
What is tentative goes another way: no gate of a stable line ever hears of it.

If one replica of an input stands alone, because the one before it was lost, it is told how far this
one is, and a hole begins there.  What waits here would be gone with this process, and after a
restart nobody had it: neither a log nor the hole.  So it is given back before anything is said, and
what is said is what Spark has committed: one answer, with a restart in between or without.
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


class Arrived(Protocol):
    """Is told of what comes in: stream, number, and how long it was held up upstream."""

    def __call__(self, stream: str, number: int, waited_s: float = 0.0) -> None:
        """An epoch is here, in order, none skipped."""


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

    def begin(self) -> None:
        """Brings epochs from now on."""

    def stop(self) -> None:
        """Brings no more."""


class Inputs:
    """The inputs of one replica from epoch `first` on; `changed` is notified of all that happens.

    `arrived` is called under `changed`, in order, none skipped; again from the epoch on that
    `withdraw` tells, which takes back what is not committed (`Gate.withdraw`).  `heard` is called
    as `arrived` is with what producers say tentatively; without it nobody listens to that.
    """

    def __init__(
        self,
        streams: Sequence[str],
        first: int,
        book: BookReader,
        *,
        consumer: str,
        changed: threading.Condition,
        arrived: Arrived,
        withdraw: Callable[[str], int | None],
        heard: Callable[[str, Epoch], None] | None = None,
        wait_s: float | None = None,
    ) -> None:
        """`wait_s`: as for `Follower`."""
        self._book, self._changed = book, changed
        self._wait_s = wait_s
        self._heard = heard
        self._arrived, self._withdraw = arrived, withdraw
        self._buffers: dict[str, dict[int, Epoch]] = {name: {} for name in streams}
        self._followers: dict[str, Follower | Both] = {}
        #: How often each input was begun anew: what an earlier follower brings is not taken.
        self._turns = dict.fromkeys(streams, 0)
        self._lacks: Callable[[], int | None] | None = None
        self._stopped = False
        self._consumer = consumer
        #: Why no more will come; None while all is well.
        self.error: UnbrokenError | None = None
        self._first = first

    def begin(self) -> None:
        """Brings epochs from now on.

        Not before somebody knows of it who can stop it: whom to ask may have to be waited for.
        """
        for name in self._buffers:
            self._follow(name, self._first)

    def _follow(self, name: str, first: int) -> None:
        """Brings an input from epoch `first` on."""
        kind, turn = Follower if self._heard is None else Both, self._turns[name]
        follower = kind(
            name, first, partial(self._book.replicas, name), consumer=self._consumer,
            begin_anew=partial(self._begin_anew, name, turn), wait_s=self._wait_s,
        )  # fmt: skip
        with self._changed:
            self._followers[name] = follower
            if self._lacks is not None:
                follower.speak_for(self._lacks)
            if self._stopped:
                follower.close()
        threading.Thread(
            target=self._fill, args=(name, turn, follower), daemon=True, name=f"fill-{name}"
        ).start()

    def _is_over(self, name: str, turn: int) -> bool:
        return self._stopped or self._turns[name] != turn

    def _fill(self, name: str, turn: int, follower: Follower | Both) -> None:
        """Keeps the buffer of one input filled, a few epochs ahead of Spark."""
        buffer, is_over = self._buffers[name], partial(self._is_over, name, turn)
        try:
            while not is_over():
                epoch = follower.take(timeout_s=POLL_S)
                if epoch is None:
                    continue
                with self._changed:
                    if epoch.kind != TENTATIVE:
                        self._changed.wait_for(lambda: is_over() or _has_room(buffer))
                    if is_over():
                        return  # Given back: it comes again, or something else in its place.
                    if epoch.kind == TENTATIVE:
                        assert self._heard is not None, "only whoever listens hears it"
                        self._heard(name, epoch)
                    else:
                        buffer[epoch.number] = epoch
                        self._arrived(name, epoch.number, epoch.header.waited_s)
                    self._changed.notify_all()
        except UnbrokenError as error:
            with self._changed:
                if not is_over():
                    self._fail(error)

    def _fail(self, error: UnbrokenError) -> None:
        if isinstance(error, EpochGone):
            error = CheckpointLost(error.what, hint=f"{self._consumer} needs it")
        self.error = error
        self._changed.notify_all()

    def _begin_anew(self, name: str, turn: int) -> None:
        """One replica of this input stands alone: what is not committed is given back.

        The epoch that Spark works on is waited for; if that takes long, this is called again.
        """

        def is_over() -> bool:
            # Also if it reads for a branch by now: that one's stable line has given nothing away.
            return self._is_over(name, turn) or self._lacks is not None

        with self._changed:
            self._changed.wait_for(
                lambda: is_over() or self._withdraw(name) is not None, POLL_S
            )  # fmt: skip
            first = None if is_over() else self._withdraw(name)
            if first is None:
                return
            self._turns[name] += 1
            buffer = self._buffers[name]
            for number in [each for each in buffer if each >= first]:
                del buffer[number]
            self._changed.notify_all()
        self._followers[name].close()
        try:
            self._follow(name, first)
        except UnbrokenError as error:
            with self._changed:
                self._fail(error)

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
        return [text for each in list(self._followers.values()) for text in each.refused]

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """A tentative branch reads on: what it takes, its stable line still has to take.

        `lacks` tells the first epoch of that, None once the stable line asks for itself.
        """
        self._lacks = lacks
        for follower in self._followers.values():
            follower.speak_for(lacks)

    def stop(self) -> None:
        """Stops listening."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for follower in list(self._followers.values()):
            follower.close()


def _has_room(buffer: dict[int, Epoch]) -> bool:
    waiting = sum(epoch.header.bytes for epoch in buffer.values())
    return not buffer or (len(buffer) < AHEAD_EPOCHS and waiting < AHEAD_BYTES_MAX)
