"""Follows one stream as a client does, and notes when each epoch came and how late it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from unbroken.client.cluster import Cluster
from unbroken.epochs import FINAL, Epoch
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.measure.ears import Ears, Heard
from unbroken.measure.watch import Watch

RETRY_S = 0.1


class Following(threading.Thread):
    """Follows one stream, and goes on where it was when somebody was away."""

    def __init__(
        self,
        cluster: Cluster,
        stream: str,
        due: Callable[[Epoch], float | None],
        *,
        consumer: str | None = None,
        tentative: bool = False,
    ) -> None:
        """With `tentative` it hears tentative epochs too, and notes them apart (`ears`)."""
        super().__init__(name=f"follow-{stream}", daemon=True)
        self._cluster, self._stream, self._due = cluster, stream, due
        self._consumer, self._tentative = consumer, tentative
        self.watch = Watch()
        self.ears = Ears()
        #: Final ones only.
        self.epochs: list[Epoch] = []
        self.next = 0
        self.stopped = False
        self.error: UnbrokenError | None = None

    def run(self) -> None:
        """Takes epochs; the thread's own function."""
        while not self.stopped:
            try:
                epochs = self._cluster.follow(
                    self._stream, self.next, consumer=self._consumer, tentative=self._tentative
                )
                for epoch in epochs:
                    at_s = time.time()
                    if self._tentative:
                        self.ears.take(at_s, Heard.of(epoch))
                    if epoch.kind not in FINAL:
                        continue
                    self.epochs.append(epoch)
                    self.watch.take(at_s, self._due(epoch))
                    self.next = epoch.number + 1
            except UnbrokenError as error:
                # Exactly this class: nobody serves the stream now.
                if not isinstance(error, Unreachable) and type(error) is not UnbrokenError:
                    self.error = error
                    return
                time.sleep(RETRY_S)
