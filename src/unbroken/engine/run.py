"""One fragment as one Structured Streaming query: an epoch in, an epoch out.

    gate ─▶ source (blocks) ─▶ the user's plan ─▶ row hashes ─▶ foreachBatch ─▶ seal

* Spark adds a 64-bit hash to every row.  Rows are sealed in the order of their hashes, so that
  replicas write them in one order (scenario 22), and the digest is taken over the hashes.
* A batch must go from one epoch to the next on every input, read back from the offset log that
  Spark has just written; anything else is refused before its output can be seen.
* Spark's checkpoint keeps one watermark for the whole query; with two watermarked inputs a restart
  would not know how far each was (scenario 21).  So every operator's watermark is read from the
  running query after each commit and put back before a fork's first epoch.
* A query may be started before its checkpoint is there (see `source`): `go_on_from` says where it
  begins, before it is released.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from unbroken.checkpoints.fork import Start
from unbroken.engine import output
from unbroken.engine.plan import Plan
from unbroken.engine.session import STATE
from unbroken.engine.source import READ_BY_PLANNER
from unbroken.epochs import digest_of_hashes
from unbroken.errors import FragmentFailed, MisalignedBatch
from unbroken.policies.past import Marks
from unbroken.tentative.branch import followed

HASH = "__unbroken_hash"
_ERROR = re.compile(r"[\w.]+(Error|Exception|Gone|Lost|Batch)\b")
#: Java's own errors in what py4j says: "An error occurred while calling …" tells nobody anything.
_JAVA_ERROR = re.compile(r"(?:: |Caused by: )([\w.$]+(?:Error|Exception)\b.*)")
#: A machine that was too busy for Spark's ten seconds, a worker that was killed, a full disk, a
#: moment without memory.  What does not pass happens again, and after a few times it is a failure.
_PASSING = re.compile(
    r"waiting for the Python worker to connect back|Python worker failed to connect back"
    r"|Python worker exited unexpectedly"
    # What the JVM's end of a killed process's connection says, depending on what it was doing.
    r"|java\.io\.EOFException|Connection reset|Broken pipe"
    # Ours and Java's own: others may make room, and a start from the last commit lacks nothing.
    r"|\bDiskError\b|No space left on device"
    # Of its own node, by whoever fetches or brings rows: it was frozen, or too busy.
    r"|\bunbroken\.errors\.Unreachable\b"
    # Between Spark's own processes on one machine, whoever of them was not given the time.
    r"|java\.net\.SocketTimeoutException"
    r"|java\.lang\.OutOfMemoryError"
)
#: Settings are the session's, which all fragments share; a query takes a copy when it starts.
_STARTING = threading.Lock()
#: Takes the rows of an epoch in canonical order, and their digest.
Seal = Callable[[int, pa.Table, str], None]
#: Gives the tables that executors pushed for an epoch.
TakeParts = Callable[[int, output.Parts], list[pa.Table]]


class Run:
    """A running fragment."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        output_mode: str,
        start: Start,
        seal: Seal,
        take_parts: TakeParts,
        *,
        with_watermarks: bool,
    ) -> None:
        self._name = name
        self._plan = plan
        self._take_parts = take_parts
        self._checkpoint = start.checkpoint
        self._seal = seal
        self._with_watermarks = with_watermarks
        #: The newest epoch done; None before the first of all.
        self._epoch: int | None = None
        self._started = threading.Event()
        self._stopped = False
        # Calls into the JVM come from one thread: each new thread would open a connection.
        self._jvm_calls = ThreadPoolExecutor(1, thread_name_prefix=f"jvm-{name}")
        frame = plan.frame.withColumn(HASH, _row_hash(plan.frame))
        spark = frame.sparkSession
        # A pool of its own, so that fragments take turns.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        # Two queries of one session must not have one name: a rehearsal has its own, and a stable
        # line that starts beside a tentative branch has another term.
        writer = (
            frame.writeStream.queryName(f"{plan.options['fragment']}.{start.term}")
            .outputMode(output_mode)
            .option("checkpointLocation", str(start.checkpoint.spark))
            .foreachBatch(self._batch)
        )
        with _STARTING:
            for key, value in STATE[plan.state].items():
                spark.conf.set(key, value)
            self._query = writer.start()
        self._started.set()

    def go_on_from(self, epoch: int | None) -> None:
        """Before it is released: its checkpoint is there, at `epoch`; None for an empty one."""
        self._epoch = epoch

    def seal_with(self, seal: Seal) -> None:
        """Another takes its epochs from now on; not while it works on one."""
        self._seal = seal

    def lift_watermarks(self, missing: Collection[str]) -> None:
        """On a tentative branch, between two epochs: windows close by the inputs that are there."""
        inputs = [mark.inputs for mark in self._plan.watermarks]
        if len(inputs) > 1 and missing:
            self._jvm_calls.submit(self._lift_watermarks, inputs, missing).result(timeout=60)

    def _lift_watermarks(self, inputs: list[frozenset[str]], missing: Collection[str]) -> None:
        marks = self._take_marks()
        lifted = followed(marks.operators, inputs, missing)
        known = [mark for mark in lifted if mark is not None]
        if lifted != list(marks.operators) and len(known) == len(lifted):
            self._put_marks(Marks(max(marks.current_ms, min(known)), tuple(lifted)))

    def restore_watermarks(self) -> None:
        """Puts back every operator's watermark; before the first epoch after a fork."""
        if self._with_watermarks and self._epoch is not None:
            values = self._checkpoint.watermarks(self._epoch)
            self._jvm_calls.submit(self._put_watermarks, values).result(timeout=60)

    def save_watermarks(self, epoch: int) -> None:
        """Notes every operator's watermark after the committed `epoch`."""
        if self._with_watermarks:
            values = self._jvm_calls.submit(self._take_watermarks).result(timeout=60)
            self._checkpoint.save_watermarks(epoch, values)

    def marks(self) -> Marks:
        """The watermarks after the newest committed epoch."""
        return self._jvm_calls.submit(self._take_marks).result(timeout=60)

    def put_marks(self, marks: Marks) -> None:
        """Puts back what `marks` told, before the first epoch of a query that starts empty."""
        self._jvm_calls.submit(self._put_marks, marks).result(timeout=60)

    def _take_marks(self) -> Marks:
        current = int(self._tracker().currentWatermark())
        return Marks(current, tuple(self._take_watermarks()))

    def _put_marks(self, marks: Marks) -> None:
        self._tracker().setWatermark(marks.current_ms)
        self._put_watermarks(list(marks.operators))

    def _tracker(self) -> Any:
        assert self._started.wait(60), "Spark asks its sources only after it has started"
        return self._query._jsq.streamingQuery().watermarkTracker()

    def _take_watermarks(self) -> list[int | None]:
        known = self._tracker().watermarkMap()
        values: list[int | None] = []
        for mark in self._plan.watermarks:
            value = known.apply(self._uuid(mark.node_id))
            values.append(int(value.get()) if value.isDefined() else None)
        return values

    def _put_watermarks(self, values: list[int | None]) -> None:
        tracker = self._tracker()
        # Spark offers no way in: the field is private.  A test pins that this works.
        field = tracker.getClass().getDeclaredField("operatorToWatermarkMap")
        field.setAccessible(True)
        known = field.get(tracker)
        for mark, value in zip(self._plan.watermarks, values, strict=True):
            if value is not None:
                known.put(self._uuid(mark.node_id), self._some_long(value))

    @property
    def _jvm(self) -> Any:
        return self._plan.frame.sparkSession._jvm

    def _uuid(self, text: str) -> Any:
        return self._jvm.java.util.UUID.fromString(text)

    def _some_long(self, value: int) -> Any:
        """`Some(value)` with a Long in it, however small: py4j sends small ones as Integer."""
        boxed = self._jvm.java.util.stream.LongStream.of(value).boxed()
        return self._jvm.scala.jdk.javaapi.OptionConverters.toScala(boxed.findFirst())

    def _batch(self, frame: DataFrame, batch: int) -> None:
        epoch = self._checkpoint.epoch_of(batch)
        if self._epoch is not None and epoch != self._epoch + 1:
            raise MisalignedBatch(
                f"fragment {self._name!r}: batch {batch} is epoch {epoch}, after {self._epoch}",
                hint="start the fragment again: it goes on from its last committed epoch",
            )
        table = self._rows(frame, epoch)
        hashes = table.column(HASH).to_numpy()
        order = np.argsort(hashes, kind="stable")
        rows = table.drop_columns([HASH]).take(pa.array(order)).combine_chunks()
        self._seal(epoch, rows.cast(self._plan.schema), digest_of_hashes(hashes[order]))
        self._epoch = epoch

    def _rows(self, frame: DataFrame, epoch: int) -> pa.Table:
        options = self._plan.options
        if options["reader"] == READ_BY_PLANNER:
            return output.collect(frame)
        parts = self._take_parts(epoch, output.push(frame, epoch, options))
        empty = to_arrow_schema(frame.schema, timezone="UTC").empty_table()
        return pa.concat_tables([empty, *parts])

    def stop(self) -> None:
        """Ends the query; what it has not committed is as if it had never been."""
        self._stopped = True
        try:
            self._query.stop()
        except Exception as error:  # Of py4j, as Spark's own timeout is.
            # It was interrupted and its questions are refused: it will end, and nobody waits.
            print(f"{self._name} does not stop: {_last_words(str(error))}", file=sys.stderr)

    def failure(self) -> FragmentFailed | None:
        """Why the query stopped, if it did."""
        text = self._cause()
        if text is None or self._stopped:  # By us, while Spark was asked.
            return None
        where = "before its first epoch" if self._epoch is None else f"after epoch {self._epoch}"
        # Said with it: asked a moment later the query may have been stopped, and say nothing.
        passing = bool(_PASSING.search(text))
        # Whoever reads of one that passes has seen it fail a few times.
        mend = "give the machine less to do, or more room," if passing else "mend the fragment"
        failed = FragmentFailed(
            f"fragment {self._name!r} stopped {where}: {_last_words(text)}",
            hint=f"{mend} and start again: it goes on from its last committed epoch",
        )
        failed.passing = passing
        return failed

    def _cause(self) -> str | None:
        """The innermost reason why Spark stopped; None while it runs."""
        if self._stopped or self._query.isActive:
            return None
        error = self._query._jsq.exception()
        cause = error.get() if error.isDefined() else None
        while cause is not None and cause.getCause() is not None:
            cause = cause.getCause()
        return "its Spark query stopped without a word" if cause is None else str(cause.toString())


def _row_hash(frame: DataFrame) -> Column:
    """A hash of all columns; maps, which Spark does not hash, by their text."""
    columns = [
        F.to_json(F.struct(F.col(f"`{f.name}`"))) if _has_map(f.dataType) else F.col(f"`{f.name}`")
        for f in frame.schema.fields
    ]
    return F.xxhash64(*columns)


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return True
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, StructType) and any(_has_map(f.dataType) for f in kind.fields)


def _last_words(text: str) -> str:
    """What a user can act on: the error, or the last line of a Python traceback in it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    traced = any("Traceback (most recent call last)" in line for line in lines)
    named = [line for line in lines if _ERROR.match(line)]
    chosen = named[-1] if traced and named else lines[0] if lines else "unknown"
    java = [found[1] for line in lines if (found := _JAVA_ERROR.match(line))]
    if chosen.startswith("py4j.protocol.") and java:
        chosen = java[-1]
    return chosen.removeprefix("unbroken.errors.")[:500]
