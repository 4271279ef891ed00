"""Ports: where a door may be, and whether anybody is behind it.

    20000 ............... 32767 │ 32768 ............................ 60999
    doors that nobody chose       the kernel's: every outgoing connection, every "any port"

* Others go on knocking at the address of a process that has died.  If the kernel may give its port
  away, they reach somebody else: one of Spark's own sockets took our first four bytes for a length,
  and the JVM ran out of memory.  On loopback a call can even be connected with itself.
* So doors keep out of the kernel's range, and a port is claimed as long as its door is open.
* A process does not claim the same port twice, as long as there are others: whoever still knocks
  at its old door from here shares the connection, and a call to the new door would be told for half
  a second more that nobody is there.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from unbroken.errors import PortInUse

PORT_MIN, PORT_MAX = 20_000, 32_767
TRIES = 100
#: Ports that doors of this process have had are left out; so many of them.
LEFT_OUT_MAX = 4096
_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_had: dict[int, None] = {}


class Claim:
    """A free port outside of the kernel's range, for one door; nobody else can claim it meanwhile.

    >>> one, other = Claim("127.0.0.1"), Claim("127.0.0.1")
    >>> one.port != other.port
    True
    """

    def __init__(self, host: str) -> None:
        # gRPC sets SO_REUSEPORT, so two servers would share a port without a word, and one that is
        # only looked at may be taken by two.  The port of the same number that nobody uses, UDP's,
        # is bound by one alone.
        why: object = "every port that was tried was had before"
        for _ in range(TRIES):
            port = _any_port(host)
            self._held = socket.socket(type=socket.SOCK_DGRAM)
            if port in _had:
                self._held.close()
                continue
            try:
                self._held.bind((host, port))
                self.port = free_port(host, port)
                _had[port] = None
                if len(_had) > LEFT_OUT_MAX:
                    del _had[next(iter(_had))]
                return
            except (OSError, PortInUse) as error:
                self._held.close()
                why = error
        raise cannot_listen(host, 0, why)

    def __del__(self) -> None:
        self._held.close()


def free_port(host: str, port: int = 0) -> int:
    """`port` if nobody listens there; any free one for 0.

    >>> free_port("127.0.0.1") > 0
    True
    """
    if port == 0:
        return Claim(host).port
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise cannot_listen(host, port, getattr(error, "strerror", None) or error) from error
    return port


def _any_port(host: str) -> int:
    """One that the kernel does not give away; if all are the kernel's, one of those."""
    last = min(PORT_MAX, _kernels_first() - 1)
    if last > PORT_MIN:
        return random.SystemRandom().randint(PORT_MIN, last)
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _kernels_first() -> int:
    try:
        return int(_KERNELS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return PORT_MAX + 1  # Not Linux; others begin at 49152.


def refuses(address: str, timeout_s: float = 0.5) -> bool:
    """Whether nobody listens at `address`: proof that the process of that door is gone.

    A process that is paused, cut off or busy does not refuse: the kernel answers for it, or nobody.

    >>> refuses(f"grpc://127.0.0.1:{free_port('127.0.0.1')}")
    True
    """
    host, _, port = address.removeprefix("grpc://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout_s):
            return False
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):
        return False


def cannot_listen(host: str, port: int, why: object) -> PortInUse:
    """What to say to a user whose door cannot be opened."""
    return PortInUse(
        f"cannot listen at {host}:{port}: {why}",
        hint="end the process that listens there, or choose another port with --port",
    )
