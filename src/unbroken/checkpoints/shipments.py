"""Shipments: forks that stand still while another node takes them.

    alerts/4               runs, and goes on
    alerts/shipments/7f…   a fork of it at epoch 103, until its taker is done

* Never from a living directory (scenario 25): a batch that is executed again rewrites a layer under
  the same name, and the taker would have a mixture of two executions.
* An sst counts only with the zip that names it: Spark writes ssts in place, and the zip last.
* A fork holds on to layers that Spark has trimmed, so it goes as soon as its taker is done.

>>> import tempfile
>>> for_shipment(Path(tempfile.mkdtemp()), with_watermarks=False) is None     # nothing committed
True
"""

from __future__ import annotations

import json
import os
import uuid
import zipfile
from collections.abc import Container
from pathlib import Path

from unbroken.checkpoints import fork
from unbroken.checkpoints.known import Known
from unbroken.checkpoints.layers import Checkpoint, Commit
from unbroken.checkpoints.links import files_in, remove

#: Where forks for other nodes lie, beside the terms.
SHIPMENTS = "shipments"

#: The ssts that a snapshot names; None if it is of a form that is not known here.
Snapshot = frozenset[str] | None


def for_shipment(
    folder: Path,
    *,
    with_watermarks: bool,
    boot: str | None = None,
    snapshots: Known[Snapshot] | None = None,
) -> tuple[Checkpoint, Commit] | None:
    """Forks the newest usable checkpoint of a replica's `folder` into `shipments/<id>`.

    The replica may go on meanwhile.  None if nothing was committed yet.  `snapshots` is a memory
    for whoever ships again and again.
    """
    target = folder / SHIPMENTS / uuid.uuid4().hex
    found = fork.fork_newest(
        folder, target, with_watermarks=with_watermarks, boot=boot or fork.boot_id()
    )
    if found is not None:
        for torn in _ssts_without_snapshot(found[0].spark, snapshots or Known(ssts_named)):
            os.unlink(torn)
    return found


def forget_shipments(folder: Path, keep: Container[str] = ()) -> None:
    """Removes forks for shipping that nobody asks for any more: they hold on to old layers."""
    for path in (folder / SHIPMENTS).glob("*"):
        if path.name not in keep:
            remove(path)  # Its name first: it may be listed at this moment.


def ssts_named(path: Path) -> Snapshot:
    """The ssts that the snapshot in the zip `path` consists of."""
    try:
        with zipfile.ZipFile(path) as snapshot:
            _, text = snapshot.read("metadata").split(b"\n", 1)
        return frozenset(file["dfsSstFileName"] for file in json.loads(text)["sstFiles"])
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile):
        return None


def _ssts_without_snapshot(spark: Path, snapshots: Known[Snapshot]) -> list[str]:
    """Before the zip that names them is there, they may be torn."""
    named: set[str] = set()
    ssts: list[str] = []
    for entry in files_in(f"{spark}/state"):
        if entry.name.endswith(".sst"):
            ssts.append(entry.path)
        elif entry.name.endswith(".zip"):
            found = snapshots.of(entry.path, entry.stat())
            if found is None:
                return []  # Of a form that is not known here: nothing is taken from it.
            folder = entry.path[: -len(entry.name)]
            named |= {f"{folder}SSTs/{name}" for name in found}
    return [path for path in ssts if path not in named]
