"""The control store: a change is there as a whole or not at all, and terms never repeat."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from unbroken.control.intentions import Intention, Placed, Standing, Step
from unbroken.control.records import Hole, Records
from unbroken.control.store import REMOVALS_MAX, Store
from unbroken.control.tables import SCHEMA_VERSION, changes_since
from unbroken.errors import DiskError, UnbrokenError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.db"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Store]:
    with contextlib.closing(Store(path)) as store:
        yield store


def expect(node: str, *, replaces: str = "") -> Intention:
    return Intention("a", Step.EXPECT, node, survivor="n1", replaces=replaces)


def test_everything_is_there_after_a_restart(path: Path):
    """What was answered is on disk."""
    with opened(path) as store:
        records: Records = store
        records.join("n1", "grpc://h:1")
        records.join("n1", "grpc://h:2")
        records.join("n2", "grpc://h:3")
        records.leave("n2")
        records.place("a", ["n1", "n2"])
        records.stand("a", "n1", Standing.LIVE)
        told = records.record(expect("n3", replaces="n2"))
        records.record_hole(Hole("a", 5, 9, "empty restart"), overtakes=[("a", "n1")])
    with opened(path) as store:
        assert store.members() == {"n1": "grpc://h:2"}
        assert store.placement() == {
            "a": [
                Placed("n1", 1, Standing.LIVE),
                Placed("n2", 2, Standing.GONE),
                Placed("n3", 3, Standing.COMING),
            ]
        }
        assert store.unfinished() == [told]
        assert store.holes("a") == [Hole("a", 5, 9, "empty restart")]
        assert store.holes("b") == []
        assert store.next_term("a") == 4


def test_a_repair_step_by_step(path: Path):
    """Each step replaces the one before; the last leaves the standing and no intention."""
    with opened(path) as store:
        store.place("a", ["n1", "n2"])
        told = store.record(expect("n3", replaces="n2"))
        for step in (Step.SHIP, Step.CATCH_UP):
            told = store.record(told.then(step))
            assert store.unfinished() == [told]
        store.record(told.then(Step.LIVE))
        assert store.unfinished() == []
        release = store.record(Intention("a", Step.RELEASE, "n2", reason="replaced"))
        assert [(p.node, str(p.standing)) for p in store.placement()["a"]] == [
            ("n1", "starting"), ("n2", "leaving"), ("n3", "live"),
        ]  # fmt: skip
        assert store.unfinished() == [release]
        store.record(release.then(Step.RELEASED))
        assert [p.node for p in store.placement()["a"]] == ["n1", "n3"]
        assert store.unfinished() == []
        assert [(r.node, r.reason) for r in store.removals()] == [("n2", "replaced")]


def test_done_again_it_takes_the_place_of_the_unfinished_one(path: Path):
    """Scenario 15: a new term, and one intention, not two."""
    with opened(path) as store:
        first = store.record(expect("n3"))
        other = store.record(Intention("b", Step.EXPECT, "n3", survivor="n1"))
        second = store.record(expect("n3"))
        assert second.term > first.term
        assert store.unfinished() == [second, other]
        release = store.record(Intention("a", Step.RELEASE, "n3", reason="died"))
        assert store.unfinished() == [release, other], "the release ends the repair"


def test_a_placement_that_exists_is_not_undone_by_a_restart(path: Path):
    """The query is started again with its first placement: what repairs made of it stays."""
    with opened(path) as store:
        store.place("a", ["n1", "n2"])
        release = store.record(Intention("a", Step.RELEASE, "n1"))
        store.record(release.then(Step.RELEASED))
        assert [p.node for p in store.place("a", ["n1", "n2"])] == ["n2"]


def test_terms_never_repeat_not_even_among_threads(path: Path):
    """Four threads, one fragment: all numbers, each once."""
    given: list[int] = []
    with opened(path) as store:

        def take() -> None:
            given.extend(store.next_term("a") for _ in range(10))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(given) == list(range(1, 41))
        assert store.next_term("b") == 1


WRITER = """
import sys
from pathlib import Path
from unbroken.control.intentions import Intention, Step
from unbroken.control.store import Hole, Store

store = Store(Path(sys.argv[1]))
while True:
    term = store.next_term("a")
    intention = store.record(Intention("a", Step.EXPECT, f"n{term}", survivor="n0"))
    store.record_hole(Hole("s", term, term), overtakes=[("s", "n1")])
    print(term, intention.term, flush=True)
"""


@pytest.mark.parametrize("after", [1, 4, 9])
def test_kill_9_loses_nothing_that_was_answered(path: Path, after: int):
    """A real process, killed while it writes: no term comes twice, every change is whole."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        answered = [list(map(int, writer.stdout.readline().split())) for _ in range(after)]
        os.kill(writer.pid, signal.SIGKILL)
        # What it could still write before the signal arrived.
        answered += [list(map(int, line.split())) for line in writer.stdout if line.endswith("\n")]
    with opened(path) as store:
        intended = answered[-1][1]
        assert store.next_term("a") > intended
        [unfinished] = store.unfinished()
        assert unfinished.term >= intended
        # An intention and its placement are one change.
        newest = store.placement()["a"][-1]
        assert (newest.node, newest.term) == (unfinished.node, unfinished.term)
        assert {hole.first for hole in store.holes("s")} >= {line[0] for line in answered}
        terms = [number for line in answered for number in line]
        assert terms == sorted(set(terms))


DIES_INSIDE = """
import os, signal, sys
from pathlib import Path
from unbroken.control import store as module

store = module.Store(Path(sys.argv[1]))
store.place("a", ["n1"])

def put_and_die(*arguments):
    put(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

put, module._put = module._put, put_and_die
store.record(module.Intention("a", module.Step.EXPECT, "n2", survivor="n1", replaces="n1"))
"""


def test_killed_inside_a_change_nothing_of_it_is_there(path: Path):
    """The term was given and the placement changed when the process died, before the commit."""
    done = subprocess.run([sys.executable, "-c", DIES_INSIDE, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    with opened(path) as store:
        assert store.placement() == {"a": [Placed("n1", 1, Standing.STARTING)]}
        assert store.unfinished() == []
        assert store.next_term("a") == 2


def test_a_hole_is_recorded_once(path: Path):
    """Scenario 13: whoever comes second is told what the first one recorded."""
    with opened(path) as store:
        first = store.record_hole(Hole("s", 51, 57, "one"), overtakes=[("s", "n1")])
        assert store.record_hole(Hole("s", 51, 60, "two"), overtakes=[("s", "n1")]) == first
        assert store.record_hole(Hole("s", 40, 51, "three"), overtakes=[("s", "n1")]) == first
        assert store.record_hole(Hole("s", 51, 55), overtakes=[], longer=True) == first
        later = store.record_hole(Hole("s", 58, 58, "four"), overtakes=[("s", "n1")])
        other = store.record_hole(Hole("t", 51, 57), overtakes=[("t", "n1")])
        assert store.holes("s") == [first, later]
        assert store.holes("t") == [other]


def test_a_hole_reaches_further_if_what_comes_behind_it_cannot_be_made_any_more(path: Path):
    with opened(path) as store:
        first = store.record_hole(Hole("s", 51, 57, "one"), overtakes=[])
        longer = store.record_hole(Hole("s", 51, 60), overtakes=[("s", "n1")], longer=True)
        assert longer == first._replace(last=60)
        assert (store.holes("s"), store.overtaken()) == ([longer], {("s", "n1")})


def test_a_newer_store_is_refused_and_left_alone(path: Path):
    """Nobody guesses what its records mean."""
    with opened(path) as store:
        store.next_term("a")
    with contextlib.closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(UnbrokenError, match="newer Unbroken") as told:
        Store(path)
    assert "run the newer one" in told.value.hint
    assert path.read_bytes() == before


def test_who_is_back_by_itself_needs_its_repair_no_more(path: Path):
    """It was to be rebuilt on its own node, that was broken off, and it came back nevertheless."""
    with opened(path) as store:
        store.place("a", ["n1"])
        store.record(Intention("a", Step.EXPECT, "n1", survivor="n1", replaces="n1"))
        other = store.record(Intention("b", Step.EXPECT, "n1", survivor="n2"))
        store.stand("a", "n1", Standing.LIVE)
        assert store.unfinished() == [other]
        assert str(store.placement()["a"][0].standing) == "live"


VERSION_1 = """
CREATE TABLE members (node TEXT PRIMARY KEY, address TEXT NOT NULL);
CREATE TABLE terms (fragment TEXT PRIMARY KEY, term INTEGER NOT NULL);
CREATE TABLE placement (
    position INTEGER PRIMARY KEY AUTOINCREMENT, fragment TEXT NOT NULL, node TEXT NOT NULL,
    term INTEGER NOT NULL, standing TEXT NOT NULL, UNIQUE (fragment, node));
CREATE TABLE intentions (
    fragment TEXT NOT NULL, term INTEGER NOT NULL, step TEXT NOT NULL, node TEXT NOT NULL,
    survivor TEXT NOT NULL, replaces TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (fragment, term));
CREATE TABLE removals (
    number INTEGER PRIMARY KEY AUTOINCREMENT, fragment TEXT NOT NULL, node TEXT NOT NULL,
    term INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE holes (
    stream TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (stream, first));
INSERT INTO terms VALUES ('a', 3);
INSERT INTO placement (fragment, node, term, standing) VALUES ('a', 'n1', 1, 'live');
INSERT INTO intentions VALUES ('a', 3, 'ship', 'n3', 'n1', 'n2', '');
PRAGMA user_version=1;
"""


def test_an_older_store_is_brought_up_to_date(path: Path):
    """What it knows stays, and what it lacked is there; the second time nothing is to be done."""
    with contextlib.closing(sqlite3.connect(path)) as older:
        older.executescript(VERSION_1)
    for writer in ("n1", "n2"):
        with opened(path) as store:
            assert store.placement() == {"a": [Placed("n1", 1, Standing.LIVE)]}
            assert [intention.node for intention in store.unfinished()] == ["n3"]
            store.record_writer("a", writer)
    with contextlib.closing(sqlite3.connect(path)) as newer:
        assert newer.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_an_upgrade_that_is_cut_off_has_not_happened(path: Path, monkeypatch: pytest.MonkeyPatch):
    """The tables and their number are one change."""
    with contextlib.closing(sqlite3.connect(path)) as older:
        older.executescript(VERSION_1)
    monkeypatch.setattr(
        "unbroken.control.store.changes_since", lambda _: [*changes_since(1), "no SQL"]
    )
    with pytest.raises(sqlite3.OperationalError, match="syntax"):
        Store(path)
    monkeypatch.undo()
    with opened(path) as store:
        assert store.writers() == {}
        assert store.next_term("a") == 4


def test_a_writer_is_recorded_with_a_term_of_its_own(path: Path):
    """Scenario 3: the last one counts, and its term is newer than all that was given before."""
    with opened(path) as store:
        records: Records = store
        store.place("a", ["n1", "n2"])
        assert records.writers() == {}, "the first one that was placed"
        first = records.record_writer("a", "n2")
        repair = store.record(expect("n3"))
        second = records.record_writer("a", "n1")
        assert [first, repair.term, second] == [3, 4, 5]
        records.record_writer("b", "n2")
    with opened(path) as store:
        assert store.writers() == {"a": "n1", "b": "n2"}
        assert store.unfinished() == [repair]


def test_who_was_rebuilt_elsewhere_leaves_with_the_same_record(path: Path):
    """A restart between the two would let the old line go on beside the new one."""
    with opened(path) as store:
        store.place("a", ["n1"])
        rebuild = Intention("a", Step.EXPECT, "n3", survivor="n1", replaces="n1")
        told = store.record(rebuild)
        assert store.unfinished()[0].rebuilds
        store.record(told.then(Step.LIVE))
        assert [(p.node, str(p.standing)) for p in store.placement()["a"]] == [
            ("n1", "leaving"), ("n3", "live"),
        ]  # fmt: skip
        itself = store.record(Intention("a", Step.EXPECT, "n3", survivor="n3", replaces="n3"))
        store.record(itself.then(Step.LIVE))
        assert str(store.placement()["a"][1].standing) == "live"


def test_a_damaged_store_is_told_as_such(path: Path):
    """Not as a traceback of SQLite."""
    path.write_bytes(b"no database " * 500)
    with pytest.raises(DiskError, match="damaged"):
        Store(path)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path):
    """Which disk, and what to do."""
    with pytest.raises(DiskError, match=r"cannot write .*unable to open .*disk mounted at") as told:
        Store(tmp_path / "missing" / "control.db")
    assert "another disk" in told.value.hint


def test_somebody_else_who_writes_is_told(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two control planes on one file: the second does not hang."""
    monkeypatch.setattr("unbroken.control.store.BUSY_S_MAX", 0.05)
    with opened(path) as store, contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnbrokenError, match="in use"):
            store.next_term("a")
        other.rollback()
        assert store.next_term("a") == 1


def test_old_removals_are_forgotten(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Invariant 7: everything has a limit."""
    assert REMOVALS_MAX >= 100
    monkeypatch.setattr("unbroken.control.store.REMOVALS_MAX", 3)
    with opened(path) as store:
        for number in range(5):
            store.record(Intention("a", Step.RELEASE, f"n{number}"))
        assert [removal.node for removal in store.removals()] == ["n2", "n3", "n4"]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "unbroken-test", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a disk of its own here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_told_and_room_mends_it(tiny_disk: Path):
    """Scenario 29: nothing half-written, which disk, what to do; then it goes on."""
    with opened(tiny_disk / "control.db") as store:
        store.place("a", ["n1"])
        ballast = tiny_disk / "ballast"
        with contextlib.suppress(OSError), open(ballast, "ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        assert shutil.disk_usage(tiny_disk).free == 0
        with pytest.raises(DiskError, match="No space left") as told:
            store.record(expect("n2"))
        assert "free some room there" in told.value.hint
        assert store.placement() == {"a": [Placed("n1", 1, Standing.STARTING)]}
        assert store.unfinished() == []
        ballast.unlink()
        assert store.record(expect("n2")).term == 2
