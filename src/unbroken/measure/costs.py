"""What a running system costs: the CPU of its processes, the bytes that it keeps on disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

#: What Spark writes for itself, and would write without any protection.
_NOT_KEPT = {"scratch"}


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds of processes and all their descendants, the finished ones included.

    >>> cpu_s([os.getpid()]) > 0
    True
    """
    total = 0.0
    for pid in pids:
        try:
            root = psutil.Process(pid)
            family = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        for process in family:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
    return total


def kept_bytes(folder: Path) -> int:
    """Bytes of all files below `folder`; each once, however many links it has.

    A fork shares the layers of the checkpoint that it was made from, and costs nothing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     _ = Path(name, "a").write_bytes(b"12345"); os.link(Path(name, "a"), Path(name, "b"))
    ...     kept_bytes(Path(name))
    5
    """
    sizes: dict[tuple[int, int], int] = {}
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_KEPT]
        for name in names:
            if name.endswith(".log"):
                continue
            try:
                found = os.stat(os.path.join(where, name))
            except FileNotFoundError:
                continue  # Trimmed meanwhile.
            sizes[found.st_dev, found.st_ino] = found.st_size
    return sum(sizes.values())
