"""A cluster of real processes on this machine.

    this process ── keeper (sources, clock, book)
                 ├─ node-1 (Python, JVM, Python workers)
                 └─ node-2 …

* Every process ends with the `with` block, also after an exception or Ctrl-C, and when this process
  is killed: each tree watches a pipe that only this process holds.
* A process that dies by itself is started again and goes on from its last committed epoch; one that
  was ended with `kill` stays down until `restart`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from unbroken.client.cluster import Cluster
from unbroken.errors import BY_NAME, DefinitionError, UnbrokenError, Unreachable
from unbroken.node import setup
from unbroken.node.process import Tree
from unbroken.query import Query
from unbroken.streams.flight import free_port

READY_S_MAX = 300.0
WATCH_S = 0.2
#: A process that dies more often than this within `RESTARTS_S` is not started again: something is
#: wrong that a start won't mend.
RESTARTS_MAX = 5
RESTARTS_S = 300.0
#: How long to wait for the processes of an earlier cluster in the same folder to end.
LOCK_S_MAX = 15.0
KEEPER = "keeper"


class LocalCluster(Cluster):
    """Runs `query` on `nodes` Spark nodes on this machine.

    `folder` keeps everything (logs, checkpoints): a later cluster in the same folder goes on where
    this one stopped.  Without it a temporary folder is used and removed at the end.
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
    ) -> None:
        query.check()
        if nodes < 1:
            raise DefinitionError(f"a cluster of {nodes} nodes", hint="at least one node")
        self._host, self._port = host, free_port(host, port)
        self._temporary = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="unbroken-")).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.nodes = [f"node-{i + 1}" for i in range(nodes)]
        fragments = [s.name for s in query.check() if s.name in query.fragments]
        self._setup = setup.Setup(
            query=query.name,
            placement={name: self.nodes[i % nodes] for i, name in enumerate(fragments)},
            entry=f"grpc://{host}:{self._port}",
            manual=query.epoch_s is None if manual is None else manual,
            master=master,
            memory=memory,
            settings=dict(settings or {}),
            log_bytes_max=log_bytes_max,
            hold_clock=True,
        )
        self._query = query
        self._trees: dict[str, Tree] = {}
        self._down: set[str] = set()
        self._restarts: dict[str, list[float]] = {}
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
        self._lock_folder()
        setup.save(self.folder, self._query, self._setup)
        with self._lock:
            for name in (KEEPER, *self.nodes):
                self._spawn(name)
        threading.Thread(target=self._watch, daemon=True, name="watch").start()

    def _lock_folder(self) -> None:
        """One cluster per folder.  The processes of a cluster share its lock, so it is free only
        when all of them are gone, also after their parent was killed."""
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._lock_file = handle
        deadline = time.monotonic() + LOCK_S_MAX
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UnbrokenError(
                        f"another cluster runs in {self.folder}",
                        hint="end it, or choose another folder",
                    ) from None
                time.sleep(WATCH_S / 2)

    def _spawn(self, name: str) -> None:
        arguments = ["--folder", str(self.folder)]
        if name == KEEPER:
            module = "unbroken.node.keeper"
            arguments += ["--host", self._host, "--port", str(self._port)]
        else:
            module = self._node_module
            arguments += ["--name", name]
        log = self.folder / f"{name}.log"
        self._trees[name] = Tree(module, arguments, log, share=self._lock_file)

    def wait_ready(self, timeout_s: float = READY_S_MAX) -> None:
        """Waits until every node runs its fragments, or says why one does not."""
        deadline = time.monotonic() + timeout_s
        while not self._closed.is_set():
            self.raise_start_error()
            with contextlib.suppress(Unreachable):
                told = self.status()["nodes"]
                up = [n for n in self.nodes if n not in self._down]
                if all(n in told and told[n]["state"] == "running" for n in up) and all(
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
        for name in (KEEPER, *self.nodes):
            note = self.folder / f"{name}.error"
            if note.exists() and not self._trees[name].alive:
                kind, what, hint = (*note.read_text().split("\n", 2), "", "")[:3]
                raise BY_NAME.get(kind, UnbrokenError)(what, hint=hint)

    def _watch(self) -> None:
        """Starts again what died by itself."""
        while not self._closed.wait(WATCH_S):
            with self._lock:
                for name, tree in list(self._trees.items()):
                    gave_up = (self.folder / f"{name}.error").exists()
                    if tree.alive or name in self._down or gave_up or self._closed.is_set():
                        continue
                    tree.kill()  # Its JVM may have outlived it.
                    now_s = time.monotonic()
                    recent = [t for t in self._restarts.get(name, []) if t > now_s - RESTARTS_S]
                    self._restarts[name] = [*recent, now_s]
                    if len(recent) >= RESTARTS_MAX:
                        self._down.add(name)
                    else:
                        self._spawn(name)

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
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
