"""Who is scanning the network, and who is guessing passwords?

    connections ─▶ attempts ─▶ alerts ─▶ sink

Two fragments, each on two of three nodes: any node may die at any time.  `attempts` writes an
update whenever a source does more within its ten seconds; `alerts` keeps those that are suspicious,
so one attack gives several alerts with a growing score.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import unbroken as ub

ATTEMPTS_MAX = 120  # connections that one source may make in ten seconds
PORTS_MAX = 25  # different ports that one source may try in ten seconds

PROTECTED = ub.Active(replicas=2)

query = ub.Query("intrusion", epoch="1s")

connections = query.source(
    "connections",
    "ts TIMESTAMP, src STRING, dst STRING, port INT, service STRING",
    event_time="ts",
)


@query.fragment(connections, output_mode="update", policy=PROTECTED)
def attempts(connections: DataFrame) -> DataFrame:
    """What each source did in each ten seconds."""
    return (
        connections.withWatermark("ts", "10 seconds")
        .groupBy("src", F.window("ts", "10 seconds"))
        .agg(
            F.count("*").alias("attempts"),
            F.size(F.collect_set("service")).alias("services"),
            F.size(F.collect_set("port")).alias("ports"),
        )
        .select("src", F.col("window.start").alias("start"), "attempts", "services", "ports")
    )


@query.fragment(attempts, policy=PROTECTED)
def alerts(attempts: DataFrame) -> DataFrame:
    """One row per suspicion: a brute force is many attempts, all at one service."""
    one_service = (F.col("services") == 1) & (F.col("ports") == 1)
    brute_force = (F.col("attempts") > ATTEMPTS_MAX) & one_service
    scan = F.col("ports") > PORTS_MAX
    kind = F.when(brute_force, "brute force").when(scan, "scan")
    score = F.when(brute_force, F.col("attempts")).otherwise(F.col("ports").cast("long"))
    judged = attempts.select("src", "start", kind.alias("kind"), score.alias("score"))
    return judged.where("kind IS NOT NULL")


query.sink(alerts)
