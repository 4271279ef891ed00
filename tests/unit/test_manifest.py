"""A giver that lies: nothing of what it says is believed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from shipping import Liar, refused

from unbroken.checkpoints import manifest
from unbroken.checkpoints.manifest import checksum
from unbroken.streams.flight import Command


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "spark/../../x", "spark/state/../../../x", "spark/state/0/..", "",
             ".", "..", "boot", "spark/metadata", "manifest.json", "spark/state/0/.hidden",
             "spark/state/0/a.tmp", "spark/state/0/a\0b", "spark/state/0/a\n", "spark/state//a",
             "spark/state/0/ä", "spark/offsets/٣", "spark/offsets/x", "spark/offsets/5/6",
             "watermarks/-1", "spark\\state\\0\\a", "spark/state/0/" + "a" * 200, "output/1.arrow",
             "spark/state" + "/a" * 20, "C:/x", None, 7, ["spark/commits/1"], {"a": 1}],
)  # fmt: skip
def test_names_that_leave_the_folder_are_refused(liar: Liar, there: Path, name: object):
    """Only the shapes that Spark's layers have; checked before anything is written."""
    liar.manifest["layers"].insert(0, [name, 1, "0" * 32])
    refused(liar, there, "is not the name of a layer")


@pytest.mark.parametrize(
    ("entry", "why"),
    [(["spark/commits/4", -1, "0" * 32], "bytes"), (["spark/commits/4", True, "0" * 32], "bytes"),
     (["spark/commits/4", 1.5, "0" * 32], "bytes"), (["spark/commits/4", "1", "0" * 32], "bytes"),
     (["spark/commits/4", 1 << 50, "0" * 32], "is the limit"),
     (["spark/commits/4", 1, "0" * 31], "checksum"), (["spark/commits/4", 1, None], "checksum"),
     (["spark/commits/4", 1], "cannot be read"), ("spark/commits/4", "cannot be read"),
     (None, "cannot be read")],
)  # fmt: skip
def test_sizes_and_checksums_that_are_none_are_refused(
    liar: Liar, there: Path, entry: object, why: str
):
    """Nothing is fetched for a manifest that makes no sense."""
    liar.manifest["layers"] = [entry]
    refused(liar, there, why)


def test_a_manifest_is_sorted_bounded_and_complete(liar: Liar, there: Path, monkeypatch):
    """The same name twice would be written twice; a million names would fill a disk."""
    honest = dict(liar.manifest)
    liar.manifest = {**honest, "layers": [honest["layers"][0], *honest["layers"]]}
    refused(liar, there, "comes after")
    changes = [{"epoch": None}, {"epoch": -1}, {"term": "1"}, {"shipment": 7}, {"more": 1}]
    for answer in (None, [], "x", {}, *({**honest, **change} for change in changes)):
        liar.manifest = answer
        refused(liar, there, "shipment refused")
    liar.manifest = honest
    monkeypatch.setattr(manifest, "LAYERS_MAX", 3)
    refused(liar, there, "3 is the limit")


@pytest.mark.parametrize(
    "lie",
    [lambda chunk: chunk + b"x", lambda chunk: chunk[:-1], lambda chunk: b"", lambda chunk: None,
     lambda chunk: b"y" * len(chunk), lambda chunk: bytes(10_000_000)],
    ids=["longer", "shorter", "empty", "null", "other bytes", "much longer"],
)  # fmt: skip
def test_bytes_that_are_not_what_was_announced_are_refused(
    liar: Liar, there: Path, lie: Callable[[bytes], bytes | None]
):
    """Sizes that lie, and bytes that do not have their checksum."""
    honest = liar.layer

    def layer(command: Command) -> pa.Table:
        table = honest(command)
        assert table is not None
        first, *more = table.column("bytes").to_pylist()
        return pa.table({"bytes": pa.array([lie(first), *more], pa.binary())})

    liar.layer = layer
    refused(liar, there, "does not have")


@pytest.mark.parametrize("table", [None, pa.table({}), pa.table({"bytes": [1]}),
                                   pa.table({"bytes": [b"a", b"b"]}),
                                   pa.table({"bytes": pa.array([], pa.binary())})])  # fmt: skip
def test_answers_of_another_shape_are_refused(liar: Liar, there: Path, table: pa.Table | None):
    """One row of bytes, and nothing else."""
    liar.layer = lambda command: table
    refused(liar, there, "does not have")


def test_a_file_cannot_be_a_folder_as_well(liar: Liar, there: Path):
    """Names that are fine each and impossible together."""
    for name in ("spark/state/0/a", "spark/state/0/a/b"):
        liar.manifest["layers"].append([name, 0, checksum(Path(os.devnull))])
    liar.manifest["layers"].sort()
    refused(liar, there, "cannot write")


def test_another_epoch_than_promised_is_refused(liar: Liar, there: Path):
    """A replica goes on from the newest commit that it finds: that must be the promised one."""
    honest = liar.manifest
    liar.manifest = {**honest, "epoch": 106}
    refused(liar, there, "epoch 106 was promised")
    layers = [entry for entry in honest["layers"] if not entry[0].startswith("spark/commits")]
    liar.manifest = {**honest, "layers": layers}
    refused(liar, there, "epoch 105 was promised, None is in it")
