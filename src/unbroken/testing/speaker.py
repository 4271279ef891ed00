"""Saying the newest thing to one door, until it was heard; as `node.speaker`, with messages.

    say 41 ─▶ lost          say 42 (41 was not heard of: 42 takes its place) ─▶ heard

* Of one consumer and stream only the newest word counts.
* What was not heard of is said again; the door may then hear it twice, and late.
"""

from __future__ import annotations

from typing import Any

from unbroken.errors import UnbrokenError, Unreachable
from unbroken.testing.network import Network
from unbroken.testing.world import Process, World


class Speaker:
    """Says the newest thing to one door; as `node.speaker.Speaker`, with messages."""

    RETRY_S = 0.5

    def __init__(self, world: World, network: Network, watch: Any, address: str) -> None:
        process = world.current
        assert process is not None
        self._world, self._network, self._watch = world, network, watch
        self._process: Process = process
        self._address = address
        self._unsaid: dict[tuple[str, str], dict[str, Any]] = {}
        #: When each of them was said last.
        self._tried_s: dict[tuple[str, str], float] = {}
        #: Whether a look for what was not heard of is scheduled.
        self._armed = False
        self._closed = False

    def say(self, stream: str, command: dict[str, Any]) -> None:
        """Says `command` soon; one of the same consumer that is still unsaid is replaced."""
        key = stream, str(command.get("consumer"))
        command = {**command, "stream": stream}
        if command["do"] == "ack":
            self._watch.promises(self._process, stream, command)
        fresh = key not in self._unsaid
        self._unsaid[key] = command
        if fresh:
            self._try(key)

    def _try(self, key: tuple[str, str]) -> None:
        self._tried_s[key] = self._world.now_s
        self._network.message(self._process, self._address, self._arrives, key, self._unsaid[key])
        self._arm(self.RETRY_S)

    def _arm(self, delay_s: float) -> None:
        if not self._armed:
            self._armed = True
            self._world.at(delay_s, self._process, self._again)

    def _again(self) -> None:
        """Not heard of: said again, or what has replaced it by then."""
        self._armed = False
        if self._closed:
            return
        late_s = self._world.now_s - self.RETRY_S
        for key in [key for key in self._unsaid if self._tried_s[key] <= late_s]:
            self._try(key)
        if self._unsaid:
            oldest_s = min(self._tried_s[key] for key in self._unsaid)
            self._arm(max(0.001, oldest_s + self.RETRY_S - self._world.now_s))

    def _arrives(self, key: tuple[str, str], command: dict[str, Any]) -> None:
        """At the producer."""
        there = self._world.current
        assert there is not None
        try:
            there.door.acts[command["do"]](command)
            self._watch.believed(there, command)
        except (KeyError, Unreachable):
            return
        except UnbrokenError as error:
            self._watch.refused(there, command, error)
        if not self._network.is_cut(there.name, self._process.name):
            self._done(key, command)

    def _done(self, key: tuple[str, str], command: dict[str, Any]) -> None:
        if self._unsaid.get(key) is command:
            del self._unsaid[key]
        elif key in self._unsaid and not self._closed:
            self._try(key)

    def close(self) -> None:
        """Says no more."""
        self._closed = True
