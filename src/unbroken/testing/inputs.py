"""What a simulated replica reads: a few epochs of every input, ahead of the engine.

    followers ─▶ buffers ─▶ the real gate

As `node.inputs.Inputs`, without threads: a follower asks whether there is room before it fetches,
and what has to be given back when an epoch is committed is given back there and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from unbroken.errors import CheckpointLost, EpochGone, UnbrokenError
from unbroken.node.inputs import Arrived
from unbroken.testing.branches import Both
from unbroken.testing.epochs import Epoch
from unbroken.testing.follow import Follower
from unbroken.testing.network import Network
from unbroken.testing.world import World

#: Epochs fetched ahead of the engine, as in `node.inputs`.
AHEAD_EPOCHS = 4


class Inputs:
    """The inputs of one replica; as `node.inputs.Inputs`."""

    def __init__(
        self, world: World, network: Network, watch: Any, streams: Sequence[str], first: int,
        book: Any, *, consumer: str, changed: Any, arrived: Arrived,
        withdraw: Callable[[str], int | None],
        heard: Callable[[str, Epoch], None] | None = None, wait_s: float | None = None,
    ) -> None:  # fmt: skip
        self._changed, self._arrived, self._consumer = changed, arrived, consumer
        self._world, self._network, self._watch, self._heard = world, network, watch, heard
        self._book, self._withdraw = book, withdraw
        #: Inputs that are given back as soon as nothing is worked on.
        self._to_give_back: set[str] = set()
        #: Of a fragment with a delay bound: when each epoch came, by stream; for the checkers.
        self.came_s: dict[tuple[str, int], float] = {}
        #: And on which branch it was heard, if it was.
        self.branches: dict[tuple[str, int], str] = {}
        self._buffers: dict[str, dict[int, Epoch]] = {name: {} for name in streams}
        self.error: UnbrokenError | None = None
        self._stopped = False
        self._lacks: Callable[[], int | None] | None = None
        self._followers: dict[str, Follower | Both] = {}
        self._first = first

    def begin(self) -> None:
        """Brings epochs from now on."""
        for name in self._buffers:
            if not self._stopped:
                self._follow(name, self._first)

    def _follow(self, name: str, first: int) -> None:
        find = partial(self._book.replicas, name)
        given = (self._world, self._network, self._watch, name, first, find)
        how: dict[str, Any] = {
            "consumer": self._consumer, "taken": partial(self._came, name), "failed": self._broke,
            "room": partial(self._room, name), "begin_anew": partial(self._begin_anew, name),
        }  # fmt: skip
        follower = self._followers[name] = (
            Follower(*given, **how) if self._heard is None
            else Both(*given, heard=partial(self._hear, name), **how)
        )  # fmt: skip
        if self._lacks is not None:
            follower.speak_for(self._lacks)

    def _begin_anew(self, name: str) -> None:
        """One replica of this input stands alone: what is not committed is given back to it."""
        if self._stopped:
            return
        first = self._withdraw(name)
        if first is None:
            self._to_give_back.add(name)
            return
        self._to_give_back.discard(name)
        self._followers[name].close()
        buffer = self._buffers[name]
        for number in [each for each in buffer if each >= first]:
            del buffer[number]
        for came in [key for key in self.came_s if key[0] == name and key[1] >= first]:
            del self.came_s[came]
        self._follow(name, first)
        self._changed.notify_all()

    def _room(self, name: str) -> bool:
        return len(self._buffers[name]) < AHEAD_EPOCHS

    def _came(self, name: str, epoch: Epoch) -> None:
        if not self._stopped:
            self._buffers[name][epoch.number] = epoch
            if self._heard is not None:
                self.came_s.setdefault((name, epoch.number), self._world.now_s)
            self._arrived(name, epoch.number, epoch.header.waited_s)
            self._changed.notify_all()

    def _hear(self, name: str, epoch: Epoch) -> None:
        if not self._stopped and self._heard is not None:
            self.came_s.setdefault((name, epoch.number), self._world.now_s)
            self.branches[name, epoch.number] = epoch.header.branch
            self._heard(name, epoch)
            self._changed.notify_all()

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """A tentative branch reads on: what it takes, its stable line still has to take."""
        self._lacks = lacks
        for follower in self._followers.values():
            follower.speak_for(lacks)

    def _broke(self, error: UnbrokenError) -> None:
        if isinstance(error, EpochGone):
            if self._lacks is None:  # What a branch lacks its stable line has taken.
                self._watch.gone(self._consumer, error)
            error = CheckpointLost(error.what, hint=f"{self._consumer} needs it")
        self.error = error
        self._changed.notify_all()

    def epoch(self, stream: str, number: int) -> Epoch:
        """An epoch that has arrived and is not done."""
        return self._buffers[stream][number]

    def done(self, number: int) -> None:
        """It will not be asked for again."""
        for buffer in self._buffers.values():
            buffer.pop(number, None)
        for name in sorted(self._to_give_back):
            self._begin_anew(name)
        for follower in self._followers.values():
            follower.more()

    @property
    def refused(self) -> list[str]:
        """Producers whose epochs are not taken, and why."""
        return [
            text for follower in self._followers.values()
            for text in follower.merge.refused.values()
        ]  # fmt: skip

    def stop(self) -> None:
        """Stops listening."""
        self._stopped = True
        for follower in self._followers.values():
            follower.close()
