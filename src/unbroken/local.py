"""A cluster of real processes on this machine.

    this process ── keeper (sources, clock, book)
                 ├─ control (who runs what; notices and repairs)
                 ├─ node-1 (Python, JVM, Python workers)
                 └─ node-2 …

* Every process ends with the `with` block, also after an exception or Ctrl-C, and when this process
  is killed: each tree watches a pipe that only this process holds.
* A process that dies by itself is started again and goes on from its last committed epoch; one that
  was ended with `kill` stays down until `restart`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from unbroken.client.cluster import Cluster
from unbroken.control.detector import TIMINGS
from unbroken.control.placement import place
from unbroken.errors import DefinitionError, UnbrokenError, Unreachable
from unbroken.node import setup
from unbroken.node.process import Restarts, Tree, lock_folder, raise_noted
from unbroken.query import Query
from unbroken.streams.cables import KEEPER as KEEPER
from unbroken.streams.cables import Cables
from unbroken.streams.ports import free_port

READY_S_MAX = 300.0
WATCH_S = 0.2
#: How long to wait for the processes of an earlier cluster in the same folder to end.
LOCK_S_MAX = 15.0
CONTROL = "control"


class LocalCluster(Cluster):
    """Runs `query` on `nodes` Spark nodes on this machine.

    `folder` keeps everything (logs, checkpoints): a later cluster in the same folder goes on where
    this one stopped.  Without it a temporary folder is used and removed at the end.

    With fewer nodes than a policy asks for, the cluster starts with what can be placed and `status`
    says what it waits for; `strict=True` refuses instead.

    `timing` says how long a silent node is waited for: `local`, `lan` or `wan`.  One that refuses
    connections is known to be dead at once.

    With `cables=True` streams go from process to process through cables that `cut` and `slow` act
    on, until `heal`.
    """

    #: What runs as a node; a test puts a node there that dies when it is told to.
    _node_module = "unbroken.node.loop"

    def __init__(
        self,
        query: Query,
        nodes: int = 1,
        *,
        folder: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        manual: bool | None = None,
        master: str = "local[2]",
        memory: str = "1g",
        settings: Mapping[str, str] | None = None,
        log_bytes_max: int = 1 << 30,
        timing: str = "local",
        strict: bool = False,
        cables: bool = False,
    ) -> None:
        query.check()
        if nodes < 1:
            raise DefinitionError(f"a cluster of {nodes} nodes", hint="at least one node")
        if timing not in TIMINGS:
            raise DefinitionError(f"no timing {timing!r}", hint=f"one of: {', '.join(TIMINGS)}")
        self.nodes = [f"node-{i + 1}" for i in range(nodes)]
        fragments = [s.name for s in query.check() if s.name in query.fragments]
        placement = place({f: query.fragments[f].policy.copies for f in fragments}, self.nodes)
        #: What the policies ask for and the nodes cannot give, in sentences.
        self.warnings = placement.sentences
        if strict and self.warnings:
            raise DefinitionError("; ".join(self.warnings), hint="or start without strict")
        self._host, self._port = host, free_port(host, port)
        control_port = free_port(host)
        while control_port == self._port:
            control_port = free_port(host)
        self._temporary = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="unbroken-")).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._cables = Cables(host, self.nodes, self._door_of) if cables else None
        self._setup = setup.Setup(
            query=query.name,
            placement={name: list(held) for name, held in placement.nodes.items()},
            entry=f"grpc://{host}:{self._port}",
            control=f"grpc://{host}:{control_port}",
            manual=query.epoch_s is None if manual is None else manual,
            master=master,
            memory=memory,
            settings=dict(settings or {}),
            log_bytes_max=log_bytes_max,
            timing=timing,
            hold_clock=True,
            cables=self._cables.doors if self._cables else {},
            cables_held_at=self._cables.address if self._cables else "",
        )
        self._query = query
        self._trees: dict[str, Tree] = {}
        self._down: set[str] = set()
        self._restarts = Restarts()
        self._lock = threading.RLock()
        self._lock_file: int | None = None
        self._closed = threading.Event()
        super().__init__(self._setup.entry)

    def __enter__(self) -> LocalCluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts all processes and waits until the fragments wait for epochs."""
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        """Starts all processes without waiting."""
        self._lock_file = lock_folder(self.folder, "another cluster", wait_s=LOCK_S_MAX)
        setup.save(self.folder, self._query, self._setup)
        with self._lock:
            for name in (KEEPER, CONTROL, *self.nodes):
                self._spawn(name)
        threading.Thread(target=self._watch, daemon=True, name="watch").start()

    def _spawn(self, name: str) -> None:
        arguments = ["--folder", str(self.folder)]
        if name == KEEPER:
            module = "unbroken.node.keeper"
            arguments += ["--host", self._host, "--port", str(self._port)]
        elif name == CONTROL:
            module = "unbroken.node.control"
        else:
            module = self._node_module
            arguments += ["--name", name, "--host", self._host_of(name)]
        log = self.folder / f"{name}.log"
        self._trees[name] = Tree(
            module, arguments, log, share=self._lock_file, inside=self._inside(name)
        )

    def _host_of(self, name: str) -> str:
        """The address at which a node listens."""
        return self._host

    def _inside(self, name: str) -> Sequence[str]:
        """What goes before a node's command; a test puts each into a network of its own."""
        return ()

    def wait_ready(self, timeout_s: float = READY_S_MAX) -> None:
        """Waits until every node runs its fragments, or says why one does not."""
        deadline = time.monotonic() + timeout_s
        while not self._closed.is_set():
            self.raise_start_error()
            with contextlib.suppress(Unreachable):
                told = self.status()["nodes"]
                up = [n for n in self.nodes if n not in self._down]
                if all(n in told and told[n]["state"] == setup.RUNNING for n in up) and all(
                    told[n]["pid"] == self._trees[n].pid for n in up
                ):
                    self._entry.act({"do": "begin"})
                    return
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"the cluster was not ready within {timeout_s:.0f} s",
                    hint=f"the logs of its processes are in {self.folder}",
                )
            time.sleep(WATCH_S / 2)

    def raise_start_error(self) -> None:
        """Raises what a process wrote down before it gave up."""
        for name in (KEEPER, CONTROL, *self.nodes):
            if not self._trees[name].alive:
                raise_noted(self.folder, name)

    def _watch(self) -> None:
        """Starts again what died by itself."""
        while not self._closed.wait(WATCH_S):
            with self._lock:
                for name, tree in list(self._trees.items()):
                    gave_up = (self.folder / f"{name}.error").exists()
                    if tree.alive or name in self._down or gave_up or self._closed.is_set():
                        continue
                    tree.kill()  # Its JVM may have outlived it.
                    if self._restarts.allowed(name, now_s=time.monotonic()):
                        self._spawn(name)
                    else:
                        self._down.add(name)

    def _tree(self, name: str) -> Tree:
        if name not in self._trees:
            known = ", ".join(self._trees)
            raise UnbrokenError(f"no process {name!r} in this cluster", hint=f"there are: {known}")
        return self._trees[name]

    def kill(self, name: str) -> None:
        """Ends a node (or the "keeper") as kill -9 does, its JVM and workers included."""
        with self._lock:
            tree = self._tree(name)
            self._down.add(name)
            tree.kill()

    def restart(self, name: str, *, wait: bool = True) -> None:
        """Starts a killed process again; it goes on from its last committed epoch."""
        with self._lock:
            tree = self._tree(name)
            tree.kill()
            self._down.discard(name)
            self._spawn(name)
        if wait:
            self.wait_ready()

    def pause(self, name: str) -> None:
        """Stops every process of a node in its tracks (SIGSTOP)."""
        self._tree(name).signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Lets a paused node go on (SIGCONT)."""
        self._tree(name).signal(signal.SIGCONT)

    def _door_of(self, name: str) -> str | None:
        if name == KEEPER:
            return self.address
        address: str | None = self.status()["nodes"].get(name, {}).get("address")
        return address

    def _held_cables(self) -> Cables:
        if self._cables is None:
            raise UnbrokenError(
                "this cluster has no cables to pull",
                hint="start it with LocalCluster(..., cables=True), or unbroken run --cables",
            )
        return self._cables

    def cut(self, a: str, b: str, *, one_way: bool = False) -> list[str]:
        """Pulls the cable between two nodes, or a node and the "keeper", until `heal`.

        Streams and acks do not get through; connections stay open, as in a network partition.
        With `one_way` only what `a` sends to `b` is lost.  What nodes tell the entry and control is
        not cut: they have not failed.
        """
        return self._held_cables().cut(a, b, one_way=one_way)

    def slow(self, a: str, b: str, seconds: float) -> list[str]:
        """Makes everything between two processes so much later, until `heal`."""
        return self._held_cables().slow(a, b, seconds)

    def heal(self) -> list[str]:
        """Puts all cables back; tells which were pulled."""
        return self._held_cables().heal()

    def pid(self, name: str) -> int:
        """The process id of a node's Python, or of the "keeper"."""
        return self._tree(name).pid

    def close(self) -> None:
        """Ends every process; removes the folder if it was a temporary one."""
        self._closed.set()
        with self._lock:
            for tree in self._trees.values():
                tree.kill()
            if self._lock_file is not None:
                os.close(self._lock_file)
                self._lock_file = None
        if self._cables is not None:
            self._cables.close()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
