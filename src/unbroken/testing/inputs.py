"""What a simulated replica reads: a few epochs of every input, ahead of the engine.

    followers ─▶ buffers ─▶ the real gate

As `node.inputs.Inputs`, without threads: a follower asks whether there is room before it fetches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from unbroken.errors import CheckpointLost, EpochGone, UnbrokenError
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
        book: Any, *, consumer: str, changed: Any, arrived: Callable[[str, int], None],
        heard: Callable[[str, Epoch], None] | None = None,
    ) -> None:  # fmt: skip
        self._changed, self._arrived, self._consumer = changed, arrived, consumer
        self._world, self._watch, self._heard = world, watch, heard
        #: Of a fragment with a delay bound: when each epoch came, by stream; for the checkers.
        self.came_s: dict[tuple[str, int], float] = {}
        #: And on which branch it was heard, if it was.
        self.branches: dict[tuple[str, int], str] = {}
        self._buffers: dict[str, dict[int, Epoch]] = {name: {} for name in streams}
        self.error: UnbrokenError | None = None
        self._stopped = self._speaks_for = False
        self._followers: list[Follower | Both] = []
        for name in streams:
            given = (world, network, watch, name, first, partial(book.replicas, name))
            how: dict[str, Any] = {
                "consumer": consumer, "taken": partial(self._came, name), "failed": self._broke,
                "room": partial(self._room, name),
            }  # fmt: skip
            self._followers.append(
                Follower(*given, **how) if heard is None
                else Both(*given, heard=partial(self._hear, name), **how)
            )  # fmt: skip

    def _room(self, name: str) -> bool:
        return len(self._buffers[name]) < AHEAD_EPOCHS

    def _came(self, name: str, epoch: Epoch) -> None:
        if not self._stopped:
            self._buffers[name][epoch.number] = epoch
            if self._heard is not None:
                self.came_s.setdefault((name, epoch.number), self._world.now_s)
            self._arrived(name, epoch.number)
            self._changed.notify_all()

    def _hear(self, name: str, epoch: Epoch) -> None:
        if not self._stopped and self._heard is not None:
            self.came_s.setdefault((name, epoch.number), self._world.now_s)
            self.branches[name, epoch.number] = epoch.header.branch
            self._heard(name, epoch)
            self._changed.notify_all()

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """A tentative branch reads on: what it takes, its stable line still has to take."""
        self._speaks_for = True
        for follower in self._followers:
            follower.speak_for(lacks)

    def _broke(self, error: UnbrokenError) -> None:
        if isinstance(error, EpochGone):
            if not self._speaks_for:  # What a branch lacks its stable line has taken.
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
        for follower in self._followers:
            follower.more()

    @property
    def refused(self) -> list[str]:
        """Producers whose epochs are not taken, and why."""
        return [text for follower in self._followers for text in follower.merge.refused.values()]

    def stop(self) -> None:
        """Stops listening."""
        self._stopped = True
        for follower in self._followers:
            follower.close()
