"""A cable between two processes of one machine, which can be pulled: for tests and demos.

    node-3 ─▶ cable ─▶ door of node-1        cut: nothing gets through, connections stay open
                                             heal: what was under way arrives, late
                                             slow: everything arrives so much later

* A cut cable does not refuse and does not close: that is what a partition looks like to both ends,
  unlike a process that died.  Bytes that were sent wait, as TCP would send them again.
* It can be cut in one direction only: questions arrive and answers do not, or the other way round.
* Where it leads is asked for with every connection: a process that was restarted has another door.

>>> from unbroken.streams.flight import Door, Peer
>>> door = Door(); door.on_act("greet", lambda command: "hello")
>>> with door, Cable(lambda: door.address) as cable, Peer(cable.address) as peer:
...     peer.act({"do": "greet"})
'hello'
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from unbroken.errors import UnbrokenError

CHUNK_BYTES = 256 << 10
CONNECT_S_MAX = 5.0
#: The two directions: from whoever connects to the door, and back.
THERE, BACK = "there", "back"


class Cable:
    """Passes on every connection to the address that `target` tells; None: nobody is there."""

    def __init__(self, target: Callable[[], str | None], host: str = "127.0.0.1") -> None:
        self._target = target
        self._changed = threading.Condition()
        self._cut: set[str] = set()
        self._slow_s = 0.0
        self._closed = False
        self._listener = socket.create_server((host, 0))
        self.address = f"grpc://{host}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True, name="cable").start()

    def cut(self, *directions: str) -> None:
        """Nothing gets through any more, in one direction or in both."""
        with self._changed:
            self._cut |= set(directions or (THERE, BACK))

    def slow(self, seconds: float) -> None:
        """Everything gets through so much later."""
        with self._changed:
            self._slow_s = seconds

    def heal(self) -> None:
        """Everything gets through, also what has waited."""
        with self._changed:
            self._cut.clear()
            self._slow_s = 0.0
            self._changed.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # Closed.
            threading.Thread(target=self._connect, args=(near,), daemon=True, name="cable").start()

    def _connect(self, near: socket.socket) -> None:
        self._pass(THERE)
        far: socket.socket | None = None
        with contextlib.suppress(OSError, ValueError, UnbrokenError):
            address = self._target()
            if address is not None and not self._closed:
                host, _, port = address.removeprefix("grpc://").rpartition(":")
                far = socket.create_connection((host, int(port)), CONNECT_S_MAX)
                far.settimeout(None)
        if far is None:
            near.close()
            return
        for one, other, direction in ((near, far, THERE), (far, near, BACK)):
            threading.Thread(
                target=self._pump, args=(one, other, direction), daemon=True, name="cable"
            ).start()

    def _pass(self, direction: str) -> None:
        """Waits while the cable is cut or slow."""
        if self._slow_s:
            time.sleep(self._slow_s)
        with self._changed:
            self._changed.wait_for(lambda: direction not in self._cut or self._closed)

    def _pump(self, one: socket.socket, other: socket.socket, direction: str) -> None:
        with contextlib.suppress(OSError):  # Either end may go at any time.
            other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while chunk := one.recv(CHUNK_BYTES):
                self._pass(direction)
                if self._closed:
                    break
                other.sendall(chunk)
        # The end of a connection is news too, and does not get through a cut.
        self._pass(direction)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """Nobody can connect any more, and connections end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Cable:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
