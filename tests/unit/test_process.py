"""Process trees: found, paused and ended as one, also those who went their own way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from unbroken.errors import UnbrokenError
from unbroken.local import LocalCluster
from unbroken.node import process
from unbroken.node.process import MARK, Tree, members
from unbroken.query import Query

#: A root that leaves with its parent, a child, and a grandchild in a session of its own that is
#: nobody's child any more.  Each writes its number into a file when it runs.
FAMILY = """
import os, subprocess, sys, time

def born(role):
    with open(role + ".tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename(role + ".tmp", role)

role = sys.argv[1] if len(sys.argv) > 1 else "root"
if role == "root":
    from unbroken.node.process import leave_with_parent
    leave_with_parent()
    subprocess.Popen([sys.executable, "-m", "family", "child"])
elif role == "child":
    subprocess.Popen([sys.executable, "-m", "family", "grandchild"], start_new_session=True)
born(role)
if role == "root" and os.path.exists("leave-early"):
    sys.exit(3)
while True:
    time.sleep(60)
"""
ROLES = ("root", "child", "grandchild")


def until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s, f"waited 30 s in vain: {what}"
        time.sleep(0.01)


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    (tmp_path / "family.py").write_text(FAMILY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    tree = Tree("family", [], tmp_path / "log")
    yield tree
    tree.kill()


def pids(folder: Path) -> list[int]:
    until(lambda: all((folder / role).exists() for role in ROLES), "a family of three")
    return [int((folder / role).read_text()) for role in ROLES]


def test_a_kill_ends_every_member_also_one_in_a_session_of_its_own(family: Tree, tmp_path: Path):
    """Scenario 27: an orphan writes.  Nobody may be left."""
    everybody = pids(tmp_path)
    assert family.alive
    assert family.pid == everybody[0]
    family.kill()
    assert not family.alive
    assert not [pid for pid in everybody if running(pid)]


def test_what_goes_before_a_command_becomes_it(family: Tree, tmp_path: Path):
    """So `ip netns exec` keeps the process id by which a node is known."""
    pids(tmp_path)
    (tmp_path / "root").unlink()
    tree = Tree("family", [], tmp_path / "log", inside=["env", "WHERE=inside"])
    try:
        assert pids(tmp_path)[0] == tree.pid
        assert psutil.Process(tree.pid).environ()["WHERE"] == "inside"
    finally:
        tree.kill()


def test_a_node_listens_where_its_cluster_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not at loopback: then nobody who joins from elsewhere could read its streams."""
    told: dict[str, list[str]] = {}

    def tree(module: str, arguments: list[str], log: Path, **more: object) -> None:
        told[module] = arguments

    monkeypatch.setattr("unbroken.local.Tree", tree)
    query = Query("shop")
    query.sink(query.source("clicks", "page STRING"))
    LocalCluster(query, folder=tmp_path, host="127.0.0.2")._spawn("node-1")
    assert told["unbroken.node.loop"][-2:] == ["--host", "127.0.0.2"]


def test_an_orphan_is_found_when_its_root_is_gone(family: Tree, tmp_path: Path):
    """Kill -9 of the Python alone: its JVM lives on, and is ended with the tree."""
    everybody = pids(tmp_path)
    os.kill(family.pid, signal.SIGKILL)
    until(lambda: not family.alive, "the root is dead")
    assert {process.pid for process in members(family.mark)} == set(everybody[1:])
    family.kill()
    assert not [pid for pid in everybody if running(pid)]


def test_pause_and_resume_act_on_every_member(family: Tree, tmp_path: Path):
    """A paused node answers nothing at all, and goes on as if nothing had been."""

    def states() -> set[str]:
        return {psutil.Process(pid).status() for pid in everybody}

    everybody = pids(tmp_path)
    family.signal(signal.SIGSTOP)
    until(lambda: states() == {psutil.STATUS_STOPPED}, "all are stopped")
    assert family.alive, "paused counts as running"
    family.signal(signal.SIGCONT)
    until(lambda: psutil.STATUS_STOPPED not in states(), "all go on")


def test_a_paused_tree_can_be_killed(family: Tree, tmp_path: Path):
    """Cleaning up must not hang on a process that cannot answer."""
    everybody = pids(tmp_path)
    family.signal(signal.SIGSTOP)
    family.kill()
    assert not [pid for pid in everybody if running(pid)]


def test_a_tree_ends_when_the_process_that_started_it_is_killed(tmp_path: Path):
    """The pipe closes, in whatever way the starter went, and everybody leaves."""
    (tmp_path / "family.py").write_text(FAMILY)
    starter = (
        "import time; from pathlib import Path; from unbroken.node.process import Tree\n"
        "tree = Tree('family', [], Path('log'))\n"
        "Path('mark').write_text(tree.mark)\n"
        "time.sleep(600)"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", starter], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}
    )
    try:
        everybody = pids(tmp_path)
        assert all(running(pid) for pid in everybody)
    finally:
        parent.kill()
        parent.wait(30)
    until(lambda: not [pid for pid in everybody if running(pid)], "the tree left with its starter")


def test_a_member_that_gives_up_leaves_with_its_own_answer(tmp_path: Path, monkeypatch):
    """Watching the parent must not turn an exit into a crash: the code says why it left."""
    (tmp_path / "leave-early").touch()
    (tmp_path / "family.py").write_text(FAMILY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    tree = Tree("family", [], tmp_path / "log")
    try:
        until(lambda: not tree.alive, "the root gave up")
        assert tree._process.returncode == 3
        assert "Fatal" not in (tmp_path / "log").read_text()
    finally:
        pids(tmp_path)
        tree.kill()


def test_trees_do_not_touch_each_other(family: Tree, tmp_path: Path):
    """Two nodes on one machine: the end of one is none of the other's business."""
    pids(tmp_path)
    other = Tree("family", [], tmp_path / "log")
    try:
        assert other.mark != family.mark
        family.kill()
        assert other.alive
        assert all(process.environ()[MARK] == other.mark for process in members(other.mark))
    finally:
        other.kill()


def fail() -> None:
    raise RuntimeError("the gateway is closed")


def test_what_ends_a_process_is_noted_whole_unless_it_is_gone_with_it(tmp_path: Path, capsys):
    """A node whose JVM was killed hears of it in the middle of anything, as an error of py4j: it is
    not the node that is wrong, and it must be started again."""
    with pytest.raises(SystemExit):
        process.or_noted(tmp_path, "node-1", fail, passing=lambda: True)
    process.raise_noted(tmp_path, "node-1")
    with pytest.raises(SystemExit):
        process.or_noted(tmp_path, "node-1", fail, passing=lambda: False)
    with pytest.raises(UnbrokenError, match="node-1 failed: RuntimeError the gateway is closed"):
        process.raise_noted(tmp_path, "node-1")
    assert [path.name for path in tmp_path.iterdir()] == ["node-1.error"]


@pytest.mark.parametrize(
    ("life", "code"),
    [
        ("thread('beat', fail); time.sleep(60)", 1),
        ("thread('warm-up', fail).join(); os._exit(7)", 7),
        ("process.or_leave(fail)", 1),
    ],
    ids=["a vital thread", "another thread", "its own loop"],
)
def test_a_mistake_in_what_is_vital_ends_the_process_and_is_told(life: str, code: int):
    """Half a node stands still and is taken for a whole one; a dead one is started again.
    Other threads of it may wait for somebody: they do not hold it up."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{_MISTAKEN}\n{life}"], capture_output=True, timeout=50
    )
    assert ended.returncode == code
    assert b"RuntimeError: a mistake" in ended.stderr


_MISTAKEN = """
import os, threading, time
from unbroken.node import process

def fail():
    raise RuntimeError("a mistake")

def thread(name, target):
    made = threading.Thread(target=target, name=name)
    made.start()
    return made

process.leave_with_threads("beat", "fill-")
thread("waits", lambda: time.sleep(60))
"""
