"""What only Spark can tell before anything starts: errors with the user's line, fingerprints."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import unbroken as ub
from unbroken.engine import plan
from unbroken.engine.session import session
from unbroken.engine.source import EpochSource
from unbroken.errors import DefinitionError

DDL = "ts TIMESTAMP, k INT, v DOUBLE"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made = session("plans", master="local[1]", scratch=tmp_path_factory.mktemp("scratch"))
    made.dataSource.register(EpochSource)
    yield made
    made.stop()


def analyzed(spark: Any, function: Callable[..., Any], mode: str = "append") -> plan.Plan:
    query = ub.Query("q", epoch="manual")
    rows = query.source("rows", DDL, event_time="ts")
    query.sink(query.fragment(rows, output_mode=mode)(function, name="made"))
    return plan.analyze_all(spark, query)["made"]


def test_an_unknown_column_is_reported_with_the_line_of_the_users_file(spark: Any):
    def wrong(rows):
        good = rows.where("k > 0")
        return good.select("nothing")

    line = inspect.getsourcelines(wrong)[1] + 2
    with pytest.raises(DefinitionError, match=rf"test_plan\.py:{line}: fragment 'made'.*nothing"):
        analyzed(spark, wrong)


def test_a_fragment_that_does_not_return_a_streaming_dataframe_is_refused(spark: Any):
    with pytest.raises(DefinitionError, match=r"test_plan\.py:\d+: .*returns int"):
        analyzed(spark, lambda rows: 5)
    with pytest.raises(DefinitionError, match="does not return a streaming DataFrame"):
        analyzed(spark, lambda rows: spark.range(3))


def test_what_spark_cannot_run_in_an_output_mode_is_said_before_anything_starts(spark: Any):
    def counts(rows):
        return rows.groupBy("k").count()

    with pytest.raises(DefinitionError, match="append mode"):
        analyzed(spark, counts)
    assert analyzed(spark, counts, "update").stateful


def test_two_columns_of_one_name_are_refused(spark: Any):
    with pytest.raises(DefinitionError, match="two columns of one name: k"):
        analyzed(spark, lambda rows: rows.select("k", (F.col("v") + 1).alias("k")))


def test_operators_and_watermarks_are_read_off_the_plan(spark: Any):
    def windows(rows):
        marked = rows.withWatermark("ts", "10 seconds")
        return marked.groupBy(F.window("ts", "5 seconds"), "k").agg(F.sum("v").alias("total"))

    made = analyzed(spark, windows)
    assert [text.split(":")[0] for text in made.stateful] == ["aggregate"]
    assert [mark.text for mark in made.watermarks] == ["ts: timestamp, 10 seconds"]
    assert made.schema.names == ["window", "k", "total"]
    assert not analyzed(spark, lambda rows: rows.where("k = 1")).stateful


LIMIT = 1


def with_constant(rows):
    return rows.where(F.col("k") > LIMIT)


def test_the_fingerprint_names_code_settings_and_nothing_else(
    spark: Any, monkeypatch: pytest.MonkeyPatch
):
    """Scenario 26: other code or settings do not merge; the same code on another node does."""
    first = analyzed(spark, with_constant).fingerprint
    assert analyzed(spark, with_constant).fingerprint == first
    monkeypatch.setitem(globals(), "LIMIT", 2)
    assert analyzed(spark, with_constant).fingerprint != first
    monkeypatch.undo()
    assert analyzed(spark, with_constant, "update").fingerprint != first
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    assert analyzed(spark, with_constant).fingerprint != first
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert analyzed(spark, with_constant).fingerprint == first


def test_settings_that_would_break_equality_are_refused(tmp_path: Path):
    with pytest.raises(DefinitionError, match="noDataMicroBatches"):
        session(
            "x",
            master="local[1]",
            scratch=tmp_path,
            settings={"spark.sql.streaming.noDataMicroBatches.enabled": "true"},
        )
