"""What a standby costs while nothing fails: time and CPU of one small delta, without Spark.

    .venv/bin/python bench/shipping.py [--takes 60]

A checkpoint of 60 MB in 80 files gets one changelog of 200 kB and one epoch of output per take.
Giver and taker are two processes with a door in between; CPU is that of each, all threads, and the
giver's has two more calls in it, which ask for it.  The line `a million additions` tells how much
a busy machine stretches CPU time: compare runs in which it is equal.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbroken.checkpoints import fork
from unbroken.checkpoints.give import Giver, Origin
from unbroken.checkpoints.known import Known
from unbroken.checkpoints.layers import Checkpoint
from unbroken.checkpoints.manifest import checksum
from unbroken.checkpoints.take import take
from unbroken.epochs import Epoch
from unbroken.streams.copy_log import extend_log
from unbroken.streams.flight import Command, Door, Peer
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import Served, StreamDoor

SSTS = [f"{number:06}-a.sst" for number in range(60)]
SST_BYTES = 1_000_000
CHANGELOG_BYTES = 200_000
#: Changelogs that Spark keeps; older ones are trimmed as it does.
CHANGELOGS = 8


class Primary:
    """A replica of `alerts` whose checkpoint grows on demand."""

    def __init__(self, folder: Path) -> None:
        self._checkpoint = fork.start(folder, with_watermarks=False).checkpoint
        self._state = self._checkpoint.spark / "state" / "0" / "0"
        self._log = EpochLog(folder / "output", "alerts")
        self._batch = 0
        (self._state / "SSTs").mkdir(parents=True)
        for kind in ("offsets", "commits"):
            (self._checkpoint.spark / kind).mkdir()
        for name in SSTS:
            (self._state / "SSTs" / name).write_bytes(os.urandom(SST_BYTES))
        with zipfile.ZipFile(self._state / "1_0a.zip", "w") as snapshot:
            files = [{"localFileName": name, "dfsSstFileName": name} for name in SSTS]
            snapshot.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files}))
        self.door = Door()
        Giver(self.door, lambda fragment: Origin(folder, term=1, fingerprint="f1"))
        StreamDoor(self.door).streams["alerts"] = Served(self._log, [], keep=0)
        self.door.on_act("go on", self._go_on)
        for _ in range(CHANGELOGS):
            self._go_on({})

    def _go_on(self, command: Command) -> float:
        """One more batch; the answer is the CPU that this process has used."""
        batch, spark = self._batch, self._checkpoint.spark
        (spark / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"epoch": {batch}}}')
        (self._state / f"{batch + 1}_0a.changelog").write_bytes(os.urandom(CHANGELOG_BYTES))
        (spark / "commits" / str(batch)).write_text("v1")
        self._checkpoint.save_watermarks(batch, [1])
        self._log.append(Epoch.of("alerts", batch, pa.table({"n": list(range(1000))})))
        for old in (self._state / f"{batch + 1 - CHANGELOGS}_0a.changelog",
                    spark / "offsets" / str(batch - CHANGELOGS),
                    spark / "commits" / str(batch - CHANGELOGS)):  # fmt: skip
            old.unlink(missing_ok=True)
        self._batch += 1
        return time.process_time()


def measure(folder: Path, address: str, takes: int) -> None:
    """Takes again and again, as a standby does, and prints what it took."""
    log, known = EpochLog(folder / "output", "alerts"), Known(checksum)
    wall_s: list[float] = []
    taker_s: list[float] = []
    giver_s: list[float] = []
    with Peer(address) as peer:

        def once() -> Any:
            return take(
                peer, "alerts", folder, with_watermarks=False, known=known,
                before_seen=lambda epoch: extend_log(peer, log, last=epoch),
            )  # fmt: skip

        began_s = time.monotonic()
        first = once()
        print(f"the first: {first.bytes_fetched:,} bytes in {time.monotonic() - began_s:.2f} s")
        for _ in range(takes):
            giver_before = peer.act({"do": "go on"})
            began_s, cpu_s = time.monotonic(), time.process_time()
            delta = once()
            wall_s.append(time.monotonic() - began_s)
            taker_s.append(time.process_time() - cpu_s)
            # The answer comes before the next batch is written: its CPU is not in it.
            giver_s.append(peer.act({"do": "cpu"}) - giver_before)
    layers = delta.files_fetched + delta.files_reused
    print(f"a delta: {delta.bytes_fetched:,} bytes, {delta.files_fetched} of {layers} layers")
    for what, measured in (("wall", wall_s), ("taker CPU", taker_s), ("giver CPU", giver_s)):
        median, low = statistics.median(measured) * 1000, min(measured) * 1000
        print(f"{what:>12}: {median:5.1f} ms, at best {low:.1f}")
    held = fork.hold(folder, with_watermarks=False)
    assert held is not None, "something was shipped"
    began_s, cpu_s = time.monotonic(), time.process_time()
    fork.fill(held, folder, with_watermarks=False)
    print(f"{'fill':>12}: {(time.monotonic() - began_s) * 1000:5.1f} ms, "
          f"{(time.process_time() - cpu_s) * 1000:.1f} CPU")  # fmt: skip
    assert Checkpoint(held.checkpoint.folder).last(with_watermarks=False) is not None


def main() -> None:
    """Runs a giver in a process of its own, and takes from it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--takes", type=int, default=60)
    parser.add_argument("--give", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.give:
        primary = Primary(given.give)
        primary.door.on_act("cpu", lambda command: time.process_time())
        print(primary.door.address, flush=True)
        sys.stdin.read()
        os._exit(0)
    cpu_s = time.process_time()
    sum(range(1_000_000))
    print(f"a million additions: {(time.process_time() - cpu_s) * 1000:.0f} ms of CPU")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--give", f"{folder}/node-1"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as giver:
            assert giver.stdin is not None
            assert giver.stdout is not None
            try:
                measure(Path(folder, "node-2"), giver.stdout.readline().strip(), given.takes)
            finally:
                giver.stdin.close()


if __name__ == "__main__":
    main()
