"""Who is scanning the network, and who is guessing passwords, at two sites at once?

    east ─▶ eastern ─┐
                     ├─▶ attempts ─▶ alerts ─▶ sink
    west ─▶ western ─┘

An attacker may show at one site or at both, so `attempts` reads both.  When it hears nothing of one
of them it goes on with the other after three seconds, and says that what it finds is tentative; so
does `alerts`.  When the network heals, every tentative alert is confirmed or withdrawn.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import unbroken as ub

ATTEMPTS_MAX = 120  # connections that one source may make in ten seconds
PORTS_MAX = 25  # different ports that one source may try in ten seconds

CONNECTIONS = "ts TIMESTAMP, src STRING, dst STRING, port INT, service STRING"

query = ub.Query("two_sites", epoch="1s")

east = query.source("east", CONNECTIONS, event_time="ts")
west = query.source("west", CONNECTIONS, event_time="ts")


@query.fragment(east)
def eastern(east: DataFrame) -> DataFrame:
    """What the eastern site passes on: who tried what, and when."""
    return east.select("ts", "src", "port", "service")


@query.fragment(west)
def western(west: DataFrame) -> DataFrame:
    """The same in the west."""
    return west.select("ts", "src", "port", "service")


@query.fragment(eastern, western, output_mode="update", max_delay="3s", when_cut="process")
def attempts(eastern: DataFrame, western: DataFrame) -> DataFrame:
    """What each source did in each ten seconds, at both sites together."""
    both = eastern.withWatermark("ts", "10 seconds").union(
        western.withWatermark("ts", "10 seconds")
    )
    return (
        both.groupBy("src", F.window("ts", "10 seconds"))
        .agg(
            F.count("*").alias("attempts"),
            F.size(F.collect_set("service")).alias("services"),
            F.size(F.collect_set("port")).alias("ports"),
        )
        .select("src", F.col("window.start").alias("start"), "attempts", "services", "ports")
    )


@query.fragment(attempts, max_delay="3s", when_cut="process")
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
