"""Checkpoints made by hand, as Spark would have written them."""

from __future__ import annotations

import json
from pathlib import Path

from unbroken.checkpoints.fork import Start, start
from unbroken.checkpoints.layers import Checkpoint

BOOT = "boot-1"


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def plan(checkpoint: Checkpoint, batch: int, *epochs: int) -> None:
    """What Spark writes before a batch runs."""
    lines = ["v1", '{"batchWatermarkMs":0}', *(json.dumps({"epoch": e}) for e in epochs)]
    write(checkpoint.spark / "offsets" / str(batch), "\n".join(lines))
    write(checkpoint.spark / "offsets" / f".{batch}.crc")


def work(checkpoint: Checkpoint, batch: int) -> None:
    """The layers of a batch: its state has the version after it."""
    state = checkpoint.spark / "state" / "0"
    for partition in "01":
        write(state / partition / f"{batch + 1}_0a1b-2c.changelog", f"batch {batch}")
    if batch % 3 == 2:
        write(state / "0" / f"{batch + 1}_0a1b-2c.zip")
        write(state / "0" / "SSTs" / f"{batch:06}-77.sst")
    write(state / "_metadata" / "v2" / str(batch))
    write(state / "_stateSchema" / "default" / f"{batch}_0a1b-2c")


def commit(checkpoint: Checkpoint, batch: int) -> None:
    write(checkpoint.spark / "commits" / str(batch), '{"nextBatchWatermarkMs":0}')


def run_batches(checkpoint: Checkpoint, batches: range, *, first_epoch: int = 100) -> None:
    """Batch b is epoch 100 + b on two inputs, committed, with its watermarks noted."""
    for batch in batches:
        plan(checkpoint, batch, first_epoch + batch, first_epoch + batch)
        work(checkpoint, batch)
        commit(checkpoint, batch)
        checkpoint.save_watermarks(first_epoch + batch, [batch, None])


def files(checkpoint: Checkpoint) -> set[str]:
    found = (p for p in checkpoint.folder.rglob("*") if p.is_file())
    return {str(path.relative_to(checkpoint.folder)) for path in found}


def again(folder: Path, *, with_watermarks: bool = False, boot: str = BOOT) -> Start:
    return start(folder, with_watermarks=with_watermarks, boot=boot)
