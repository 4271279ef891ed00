"""A process tree: found, paused and ended as one (scenario 27).

    Python of a node ── JVM ── Spark's Python workers (in process groups of their own)

* Every process of a tree carries the same mark in its environment, so that an orphan (its Python
  was killed, the JVM lives on) is found although nobody is its parent any more.
* A tree holds the reading end of a pipe from the process that started it.  When that process goes
  away, in whatever way, the pipe closes and the tree ends itself.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil

from unbroken.errors import BY_NAME, UnbrokenError
from unbroken.streams import disk

MARK = "UNBROKEN_TREE"
KILL_S_MAX = 10.0
#: A process that dies more often than this within `RESTARTS_S` is not started again: something is
#: wrong that a start won't mend.
RESTARTS_MAX = 5
RESTARTS_S = 300.0
#: The exit code of a process that gave up and has noted why.
GAVE_UP = 3
_Made = TypeVar("_Made")


class Tree:
    """A process and all that it started."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        *,
        share: int | None = None,
        inside: Sequence[str] = (),
    ) -> None:
        """`inside` goes before the command, and must become it: `ip netns exec NAME` does."""
        self.mark = uuid.uuid4().hex
        environment = {**os.environ, MARK: self.mark, "PYTHONUNBUFFERED": "1"}
        # A child finds what its parent can import.
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [*inside, sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE, stdout=output, stderr=output,
                start_new_session=True, env=environment, pass_fds=() if share is None else (share,),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The process id of the tree's root."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the root still runs (paused counts as running)."""
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        """Sends a signal to every process of the tree."""
        told: set[int] = set()
        # Again until nobody is new: one may have started another while the first were told.
        while new := [process for process in members(self.mark) if process.pid not in told]:
            for process in new:
                told.add(process.pid)
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def kill(self) -> None:
        """Ends every process of the tree, at once and for sure."""
        kill_marked(self.mark)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_S_MAX)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def members(mark: str) -> list[psutil.Process]:
    """All processes that carry `mark`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kill_marked(mark: str, *, spare: int | None = None) -> None:
    """Kills the marked processes until none is left (one may start another meanwhile)."""
    deadline = time.monotonic() + KILL_S_MAX
    while time.monotonic() < deadline:
        left = [process for process in members(mark) if process.pid != spare]
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(left, timeout=1.0)


def leave_with_parent() -> None:
    """Ends this process tree when the process that started it goes away.

    What it says goes into its log, each line with the time; `kill -USR1` writes there what every
    thread is doing.
    """
    faulthandler.register(signal.SIGUSR1)
    for stream in (sys.stdout, sys.stderr):
        stream.write = _Stamped(stream.write)  # type: ignore[method-assign]

    def wait() -> None:
        # Not sys.stdin: a thread that waits in there aborts the interpreter when it wants to exit.
        while os.read(0, 4096):
            pass  # Nothing is left to read once the parent's end of the pipe is closed, however.
        mark = os.environ.get(MARK)
        if mark:
            kill_marked(mark, spare=os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def leave_with_threads(*names: str) -> None:
    """Ends this process when a thread whose name begins so ends by a mistake of ours.

    A node that does not beat, or does not read an input any more, would stand still for ever; one
    that has ended is started again, and meanwhile others take over.
    """

    def hook(ended: Any) -> None:
        threading.__excepthook__(ended)
        if ended.thread is not None and ended.thread.name.startswith(names):
            _leave()

    threading.excepthook = hook


def or_leave(live: Callable[[], object]) -> None:
    """Does what a process does as long as it lives; a mistake ends it, and it is started again."""
    try:
        live()
    except Exception:
        traceback.print_exc()
        _leave()


def _leave() -> None:
    sys.stderr.flush()
    # Not sys.exit: threads that wait for others would hold it up.
    os._exit(1)


class _Stamped:
    """Writes the time in front of every line.

    >>> stamped = _Stamped(lambda text: print(text, end=""))
    >>> _ = stamped("alerts: node-2 takes over\\n")         # doctest: +ELLIPSIS
    2... alerts: node-2 takes over
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._at_start = True

    def __call__(self, text: str) -> int:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        for line in text.splitlines(keepends=True):
            self._write(f"{now} {line}" if self._at_start else line)
            self._at_start = line.endswith("\n")
        return len(text)


class Restarts:
    """How often a process that ends by itself is started again.

    >>> restarts = Restarts()
    >>> [restarts.allowed("node-1", now_s=float(s)) for s in (0, 1, 2, 3, 4, 5, 400)]
    [True, True, True, True, True, False, True]
    """

    def __init__(self) -> None:
        self._of: dict[str, list[float]] = {}

    def allowed(self, name: str, *, now_s: float) -> bool:
        """Whether `name`, which has just ended, may be started again."""
        recent = [t for t in self._of.get(name, []) if t > now_s - RESTARTS_S]
        self._of[name] = [*recent, now_s]
        return len(recent) < RESTARTS_MAX


def or_noted(
    folder: Path, name: str, make: Callable[[], _Made], *, passing: Callable[[], bool] | None = None
) -> _Made:
    """What `make` makes; why it cannot is noted in the cluster's folder, and ends this process.

    Whoever started us reads the note and does not start us again: it would end in the same way.
    Nothing is noted if an error that is not ours has a cause that `passing` says is gone with us.
    """
    note = folder / f"{name}.error"
    note.unlink(missing_ok=True)
    try:
        return make()
    except Exception as error:
        if not isinstance(error, UnbrokenError):
            traceback.print_exc()
            if passing is not None and passing():
                sys.exit(1)
            error = UnbrokenError(f"{name} failed: {type(error).__name__} {error}")
        print(error, file=sys.stderr, flush=True)
        with contextlib.suppress(UnbrokenError):
            # Whole or not at all: whoever reads an empty note would neither start us nor tell why.
            disk.write_whole(note, [f"{type(error).__name__}\n{error.what}\n{error.hint}".encode()])
        sys.exit(GAVE_UP)


def raise_noted(folder: Path, name: str) -> None:
    """Raises what a process noted before it gave up, if it did."""
    note = folder / f"{name}.error"
    if note.exists():
        kind, what, hint = (*note.read_text().split("\n", 2), "", "")[:3]
        raise BY_NAME.get(kind, UnbrokenError)(what, hint=hint)


def lock_folder(folder: Path, who: str, *, wait_s: float) -> int:
    """Locks `folder` for one process tree; tells the handle, which its children must share.

    They keep the lock while they live: it is free only when all of them are gone, also after
    their parent was killed.
    """
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(handle)
                raise UnbrokenError(
                    f"{who} runs in {folder}", hint="end it, or choose another folder"
                ) from None
            time.sleep(0.1)
