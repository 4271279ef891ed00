"""Layers: what Spark writes into a checkpoint, read from outside.

    spark/metadata                 the query's id; a fork has its own
    spark/offsets/7                batch 7 is planned: one line per input, {"epoch": 12}
    spark/commits/7                batch 7 is done; its state is version 8
    spark/state/0/1/8_….changelog  one per state partition; now and then a .zip and SSTs/*.sst
    watermarks/12                  after epoch 12, of every watermark operator (ours)

* Only a committed batch counts.  Spark's batch id is not the epoch number: a fork keeps the ids of
  what it was forked from, and epochs may begin anywhere.
* Names with a dot in front are checksums of Hadoop's, names with `.tmp` are not there yet.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import MisalignedBatch
from unbroken.streams import disk

#: Watermark notes kept behind the newest: as many epochs as Spark keeps batches.
NOTES_KEPT = 12


@dataclass(frozen=True)
class Commit:
    """A committed batch and the epoch that it was."""

    batch: int
    epoch: int


class Checkpoint:
    """The folder of one replica under one term."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spark = folder / "spark"

    def commits(self) -> list[Commit]:
        """All committed batches that are still there, oldest first."""
        return [Commit(batch, self.epoch_of(batch)) for batch in self._committed()]

    def last(self, *, with_watermarks: bool) -> Commit | None:
        """The newest batch from which a replica can go on."""
        for batch in reversed(self._committed()):
            commit = Commit(batch, self.epoch_of(batch))
            if not with_watermarks or self._note(commit.epoch).exists():
                return commit
        return None

    def _committed(self) -> list[int]:
        planned = set(_numbers(self.spark / "offsets"))
        return [batch for batch in _numbers(self.spark / "commits") if batch in planned]

    def epoch_of(self, batch: int) -> int:
        """The epoch that `batch` was, or a refusal if its inputs disagree."""
        _, _, *offsets = (self.spark / "offsets" / str(batch)).read_text().splitlines()
        epochs = {json.loads(line)["epoch"] for line in offsets}
        if len(epochs) != 1:
            raise MisalignedBatch(
                f"batch {batch} in {self.spark} has epochs {sorted(epochs)} on its inputs",
                hint="this checkpoint cannot be used; start from one without that batch",
            )
        return int(epochs.pop())

    def save_watermarks(self, epoch: int, values_ms: list[int | None]) -> None:
        """Notes every operator's watermark after `epoch`: Spark keeps only the lowest of them."""
        disk.write_whole(self._note(epoch), [json.dumps(values_ms).encode()])
        self._note(epoch - NOTES_KEPT).unlink(missing_ok=True)

    def watermarks(self, epoch: int) -> list[int | None]:
        """What was noted after `epoch`."""
        values: list[int | None] = json.loads(self._note(epoch).read_bytes())
        return values

    def _note(self, epoch: int) -> Path:
        return self.folder / "watermarks" / str(epoch)


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
