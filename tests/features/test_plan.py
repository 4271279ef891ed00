"""What only Spark can tell before anything starts: errors with the user's line, fingerprints."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cells
import kinds
import pytest
import recovery_query
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

import unbroken as ub
from unbroken.cli.explain import describe, words
from unbroken.demo.queries import two_sites
from unbroken.engine import plan
from unbroken.engine.session import session
from unbroken.engine.source import EpochSource
from unbroken.errors import DefinitionError
from unbroken.policies import Policy
from unbroken.policies.guarantee import guarantee
from unbroken.policies.traits import OperatorClass, Traits
from unbroken.testing import own_life, pieces_of, simulate

DDL = "ts TIMESTAMP, k INT, v DOUBLE"


@pytest.fixture(scope="module")
def chmods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a line is written for every `chmod` that a process of ours starts."""
    folder = tmp_path_factory.mktemp("bin")
    noted, program = folder / "noted", folder / "chmod"
    noted.touch()
    program.write_text(f'#!/bin/sh\necho "$@" >> {noted}\nexec {shutil.which("chmod")} "$@"\n')
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield noted


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, chmods: Path) -> Iterator[Any]:
    scratch, own = tmp_path_factory.mktemp("scratch"), {"spark.hadoop.dfs.replication": "7"}
    made = session("plans", master="local[1]", scratch=scratch, settings=own)
    made.dataSource.register(EpochSource)
    yield made
    made.stop()


def analyzed(
    spark: Any, function: Callable[..., Any], mode: str = "append", policy: Policy | None = None,
    state: str = "rocksdb", **bound: str,
) -> plan.Plan:  # fmt: skip
    query = ub.Query("q", epoch="manual")
    rows = query.source("rows", DDL, event_time="ts")
    fragment = query.fragment(rows, output_mode=mode, policy=policy, state=state, **bound)
    query.sink(fragment(function, name="made"))
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


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (kinds.per_key_processor.function, "transformWithState needs RocksDB"),
        (lambda rows: rows.withColumn("r", F.rand()).groupBy("k").max("r"), r"rand\(\) answers"),
    ],
)
def test_state_that_cannot_be_kept_in_memory_is_refused(spark: Any, kind: Any, what: str):
    with pytest.raises(DefinitionError, match=rf"test_plan\.py:\d+: .* in memory: {what}"):
        analyzed(spark, kind, "update", state="memory")


def test_settings_that_would_break_equality_are_refused(tmp_path: Path):
    with pytest.raises(DefinitionError, match="noDataMicroBatches"):
        session(
            "x",
            master="local[1]",
            scratch=tmp_path,
            settings={"spark.sql.streaming.noDataMicroBatches.enabled": "true"},
        )


def test_hadoops_defaults_are_left_out_and_what_users_set_stays(spark: Any):
    """A thousand of them went to every state store of every micro-batch (docs/speed.md)."""
    hadoop = spark._jsc.hadoopConfiguration()
    assert 0 < hadoop.size() < 100
    assert hadoop.get("dfs.replication") == "7"


def marked(rows: Any) -> Any:
    return rows.withWatermark("ts", "10 seconds")


def second(rows: Any) -> Any:
    """The same stream with other names, for joins."""
    return marked(rows).select(F.col("k").alias("k2"), F.col("ts").alias("ts2"))


class Keeper(StatefulProcessor):
    """Only planned, never run."""

    def init(self, handle: Any) -> None: ...

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield from ()

    def close(self) -> None: ...


def keeper(rows: Any, time: str) -> Any:
    return rows.groupBy("k").transformWithStateInPandas(Keeper(), "k INT", "append", time)


def differing() -> Any:
    """A gap that depends on the row."""
    return F.when(F.col("k") > 1, "5 seconds").otherwise("1 second")


def per_key(rows: Any, timeout: str) -> Any:
    return rows.groupBy("k").applyInPandasWithState(
        lambda key, frames, state: iter(()), "k INT", "n INT", "append", timeout
    )


#: Functions of rows, the operator that must be named, how far back its state reaches.
REPEATABLE: dict[str, Callable[..., Any]] = {
    "filter and map": lambda rows: rows.where("v > 0").select((F.col("v") * 2).alias("w")),
    "explode": lambda rows: rows.select(F.explode(F.array("k", "k"))),
    "a watermark alone": lambda rows: marked(rows).select("ts"),
    "union": lambda rows: rows.union(rows),
    "a name like rand": lambda rows: rows.select(F.lit("rand()").alias("uuid")),
    "a table in the plan": lambda rows: rows.join(rows.sparkSession.range(3), F.expr("k = id")),
}
BOUNDED: dict[str, tuple[Callable[..., Any], str, float | None]] = {
    "windows": (
        lambda rows: marked(rows).groupBy(F.window("ts", "5 seconds"), "k").count(),
        "aggregate by window, k", 5.0),
    "sliding windows": (
        lambda rows: marked(rows).groupBy(F.window("ts", "1 minute", "5 seconds")).count(),
        "aggregate by window", 60.0),
    "order-sensitive aggregates, fed in canonical order": (
        lambda rows: marked(rows).groupBy(F.window("ts", "5 seconds")).agg(
            F.first("v"), F.last("v"), F.collect_list("v"), F.sum("v")),
        "aggregate by window", 5.0),
    "grouped by event time": (lambda rows: marked(rows).groupBy("ts").count(),
                              "aggregate by ts", 0.0),
    "duplicates by event time": (lambda rows: marked(rows).dropDuplicates(["ts", "k"]),
                                 "duplicate removal by ts, k", 0.0),
    "duplicates within the watermark": (
        lambda rows: marked(rows).dropDuplicatesWithinWatermark(["k"]),
        "duplicate removal within the watermark by k", 10.0),
    "a join with a range of time": (
        lambda rows: marked(rows).join(second(rows), F.expr(
            "k = k2 AND ts2 BETWEEN ts AND ts + INTERVAL 8 SECONDS")),
        "join of streams on ", 8.001),
    "a join by event time": (
        lambda rows: marked(rows).join(second(rows), F.expr("k = k2 AND ts = ts2")),
        "join of streams on ", 0.0),
    "windows of windows": (
        lambda rows: marked(rows).groupBy(F.window("ts", "5 seconds")).count()
        .groupBy(F.window("window", "20 seconds")).count(),
        "aggregate by window", 25.0),
    "sessions": (
        lambda rows: marked(rows).groupBy(F.session_window("ts", "5 seconds"), "k").count(),
        "aggregate by session_window, k", None),
    "sessions with gaps that differ": (
        lambda rows: marked(rows).groupBy(F.session_window("ts", differing()), "k").count(),
        "aggregate by session_window, k", None),
    "windows over a union of which one part has no watermark": (
        lambda rows: marked(rows).union(rows).groupBy(F.window("ts", "5 seconds")).count(),
        "aggregate by window", None),
    "event-time timers": (lambda rows: keeper(marked(rows), "EventTime"),
                          "state per key (Python)", None),
    "event-time timeouts": (
        lambda rows: per_key(marked(rows), GroupStateTimeout.EventTimeTimeout),
        "state per key (pandas) by k", None),
}  # fmt: skip
UNBOUNDED: dict[str, tuple[Callable[..., Any], str]] = {
    "counts": (lambda rows: rows.groupBy("k").count(), "aggregate by k"),
    "a watermark that no key carries": (
        lambda rows: marked(rows).groupBy("k").count(), "aggregate by k"),
    "a key computed from the event time": (
        lambda rows: marked(rows).groupBy(F.date_trunc("hour", "ts").alias("h")).count(),
        "aggregate by date_trunc("),
    "windows without a watermark": (
        lambda rows: rows.groupBy(F.window("ts", "5 seconds")).count(), "aggregate by window"),
    "duplicates": (lambda rows: marked(rows).dropDuplicates(["k"]), "duplicate removal by k"),
    "a join by key": (
        lambda rows: marked(rows).join(second(rows), F.expr("k = k2")), "join of streams on "),
    "a join bounded on one side": (
        lambda rows: marked(rows).join(second(rows), F.expr("k = k2 AND ts2 >= ts")),
        "join of streams on "),
    "timers of nobody": (lambda rows: keeper(rows, "None"), "state per key (Python)"),
    "state for ever": (lambda rows: per_key(rows, GroupStateTimeout.NoTimeout),
                       "state per key (pandas) by k"),
    "limit": (lambda rows: rows.limit(3), "limit"),
}  # fmt: skip
ARBITRARY: dict[str, tuple[Callable[..., Any], str]] = {
    "rand": (lambda rows: rows.select(F.rand(42)), "rand()"),
    "randn": (lambda rows: rows.where(F.randn() > 0), "randn()"),
    "uuid": (lambda rows: rows.select(F.concat(F.expr("uuid()"), F.lit("x"))), "uuid()"),
    "shuffle": (lambda rows: rows.select(F.shuffle(F.array("k"))), "shuffle()"),
    "current_timestamp": (lambda rows: rows.select(F.current_timestamp()), "current_timestamp()"),
    "now": (lambda rows: rows.withColumn("at", F.now()), "now()"),
    "current_date": (lambda rows: rows.where("current_date() > ts"), "current_date()"),
    "localtimestamp": (lambda rows: rows.select(F.localtimestamp()), "localtimestamp()"),
    "unix_timestamp": (lambda rows: rows.select(F.unix_timestamp()), "current_timestamp()"),
    "partition": (lambda rows: rows.select(F.spark_partition_id()), "spark_partition_id()"),
    "file": (lambda rows: rows.select(F.input_file_name()), "input_file_name()"),
    "a sample of a table": (
        lambda rows: rows.join(rows.sparkSession.range(9).sample(0.5), F.expr("k = id")),
        "sample()"),
    "declared": (lambda rows: rows.select(F.udf(len, "int").asNondeterministic()("k")),
                 "Python function 'len', declared so"),
    "below state": (
        lambda rows: rows.withColumn("v", F.rand()).groupBy("k").sum("v"), "rand()"),
    "inside state": (lambda rows: rows.groupBy("k").agg(F.max(F.now())), "now()"),
    "processing-time timers": (lambda rows: keeper(rows, "ProcessingTime"),
                               "processing-time timers of state per key (Python)"),
    "processing-time timeouts": (
        lambda rows: per_key(rows, GroupStateTimeout.ProcessingTimeTimeout),
        "processing-time timers of state per key (pandas) by k"),
}  # fmt: skip


def traits(spark: Any, function: Callable[..., Any]) -> Traits:
    """In the mode in which Spark takes it."""
    try:
        return analyzed(spark, function).traits
    except DefinitionError:
        return analyzed(spark, function, "update").traits


@pytest.mark.parametrize("case", REPEATABLE)
def test_what_keeps_no_state_is_repeatable(spark: Any, case: str):
    assert traits(spark, REPEATABLE[case]) == Traits(delay_s=10.0 if "watermark" in case else 0.0)


@pytest.mark.parametrize("case", BOUNDED)
def test_what_a_watermark_bounds_is_convergent_capable(spark: Any, case: str):
    """And its history is as long as Spark keeps rows behind the watermark."""
    function, operator, history_s = BOUNDED[case]
    made = traits(spark, function)
    assert made.operator_class.value == "convergent-capable"
    assert made.decided_by.name.startswith(operator)
    assert (made.stateful, made.delay_s, made.unbounded) == (True, 10.0, ())
    assert made.history_s == history_s
    assert bool(made.endless) == (history_s is None)


@pytest.mark.parametrize("case", UNBOUNDED)
def test_state_without_a_bound_is_deterministic(spark: Any, case: str):
    function, operator = UNBOUNDED[case]
    made = traits(spark, function)
    assert made.operator_class.value == "deterministic"
    assert made.decided_by.name.startswith(operator)
    assert made.unbounded == (made.decided_by,)
    assert made.history_s is None


@pytest.mark.parametrize("case", ARBITRARY)
def test_what_answers_differently_each_time_is_arbitrary(spark: Any, case: str):
    """Spark calls half of these deterministic."""
    function, operator = ARBITRARY[case]
    made = traits(spark, function)
    assert (made.operator_class.value, made.decided_by.name) == ("arbitrary", operator)


def test_the_operator_that_decides_is_found_in_the_users_file(spark: Any):
    def noisy(rows):
        seen = rows.select("k", F.col("v"))
        return seen.withColumn("id", F.uuid())  # not rand, whatever a comment says

    def counts(rows):
        return (
            rows.where("v > 0")
            .groupBy("k")
            .count()
        )  # fmt: skip

    first = inspect.getsourcelines(noisy)[1]
    assert str(traits(spark, noisy).decided_by) == f"uuid() (test_plan.py:{first + 2})"
    first = inspect.getsourcelines(counts)[1]
    assert str(traits(spark, counts).decided_by) == f"aggregate by k (test_plan.py:{first + 3})"


def test_python_is_believed_and_said_to_be(spark: Any):
    def mapped(rows):
        plus = F.udf(lambda k: k + 1, "int")
        return rows.select(plus("k").alias("k")).mapInPandas(lambda frames: frames, "k INT")

    made = traits(spark, mapped)
    assert made.operator_class.value == "repeatable"
    assert made.declared == ("Python function '<lambda>': deterministic",)


def test_a_file_beside_the_stream_is_believed_too(spark: Any, tmp_path: Path):
    (tmp_path / "names.csv").write_text("1,ada\n")
    names = spark.read.schema("id INT, name STRING").csv(str(tmp_path))
    (declared,) = traits(spark, lambda rows: rows.join(names, F.expr("k = id"))).declared
    assert declared.endswith("the same in every epoch")


def test_only_what_forgets_may_give_up_instead_of_correct(spark: Any):
    """`when_healed="converge"`: read off the plan, with the line of the operator that does not."""
    converges = {"max_delay": "3s", "when_healed": "converge"}

    def counts(rows):
        return rows.groupBy("k").count()

    def windows(rows):
        marked = rows.withWatermark("ts", "2 seconds")
        return marked.groupBy(F.window("ts", "2 seconds")).count()

    line = inspect.getsourcelines(counts)[1] + 1
    with pytest.raises(DefinitionError, match=rf"^test_plan\.py:{line}: .*cannot converge") as told:
        analyzed(spark, counts, "update", **converges)
    assert 'when_healed="correct"' in told.value.hint
    assert analyzed(spark, counts, "update", max_delay="3s").traits.stateful
    assert analyzed(spark, windows, **converges).traits.stateful
    assert not analyzed(spark, lambda rows: rows.where("k > 0"), **converges).traits.stateful


def test_a_policy_that_cannot_protect_a_fragment_is_refused_before_anything_starts(spark: Any):
    """Scenarios 4 and 6, with the line of the operator and not only of the fragment."""

    def counts(rows):
        grouped = rows.groupBy("k")
        return grouped.count()

    line = inspect.getsourcelines(counts)[1] + 1
    with pytest.raises(DefinitionError, match=rf"^test_plan\.py:{line}: .*cannot be upstream"):
        analyzed(spark, counts, "update", ub.Upstream())
    assert analyzed(spark, counts, "update", ub.Active()).traits.stateful

    def noisy(rows):
        return rows.select(F.rand())

    with pytest.raises(DefinitionError, match=r"cannot be active: rand\(\)"):
        analyzed(spark, noisy, policy=ub.Active())
    assert analyzed(spark, noisy, policy=ub.Passive()).traits.decided_by.name == "rand()"


#: Sessions that upstream backup cannot protect, and what is said of them.
REFUSED_SESSIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "windows of sessions": (
        lambda rows: marked(rows).groupBy(F.session_window("ts", "5 seconds"), "k").count()
        .groupBy(F.window(F.window_time("session_window"), "1 minute")).count(),
        "another operator with state"),
    "sessions without duplicates": (
        lambda rows: marked(rows).dropDuplicates(["ts", "k"])
        .groupBy(F.session_window("ts", "5 seconds"), "k").count(),
        "another operator with state"),
    "two keys with a watermark": (
        lambda rows: marked(rows).groupBy(F.session_window("ts", "5 seconds"), "ts").count(),
        "the watermark is on other keys of it, too"),
    "a union of which one part has no watermark": (
        lambda rows: marked(rows).union(rows)
        .groupBy(F.session_window("ts", "5 seconds"), "k").count(),
        "rows come to it that have passed no watermark"),
    "sessions without a watermark": (
        lambda rows: rows.groupBy(F.session_window("ts", "5 seconds"), "k").count(),
        "append mode"),
    "timers": (lambda rows: keeper(marked(rows), "EventTime"), "by its timers"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_SESSIONS)
def test_state_of_any_age_is_refused_by_upstream_backup(spark: Any, case: str):
    function, said = REFUSED_SESSIONS[case]
    with pytest.raises(DefinitionError, match=said):
        analyzed(spark, function, policy=ub.Upstream())


@pytest.mark.parametrize("gap", ["fixed", "differing"])
def test_sessions_alone_are_protected_by_upstream_backup(spark: Any, gap: str):
    """Their state tells how old the oldest is; `explain` says what that means for producers."""
    query = ub.Query("q", epoch="1s")
    rows = query.source("rows", DDL, event_time="ts")

    @query.fragment(rows, policy=ub.Upstream())
    def visits(rows):
        length = "5 seconds" if gap == "fixed" else differing()
        return marked(rows).groupBy(F.session_window("ts", length), "k").count()

    query.sink(visits)
    plans = plan.analyze_all(spark, query)
    assert plans["visits"].traits.sessions
    made = describe(query, plans)["fragments"]["visits"]
    assert (made["class"], made["merging"]) == ("convergent-capable", "precise")
    assert "from the first row of the oldest open session" in made["keeps"]
    assert made["keeps_epochs"] is None
    assert "never falls quiet makes producers keep everything" in made["warnings"][0]


def test_explain_says_for_every_fragment_what_a_failure_does(spark: Any):
    """The words and the JSON carry the same."""
    query = ub.Query("q", epoch="1s")
    rows = query.source("rows", DDL, event_time="ts")

    @query.fragment(rows, policy=ub.Passive(interval="3s"), max_delay="3s")
    def noisy(rows):
        return rows.select("ts", F.rand().alias("v"))

    @query.fragment(noisy, policy=ub.Upstream())
    def windows(noisy):
        return marked(noisy).groupBy(F.window("ts", "5 seconds")).count()

    query.sink(windows)
    graph = describe(query, plan.analyze_all(spark, query))
    text = words(graph)
    made = graph["fragments"]["windows"]
    assert (made["class"], made["merging"], made["plain"]) == (
        "convergent-capable", "precise", "convergent"
    )  # fmt: skip
    assert (made["keeps_epochs"], made["survives"], made["warnings"]) == (33, 1, [])
    for said in ("decided_by", "needs", "keeps", "failure_costs"):
        assert made[said] in text
    warned = graph["fragments"]["noisy"]["warnings"]
    assert len(warned) == 2
    assert all(f"  warning   {each}" in text for each in warned)
    assert "  cut off   waits: without its only input there is nothing to go on with" in text


def test_the_simulator_has_an_operator_like_it(spark: Any):
    """`unbroken sim FILE.py` simulates what Spark says about the query."""
    query = ub.Query("q", epoch="1s")
    rows, others = query.source("rows", DDL, event_time="ts"), query.source("others", DDL)

    @query.fragment(rows, others, policy=ub.Upstream())
    def pairs(rows, others):
        other = others.withWatermark("ts", "1 second").selectExpr("ts AS t", "k AS l")
        close = F.expr("k = l AND t BETWEEN ts AND ts + INTERVAL 1 SECOND")
        return marked(rows).join(other, close)

    query.sink(pairs)
    plans = {**plan.analyze_all(spark, two_sites.query), **plan.analyze_all(spark, query)}
    traits = {name: each.traits for name, each in plans.items()}
    made = [*pieces_of(two_sites.query, traits), *pieces_of(query, traits)]
    assert {piece.name: piece.operator for piece in made} == {
        "eastern": "map", "western": "map", "attempts": "union", "alerts": "map", "pairs": "join"
    }  # fmt: skip
    for life in (own_life(two_sites.query, traits, 1), own_life(query, traits, 1)):
        assert simulate(life).violation is None


def test_every_cell_of_class_and_policy_that_is_not_refused_is_run_under_failures(spark: Any):
    """`test_guarantees` and `test_recovery` have them between them, as Spark's plans say."""
    policies = (ub.Active(), ub.Passive(), ub.Upstream(), ub.Gap())
    all_cells = {(p.name, c) for p in policies for c in OperatorClass if guarantee(p, c)}
    run = set()
    for query in (cells.query, recovery_query.query):
        plans = plan.analyze_all(spark, query)
        graph = describe(query, plans)["fragments"]
        for name, fragment in query.fragments.items():
            each = plans[name].traits.operator_class
            run.add((fragment.policy.name, each))
            if name in cells.CELLS:
                stated = guarantee(fragment.policy, each)
                assert stated is not None
                assert each is cells.CELLS[name][0]
                assert graph[name]["merging"] == stated.merging.value
    assert run == all_cells


def test_no_process_is_started_for_a_file_that_spark_writes(
    spark: Any, chmods: Path, tmp_path: Path
):
    """Nor a checksum written: Hadoop would do both, for every file of every checkpoint."""
    written = tmp_path / "checkpoint" / "offsets" / "0"
    where = spark._jvm.org.apache.hadoop.fs.Path(str(written))
    for settings in (
        spark._jsc.hadoopConfiguration(),
        spark._jsparkSession.sessionState().newHadoopConf(),
        spark._jvm.org.apache.hadoop.conf.Configuration(),  # As it comes out of a broadcast.
    ):
        chmods.write_text("")
        where.getFileSystem(settings).create(where, True).close()
        assert chmods.read_text() == ""
        assert os.listdir(written.parent) == ["0"]
    plain = tmp_path / "plain"
    plain.touch()
    assert written.stat().st_mode == plain.stat().st_mode
