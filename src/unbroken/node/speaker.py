"""A speaker: says the newest thing to one door, at the pace of whoever listens there.

    ack 7 ─┐
    ack 8 ─┴▶ speaker (one thread per door) ─▶ door        a later ack replaces one not yet said

A producer that is frozen would otherwise hold up what we have to say to all the others; its own
speaker waits for it, and nobody else does.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from unbroken.errors import UnbrokenError, Unreachable
from unbroken.streams.flight import Peer

SAY_S_MAX = 5.0
RETRY_S = 0.1


class Speaker:
    """Talks to one door.

    >>> from unbroken.streams.flight import Door
    >>> heard, door = threading.Event(), Door()
    >>> door.on_act("ack", lambda command: heard.set())
    >>> with door:
    ...     Speaker(door.address).say("clicks", {"do": "ack", "consumer": "pages@node-1"})
    ...     heard.wait(10)
    True
    """

    def __init__(self, address: str) -> None:
        self._peer = Peer(address)
        self._changed = threading.Condition()
        self._unsaid: dict[tuple[str, str], dict[str, Any]] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._run, daemon=True, name=f"say-{address}").start()

    def say(self, stream: str, command: dict[str, Any]) -> None:
        """Says `command` soon; one of the same consumer that is still unsaid is replaced."""
        with self._changed:
            self._unsaid[stream, str(command.get("consumer"))] = {**command, "stream": stream}
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unsaid or self._closed.is_set())
                if self._closed.is_set():
                    return
                key, command = next(iter(self._unsaid.items()))
            try:
                self._peer.act(command, timeout_s=SAY_S_MAX)
            except Unreachable:
                with self._changed:
                    # Behind the others: a stream that has left this door must not silence them.
                    if self._unsaid.get(key) is command:
                        self._unsaid[key] = self._unsaid.pop(key)
                if self._closed.wait(RETRY_S):
                    return
                continue  # Said again, or what has replaced it by then.
            except UnbrokenError as error:
                # Refused for now (its disk is full, say) or for good (fenced): the next one tells.
                print(f"{command['do']} refused: {error}", file=sys.stderr, flush=True)
            with self._changed:
                if self._unsaid.get(key) is command:
                    del self._unsaid[key]

    def close(self) -> None:
        """Says no more."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._peer.close()
