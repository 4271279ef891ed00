"""Terms that are held and filled, and which checkpoint a start goes on from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from layers_by_hand import BOOT, again, commit, files, run_batches, write

from unbroken.checkpoints.fork import (
    Start,
    empty,
    fill,
    forget_before,
    forget_terms,
    hold,
    rebooted,
    shipped_in,
    start,
    terms_in,
)
from unbroken.checkpoints.layers import Checkpoint
from unbroken.errors import CheckpointLost, DiskError, UnbrokenError


def ship(folder: Path, number: int, batches: range, *, boot: str = BOOT) -> Checkpoint:
    """What a take would have left: batch b is epoch 100 + b."""
    made = Checkpoint(folder / "shipped" / str(number))
    (made.folder / "watermarks").mkdir(parents=True)
    run_batches(made, batches)
    write(made.folder / "boot", boot)
    return made


def held_in(folder: Path) -> Start:
    """A term with a query of Spark's on it that waits: its id is read, its folders are there."""
    held = empty(folder, boot=BOOT)
    for name in ("offsets", "commits", "state", "sources/0"):
        (held.checkpoint.spark / name).mkdir(parents=True)
    write(held.checkpoint.spark / ".metadata.crc")
    return held


def filled(held: Start, folder: Path, *, with_watermarks: bool = True, boot: str = BOOT) -> Start:
    return fill(held, folder, with_watermarks=with_watermarks, boot=boot)


def layers(checkpoint: Checkpoint) -> set[str]:
    own = {"boot", "spark/metadata", "spark/.metadata.crc"}
    return files(checkpoint) - own


def test_an_empty_term_has_an_id_of_its_own(tmp_path: Path):
    """Nothing is in it to go on from."""
    first, second = empty(tmp_path / "new", boot=BOOT), empty(tmp_path / "new", boot=BOOT)
    assert [(held.term, held.epoch, held.lost) for held in (first, second)] == [
        (1, None, ""),
        (2, None, ""),
    ]
    ids = {json.loads((h.checkpoint.spark / "metadata").read_text())["id"] for h in (first, second)}
    assert len(ids) == 2
    assert layers(second.checkpoint) == set()
    assert not rebooted(tmp_path / "new", boot=BOOT)


def test_shipments_come_in_while_a_term_is_held(replica: Path):
    """Holding removes nothing: neither an attempt under way nor what was shipped."""
    half = write(replica / "incoming.tmp" / "spark" / "offsets" / "5")
    ship(replica, 4, range(6))
    held = hold(replica, with_watermarks=True, boot=BOOT)
    assert held is not None
    assert held.term == 2
    assert half.exists()
    assert [path.name for path in shipped_in(replica)] == ["4"]


def test_a_held_term_has_the_newest_plan_and_cannot_be_gone_on_from(tmp_path: Path):
    """Spark looks for plans before it creates its sources, and refuses to find one only later."""
    assert hold(tmp_path, with_watermarks=True, boot=BOOT) is None, "there is no plan yet"
    ship(tmp_path, 1, range(4))
    held = hold(tmp_path, with_watermarks=True, boot=BOOT)
    assert held is not None
    assert layers(held.checkpoint) == {"spark/offsets/3"}
    assert held.checkpoint.last(with_watermarks=False) is None
    ship(tmp_path, 2, range(6))
    assert filled(held, tmp_path).epoch == 105
    assert again(tmp_path).epoch == 105


def test_a_held_term_is_filled_with_what_it_began_with(tmp_path: Path):
    """Nothing newer has come: the plan is there, the rest is not."""
    ship(tmp_path, 1, range(4))
    held = hold(tmp_path, with_watermarks=True, boot=BOOT)
    assert held is not None
    took = filled(held, tmp_path)
    assert took.epoch == 103
    assert took.checkpoint.last(with_watermarks=True) == again(tmp_path).checkpoint.last(
        with_watermarks=True
    )


def test_a_held_term_is_filled_with_the_newest_shipment(tmp_path: Path):
    """Take-over: the same layers as a start would have had, under the id that Spark has read."""
    held = held_in(tmp_path)
    ship(tmp_path, 1, range(4))
    ship(tmp_path, 2, range(6))
    before = (held.checkpoint.spark / "metadata").read_text()
    took = filled(held, tmp_path)
    assert (took.term, took.epoch, took.checkpoint) == (1, 105, held.checkpoint)
    assert (held.checkpoint.spark / "metadata").read_text() == before
    assert took.checkpoint.watermarks(105) == [5, None]
    began = again(tmp_path, with_watermarks=True)
    assert (began.term, began.epoch) == (2, 105)
    assert layers(took.checkpoint) == layers(began.checkpoint)
    layer = "spark/state/0/1/6_0a1b-2c.changelog"
    assert os.path.samefile(tmp_path / "shipped" / "2" / layer, took.checkpoint.folder / layer)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "shipped"]


def test_the_newest_epoch_wins_wherever_it_lies(replica: Path):
    """An older term of this node may be ahead of what was shipped (scenario 16)."""
    held = held_in(replica)
    ship(replica, 1, range(4))
    assert filled(held, replica).epoch == 105
    ship(replica, 2, range(8))
    assert again(replica).epoch == 107
    run_batches(Checkpoint(replica / "1"), range(6, 9))
    assert again(replica).epoch == 108


def test_of_equals_a_term_is_taken_before_a_shipment(replica: Path):
    """It is this node's own work."""
    ship(replica, 9, range(6))
    began = again(replica)
    layer = "spark/commits/5"
    assert os.path.samefile(replica / "1" / layer, began.checkpoint.folder / layer)


def test_with_watermarks_a_shipment_counts_only_with_its_note(tmp_path: Path):
    """Scenario 21, for starts and for take-overs."""
    held = held_in(tmp_path)
    (ship(tmp_path, 1, range(6)).folder / "watermarks" / "105").unlink()
    assert again(tmp_path, with_watermarks=True).epoch == 104
    assert filled(held, tmp_path, with_watermarks=True).epoch == 104


def test_nothing_was_shipped(tmp_path: Path):
    """The term stays as it was: whoever takes over decides whether an empty start will do."""
    held = held_in(tmp_path)
    assert filled(held, tmp_path) == held
    assert layers(held.checkpoint) == set()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1"]


def test_what_was_shipped_before_a_reboot_is_lost(tmp_path: Path):
    """Scenario 28: it was not synced here either, and the log beside it has to be looked at."""
    held = held_in(tmp_path)
    ship(tmp_path, 1, range(6), boot="an earlier boot")
    assert rebooted(tmp_path, boot=BOOT)
    took, began = filled(held, tmp_path), again(tmp_path)
    assert (took.epoch, began.epoch) == (None, None)
    assert "rebooted" in took.lost
    assert took.lost == began.lost


@pytest.mark.parametrize(
    "work",
    [lambda c: commit(c, 0), lambda c: c.save_watermarks(7, [1]),
     lambda c: write(c.spark / "state" / "0" / "0" / "1.changelog")],
    ids=["committed", "noted", "state"],
)  # fmt: skip
def test_a_term_with_work_of_its_own_cannot_be_filled(
    tmp_path: Path, work: Callable[[Checkpoint], None]
):
    """Two executions would be mixed: the query has gone on although it should have waited."""
    held = held_in(tmp_path)
    work(held.checkpoint)
    ship(tmp_path, 1, range(6))
    before = files(held.checkpoint)
    with pytest.raises(UnbrokenError, match=r"term 1 .* has work of its own"):
        filled(held, tmp_path)
    assert files(held.checkpoint) == before


def test_a_term_is_filled_once(tmp_path: Path):
    """The second time it is not empty."""
    held = held_in(tmp_path)
    ship(tmp_path, 1, range(6))
    filled(held, tmp_path)
    with pytest.raises(UnbrokenError, match="has work of its own"):
        filled(held, tmp_path)


def count_of_links(tmp_path: Path) -> int:
    """How many links a fill of two batches makes."""
    held = held_in(tmp_path / "count")
    shipped = ship(tmp_path / "count", 1, range(4, 6))
    return len(layers(filled(held, tmp_path / "count").checkpoint)) + len(layers(shipped))


def test_cut_off_at_any_link_a_half_filled_term_is_never_gone_on_from(tmp_path: Path, monkeypatch):
    """The commit comes last: until it is there, a start chooses what the term was filled from.

    Method: the process dies at the n-th link, for every n; then a start as after a crash.
    """
    link, made = os.link, 0
    for deadly in range(1, count_of_links(tmp_path)):
        folder = tmp_path / str(deadly)
        held = held_in(folder)
        ship(folder, 1, range(4, 6))
        left = iter(range(deadly - 1))

        def dying(source: str, target: str, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise KeyboardInterrupt
            link(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(os, "link", dying)
            try:
                filled(held, folder, with_watermarks=False)
            except KeyboardInterrupt:
                made += 1
        usable = held.checkpoint.last(with_watermarks=False)
        assert usable is None or usable.epoch == 105, "all of it, or nothing"
        began = again(folder)
        assert (began.term, began.epoch) == (2, 105)
        assert {"spark/offsets/4", "spark/state/0/0/6_0a1b-2c.zip"} <= files(began.checkpoint)
        assert not list(folder.glob("*.tmp"))
    assert made > 20, "the test has cut somewhere"


def test_a_disk_without_room_for_links_is_told(tmp_path: Path, monkeypatch):
    """Scenario 29: nothing usable is left, and a start with room again finds the shipment."""
    held = held_in(tmp_path)
    ship(tmp_path, 1, range(6))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        with pytest.raises(DiskError, match="disk mounted at"):
            filled(held, tmp_path)
    assert held.checkpoint.last(with_watermarks=False) is None
    assert again(tmp_path).epoch == 105


def test_a_shipment_that_is_replaced_while_it_is_linked(tmp_path: Path, monkeypatch):
    """The newer one is taken, whole: nothing of the older is mixed in."""
    held = held_in(tmp_path)
    older = ship(tmp_path, 1, range(6))
    link, replaced = os.link, []

    def racing(source: str, target: str) -> None:
        link(source, target)
        if not replaced:
            replaced.append(ship(tmp_path, 2, range(4, 8)))
            os.rename(older.folder, tmp_path / "gone.tmp")

    monkeypatch.setattr(os, "link", racing)
    took = filled(held, tmp_path)
    assert took.epoch == 107
    assert "spark/state/0/0/1_0a1b-2c.changelog" not in files(took.checkpoint)


def test_checkpoints_that_vanish_again_and_again_are_told(tmp_path: Path, monkeypatch):
    """Invariant 7: attempts have a limit."""
    held = held_in(tmp_path)
    ship(tmp_path, 1, range(6))

    def gone(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(os, "link", gone)
    with pytest.raises(CheckpointLost, match="go away faster than they can be forked"):
        filled(held, tmp_path)


def test_what_was_shipped_goes_when_the_new_term_has_work_of_its_own(tmp_path: Path):
    """And not before: until then it may be needed again."""
    ship(tmp_path, 3, range(6))
    again(tmp_path)
    current = again(tmp_path)
    assert [path.name for path in shipped_in(tmp_path)] == ["3"]
    forget_before(tmp_path, current.term)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2"]


def test_a_standby_forgets_its_own_older_work_and_keeps_what_was_shipped(replica: Path):
    """A former primary: its terms would hold on to their layers for ever."""
    held = held_in(replica)
    ship(replica, 1, range(8))
    forget_terms(replica, below=held.term)
    assert (terms_in(replica), len(shipped_in(replica))) == ([2], 1)
    assert filled(held, replica).epoch == 107


def test_a_start_beside_an_empty_held_term(tmp_path: Path):
    """The standby's process died: its held term is nothing to go on from, what was shipped is."""
    held_in(tmp_path)
    ship(tmp_path, 1, range(6))
    began = start(tmp_path, with_watermarks=False, boot=BOOT)
    assert (began.term, began.epoch) == (2, 105)


def test_what_spark_noted_with_a_whole_path_is_noted_anew(tmp_path: Path):
    """`transformWithState` names its schema files so, in a term that goes or on another machine."""
    shipped = ship(tmp_path, 1, range(4))
    schema = "state/0/_stateSchema/default/0_0a1b"
    write(shipped.spark / schema, "schema")
    noted = {"storeName": "default", "stateSchemaFilePaths": [f"file:/far/7/spark/{schema}"]}
    write(shipped.spark / "state/0/_metadata/v2/0", "v2\n" + json.dumps(noted))
    (shipped.spark / "state/0/0/_metadata").mkdir(parents=True)
    # As aggregates have it: not text.
    (shipped.spark / "state/0/0/_metadata/schema").write_bytes(b"\x00\x96")
    held = hold(tmp_path, with_watermarks=False, boot=BOOT)
    assert held is not None
    for began in (filled(held, tmp_path), again(tmp_path), again(tmp_path)):
        spark = began.checkpoint.spark
        _, text = (spark / "state/0/_metadata/v2/0").read_text().split("\n")
        assert json.loads(text)["stateSchemaFilePaths"] == [f"file:{spark}/{schema}"]
        assert (spark / schema).read_text() == "schema"
        assert (spark / "state/0/0/_metadata/schema").read_bytes() == b"\x00\x96"
