"""Network namespaces that are joined by a router, and a router that loses packets when it is told.

    ub-7-node-1  10.213.1.2 ─┐
    ub-7-node-2  10.213.2.2 ─┼─ ub-7-router      rule: from 10.213.2.2 to 10.213.3.2 blackhole
    ub-7-node-3  10.213.3.2 ─┘

* What the router drops is lost without a word, as in a real partition: nobody refuses, nobody
  closes, and TCP waits longer and longer before it sends again.
* Nothing outside of these namespaces is touched, and nothing outside can be reached from them.
* `python namespaces.py` is a process to be run inside: a door, or somebody who calls one; a stream,
  or somebody who follows it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbroken.epochs import Epoch
from unbroken.errors import UnbrokenError
from unbroken.streams.flight import Door, Peer
from unbroken.streams.follow import Follower
from unbroken.streams.log import EpochLog
from unbroken.streams.ports import refuses
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served

IP_S_MAX = 20.0


def ip(*words: str) -> None:
    """Runs `ip`; says what it said if it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=IP_S_MAX)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def why_not() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if os.geteuid():
        return "only root may make network namespaces"
    if shutil.which("ip") is None:
        return "there is no ip command (iproute2)"
    try:
        with Network(["a", "b"]) as network:
            network.cut("a", "b")
            network.heal()
    except (OSError, subprocess.SubprocessError) as error:
        return f"this kernel has no namespaces with routers: {error}"
    return ""


class Network:
    """A namespace with an address for each of `names`."""

    def __init__(self, names: Sequence[str], prefix: str = "") -> None:
        """`prefix` is that of namespaces which somebody else has made."""
        self.prefix = prefix or f"ub-{os.getpid()}"
        self.addresses = {name: f"10.213.{i + 1}.2" for i, name in enumerate(names)}
        self._made: list[str] = []
        self._cut: list[tuple[str, str]] = []

    def namespace(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def inside(self, name: str) -> list[str]:
        """What goes before a command that shall run inside; it keeps its process id."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def __enter__(self) -> Network:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _make(self) -> None:
        router = self.namespace("router")
        for name in (router, *map(self.namespace, self.addresses)):
            ip("netns", "add", name)
            self._made.append(name)
            ip("-n", name, "link", "set", "lo", "up")
        for name, address in self.addresses.items():
            here, gate = self.namespace(name), address.removesuffix(".2") + ".1"
            port = f"to{gate.split('.')[2]}"
            ip("-n", router, "link", "add", port, "type", "veth", "peer", "net0", "netns", here)
            ip("-n", router, "address", "add", f"{gate}/24", "dev", port)
            ip("-n", router, "link", "set", port, "up")
            ip("-n", here, "address", "add", f"{address}/24", "dev", "net0")
            ip("-n", here, "link", "set", "net0", "up")
            ip("-n", here, "route", "add", "default", "via", gate)
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        ip("netns", "exec", router, "sh", "-c", forward)

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """What `a` sends to `b` is dropped, and the other way round too unless `one_way`."""
        for pair in ((a, b),) if one_way else ((a, b), (b, a)):
            self._rule("add", *pair)
            self._cut.append(pair)

    def heal(self) -> None:
        while self._cut:
            self._rule("del", *self._cut.pop())

    def _rule(self, do: str, a: str, b: str) -> None:
        ends = "from", self.addresses[a], "to", self.addresses[b]
        ip("-n", self.namespace("router"), "rule", do, *ends, "blackhole")

    def close(self) -> None:
        """Takes everything away; whoever still runs inside goes on without a network."""
        for name in reversed(self._made):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                ip("netns", "del", name)
        self._made.clear()


class Inside:
    """This file as a process inside a namespace: a question per line in, an answer per line out."""

    def __init__(self, network: Network, name: str, *words: str) -> None:
        command = [*network.inside(name), sys.executable, __file__, *words]
        path = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=path
        )

    def hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, *words: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self.hear()

    def __enter__(self) -> Inside:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=IP_S_MAX)


def serve(host: str) -> None:
    """A door that greets; tells its address, and ends with its parent."""
    asked: list[object] = []

    def greet(command: object) -> int:
        asked.append(command)
        return len(asked)

    with Door(host) as door:
        door.on_act("greet", greet)
        print(json.dumps(door.address), flush=True)
        for _ in sys.stdin:
            print(len(asked), flush=True)


def call(address: str) -> None:
    """Calls a door whenever it is told to: with a connection it has, or with a new one."""
    old = Peer(address)
    for line in sys.stdin:
        what, timeout_s = json.loads(line)
        began_s, answer = time.monotonic(), None
        if what == "refuses":
            answer = refuses(address, timeout_s)
        else:
            with contextlib.suppress(UnbrokenError):
                peer = old if what == "old" else Peer(address)
                answer = peer.act({"do": "greet"}, timeout_s=timeout_s)
        print(json.dumps([answer, time.monotonic() - began_s]), flush=True)


def publish(host: str) -> None:
    """A stream with ten epochs a second; tells its address, and ends with its parent."""
    with Door(host) as door, tempfile.TemporaryDirectory() as folder:
        log = EpochLog(Path(folder), "ticks")
        StreamDoor(door).streams["ticks"] = Served(log, [], keep=0)
        print(json.dumps(door.address), flush=True)
        ended = threading.Thread(target=sys.stdin.read, daemon=True)
        ended.start()
        while ended.is_alive():
            log.append(Epoch.of("ticks", log.next, pa.table({"n": [log.next]})))
            ended.join(0.1)


def follow(address: str) -> None:
    """Two who follow it, one of them with a bound; told how long each heard nothing at most."""
    silence_s = {"bound": 0.0, "none": 0.0}

    def hear(who: str, wait_s: float | None) -> None:
        follower, before_s = Follower("ticks", 0, lambda: {"r": address}, wait_s=wait_s), None
        while True:
            if follower.take(timeout_s=1.0) is not None:
                now_s = time.monotonic()
                silence_s[who] = max(silence_s[who], now_s - (before_s or now_s))
                before_s = now_s

    for who, wait_s in (("bound", 0.3), ("none", None)):
        threading.Thread(target=hear, args=(who, wait_s), daemon=True).start()
    for _ in sys.stdin:
        print(json.dumps(silence_s), flush=True)
        silence_s.update(bound=0.0, none=0.0)


if __name__ == "__main__":
    {"serve": serve, "call": call, "publish": publish, "follow": follow}[sys.argv[1]](sys.argv[2])
