"""Forks that stand still while others take them."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

from layers_by_hand import BOOT, again, run_batches, write

from unbroken.checkpoints.fork import start
from unbroken.checkpoints.layers import Checkpoint, Commit
from unbroken.checkpoints.shipments import for_shipment, forget_shipments


def test_a_fork_for_shipping_lies_beside_the_terms_and_is_no_term(replica: Path):
    """Scenario 25: what is shipped does not change; starts do not count it."""
    made = for_shipment(replica, with_watermarks=False, boot=BOOT)
    assert made is not None
    shipment, at = made
    assert shipment.folder.parent == replica / "shipments"
    assert at == shipment.last(with_watermarks=True) == Commit(5, 105)
    run_batches(Checkpoint(replica / "1"), range(6, 8))
    assert shipment.last(with_watermarks=True) == Commit(5, 105)
    assert (again(replica).term, again(replica).epoch) == (2, 107)


def test_forks_for_shipping_are_removed_except_those_under_way(replica: Path):
    """Each holds on to layers that Spark has trimmed; half-made ones go as well."""
    forks = [for_shipment(replica, with_watermarks=False, boot=BOOT) for _ in range(3)]
    names = [made[0].folder.name for made in forks if made is not None]
    (replica / "shipments" / "dead.tmp").mkdir()
    forget_shipments(replica, keep={names[1]})
    assert [path.name for path in (replica / "shipments").iterdir()] == [names[1]]
    forget_shipments(replica)
    assert not list((replica / "shipments").iterdir())
    forget_shipments(replica / "nowhere")


def test_there_is_nothing_to_ship_before_a_commit_or_after_a_reboot(tmp_path: Path, replica: Path):
    """Scenario 28 for the giver too: what was lost is not handed on."""
    start(tmp_path / "new", with_watermarks=False, boot=BOOT)
    assert for_shipment(tmp_path / "new", with_watermarks=False, boot=BOOT) is None
    assert for_shipment(replica, with_watermarks=False, boot="another") is None


def test_a_term_that_goes_while_it_is_linked_is_no_obstacle(replica: Path, monkeypatch):
    """The replica was started again meanwhile: the newer term is shipped."""
    newer = again(replica)
    run_batches(newer.checkpoint, range(6, 7))
    link, gone = os.link, [newer.checkpoint.spark / "commits" / "6"]

    def racing(source: Path, target: Path) -> None:
        while gone:
            gone.pop().unlink()
        link(source, target)

    monkeypatch.setattr(os, "link", racing)
    made = for_shipment(replica, with_watermarks=False, boot=BOOT)
    assert made is not None
    assert made[1] == Commit(5, 105)
    assert len(list((replica / "shipments").iterdir())) == 1, "nothing half-made stays"


def test_an_sst_is_shipped_only_with_the_snapshot_that_names_it(replica: Path):
    """It is not written atomically: before its zip is there, it may be torn."""
    state = replica / "1" / "spark" / "state" / "0" / "0"
    for path in state.glob("*.zip"):
        path.unlink()
    with zipfile.ZipFile(state / "6_0a1b-2c.zip", "w") as snapshot:
        files = [{"localFileName": "000005.sst", "dfsSstFileName": "000005-77.sst"}]
        snapshot.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files}))
    write(state / "SSTs" / "000009-77.sst", "half")
    made = for_shipment(replica, with_watermarks=False, boot=BOOT)
    assert made is not None
    assert [path.name for path in made[0].folder.rglob("*.sst")] == ["000005-77.sst"]
    assert (state / "SSTs" / "000009-77.sst").exists(), "the original keeps what it writes"
