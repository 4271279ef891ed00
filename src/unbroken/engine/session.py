"""The Spark session of a node, set so that epochs are equal everywhere and cheap.

Settings in three groups: those that make replicas equal (`EQUAL`), those that make checkpoints
forkable (`LAYERS`), those that make small epochs cheap (`CHEAP`, each measured; see docs/speed.md).
A user's own settings go on top, except where they would break equality.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from unbroken.engine import archive
from unbroken.engine.files import leave_rights_alone
from unbroken.engine.java import check_java
from unbroken.errors import DefinitionError
from unbroken.query import MEMORY, ROCKSDB

EQUAL = {
    "spark.sql.session.timeZone": "UTC",
    # An extra batch without data closes windows in epoch n here, in n + 1 there (scenario 20).
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Batches are never skipped, grouped or run ahead: the gate alone says what is next.
    "spark.sql.streaming.pollingDelay": "1ms",
    # A plan that depends on sizes at run time may order rows differently on another machine.
    "spark.sql.adaptive.enabled": "false",
}
_STATE = "org.apache.spark.sql.execution.streaming.state"
_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing"
#: By where a fragment keeps its state; Spark reads them when a query is started for the first time.
STATE = {
    ROCKSDB: {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
        # Every attempt at a batch writes layers under names of its own.
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "5",
    },
    MEMORY: {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.HDFSBackedStateStoreProvider",
        # It knows no other; see `plan` for what that excludes.
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
        # A snapshot has all of the state, not what is new.
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "20",
    },
}
LAYERS = {
    **STATE[ROCKSDB],
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
    "spark.sql.streaming.minBatchesToRetain": "10",
}
CHEAP = {
    # Spark's default starts some forty small processes per batch on a local folder.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_FILE_MANAGER}.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
    # Rows of a simple source go into Spark's block store one by one, serialized: Java's own
    # serializer stood out in the profile.
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryoserializer.buffer.max": "1g",
    # Spark sizes memory pages for large jobs (16 MiB and more) and every hash table of every task
    # clears one: a sixth of a small epoch's time.  Larger tables take more pages.
    "spark.buffer.pageSize": "1m",
    # Every batch describes its plans for a UI that nobody opens.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "256",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.shuffle.partitions": "2",
    # Fragments of one node take turns instead of queueing behind the largest.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.appStatus.maxJobs": "20",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.authenticate.socketTimeout": "60s",
    # Without it, a query that does not end would be waited for for ever.
    "spark.sql.streaming.stopTimeout": "30s",
}

#: The name of a socket has 107 bytes at most, and Spark's own part of it takes some 45.
SOCKET_FOLDER_BYTES_MAX = 60


def session(
    name: str,
    *,
    master: str,
    scratch: Path,
    memory: str = "1g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Starts the one Spark session of this process."""
    java = check_java()
    refused = sorted(set(settings or {}) & (set(EQUAL) | set(LAYERS)))
    if refused:
        raise DefinitionError(
            f"settings that Unbroken must choose itself: {', '.join(refused)}",
            hint="replicas would write different epochs, or checkpoints could not be forked",
        )
    # Workers must run this very Python: another version may compute something else.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["TZ"] = "UTC"
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**CHEAP, **LAYERS, **(settings or {}), **EQUAL}.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.driver.memory", memory)
    builder = builder.config("spark.local.dir", str(scratch))
    builder = builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    builder = builder.config(
        "spark.driver.extraJavaOptions",
        # A small heap of a long-lived process: return what is not used, and don't take all cores.
        "-XX:+UseSerialGC -Duser.timezone=UTC -Xss4m "
        # Hadoop starts a chmod for every file that it creates (but see `files`).
        "-Djdk.lang.Process.launchMechanism=VFORK "
        # What a JVM that is killed leaves behind goes with the node's folder.
        f'"-Djava.io.tmpdir={scratch}" {archive.options(java.text)}',
    )
    for key, value in _sockets(master, scratch).items():
        builder = builder.config(key, value)
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    jvm: Any = spark._jvm
    # It would warn of every plan text that the setting above cuts: two lines per epoch, for ever.
    logs = jvm.org.apache.logging.log4j
    logs.core.config.Configurator.setLevel(
        "org.apache.spark.sql.catalyst.util.StringUtils", logs.Level.ERROR
    )
    if master.startswith("local"):
        _forget_defaults(spark)
        leave_rights_alone(spark)
    else:
        # Half of those files are checksums of Hadoop's; nothing of ours reads them.
        files = jvm.org.apache.hadoop.fs.FileSystem
        files.getLocal(spark._jsc.hadoopConfiguration()).setWriteChecksum(False)
    return spark


def _sockets(master: str, scratch: Path) -> dict[str, str]:
    """How Spark talks to its Python processes: by sockets that are files, where it can.

    Over TCP every epoch of some runs took 40 ms longer, and of others none did: as if the end of
    what does not fit into 64 KiB waited for a delayed confirmation (docs/speed.md).
    """
    if not master.startswith("local") or len(os.fsencode(scratch)) > SOCKET_FOLDER_BYTES_MAX:
        return {}
    scratch.mkdir(parents=True, exist_ok=True)
    scratch.chmod(0o700)  # No secret is asked for at these.
    option = "spark.python.unix.domain.socket"
    return {f"{option}.enabled": "true", f"{option}.dir": str(scratch)}


def _forget_defaults(spark: SparkSession) -> None:
    """Takes Hadoop's defaults out of the settings that Spark sends to every state store.

    There are 1,100 of them, and Spark serializes all of them twice per micro-batch: a twentieth of
    the JVM's work for a small epoch (docs/speed.md).  Each stands in Hadoop's code too; what
    an administrator or a user has set stays.  On a cluster they are left alone: other file systems
    may look for theirs here.
    """
    hadoop: Any = spark._jvm.org.apache.hadoop.conf.Configuration  # type: ignore[union-attr]
    settings = spark._jsc.hadoopConfiguration()
    defaults = hadoop(False)
    for part in ("core", "hdfs", "mapred", "yarn"):
        defaults.addResource(f"{part}-default.xml")
    own = settings.getValByRegex(".*")
    own.entrySet().removeAll(defaults.getValByRegex(".*").entrySet())
    settings.clear()
    for name, value in dict(own).items():
        settings.set(name, value)


def jvm_has_ended(wait_s: float = 5.0) -> bool:
    """Whether this process has lost its JVM; what py4j raises then comes a little before its end.

    >>> jvm_has_ended()  # Nobody has started one.
    False
    """
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return False
    try:
        gateway.proc.wait(wait_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def leave_with_jvm(spark: SparkSession) -> None:
    """Ends this process when its JVM ends, out of memory say: half a node is worse than none."""
    gateway: Any = spark.sparkContext._gateway

    def wait() -> None:
        code = gateway.proc.wait()
        print(f"the JVM has ended ({code}), and so does this node", file=sys.stderr, flush=True)
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="jvm").start()
