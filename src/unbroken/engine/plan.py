"""Reads a fragment off Spark's analyzed plan: schema, operators and their class, watermarks.

The user's function is called with streaming DataFrames that nothing feeds, so all of this works
before anything starts; what Spark refuses, and what the fragment's policy cannot protect, is
reported with the line of the user's file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from unbroken.engine import operators
from unbroken.engine.fingerprint import fingerprint, tidy
from unbroken.engine.history import items
from unbroken.engine.source import FORMAT
from unbroken.errors import DefinitionError
from unbroken.policies import Upstream, guarantee
from unbroken.policies.traits import OperatorClass, Traits
from unbroken.query import MEMORY, Fragment, Query, Source


@dataclass(frozen=True)
class Watermark:
    """One `withWatermark` of a fragment."""

    node_id: str
    text: str
    #: The streams whose rows pass it.
    inputs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Plan:
    """What Spark knows about a fragment before it runs."""

    frame: DataFrame
    schema: pa.Schema
    stateful: tuple[str, ...]
    watermarks: tuple[Watermark, ...]
    event_time: str | None
    #: The class of its operators, who decides it, and how far back their state reaches.
    traits: Traits
    fingerprint: str
    #: Whether a checkpoint counts only with a note of every operator's watermark: Spark keeps one
    #: for all, and a seed must know each of them.
    notes_watermarks: bool
    #: Where Spark keeps its state.
    state: str
    #: What its sources were told: the door, the replica's term, who reads.
    options: Mapping[str, str]
    #: The schemas of its inputs.
    inputs: Mapping[str, pa.Schema]


def analyze(
    spark: SparkSession,
    query: Query,
    fragment: Fragment,
    inputs: Mapping[str, pa.Schema],
    options: Mapping[str, str] | None = None,
    *,
    traits: Traits | None = None,
) -> Plan:
    """Calls the user's function and reads the plan of what it returns."""
    frames = [
        spark.readStream.format(FORMAT)
        .schema(from_arrow_schema(inputs[name]))
        .options(**{"input": name, **(options or {})})
        .load()
        for name in fragment.inputs
    ]
    try:
        frame = fragment.function(*frames)
        if not isinstance(frame, DataFrame):
            raise DefinitionError(
                f"{fragment.where}: fragment {fragment.name!r} returns "
                f"{type(frame).__name__}, not a DataFrame",
                hint="return the transformed streaming DataFrame",
            )
        streaming = frame.isStreaming
        schema = _arrow_schema(frame)
    except DefinitionError:
        raise
    except Exception as error:  # The user's code may raise anything.
        line = _user_line(fragment, error)
        what = error.getMessage() if isinstance(error, PySparkException) else repr(error)
        raise DefinitionError(
            f"{line}: fragment {fragment.name!r} cannot be analysed: {_first_lines(what)}",
            hint="see what the function does with its DataFrames at that line",
        ) from error
    if not streaming:
        raise DefinitionError(
            f"{fragment.where}: fragment {fragment.name!r} does not return a streaming DataFrame",
            hint="build the result from the function's parameters",
        )
    nodes = list(_nodes(frame._jdf.queryExecution().analyzed()))
    _check_supported(fragment, frame)
    if traits is None:  # Known from an earlier look: reading them takes a tenth of a second.
        traits = operators.read(nodes, fragment.function)
    guarantee.check(fragment.name, fragment.where, fragment.policy, traits)
    if fragment.bound is not None and fragment.bound.converges:
        guarantee.check_converges(fragment.name, fragment.where, traits)
    if fragment.state == MEMORY:
        _check_memory(fragment, nodes, traits)
    watermarks = tuple(_watermarks(nodes))
    shown = [tidy(node.simpleString(1000)) for node in nodes if not _is_leaf(node)]
    return Plan(
        frame=frame,
        schema=schema,
        stateful=tuple(_stateful(nodes)),
        watermarks=watermarks,
        event_time=_event_time(schema, frame),
        traits=traits,
        fingerprint=fingerprint(spark, fragment, inputs, shown),
        notes_watermarks=len(watermarks) > (0 if isinstance(fragment.policy, Upstream) else 1),
        state=fragment.state,
        options=dict(options or {}),
        inputs={name: inputs[name] for name in fragment.inputs},
    )


def analyze_all(spark: SparkSession, query: Query) -> dict[str, Plan]:
    """All fragments, in the order of the data."""
    known: dict[str, pa.Schema] = {}
    plans: dict[str, Plan] = {}
    for stream in query.check():
        if isinstance(stream, Source):
            known[stream.name] = stream.schema
        else:
            plan = analyze(spark, query, stream, known)
            plans[stream.name] = plan
            known[stream.name] = plan.schema
    return plans


def _check_memory(fragment: Fragment, nodes: list[Any], traits: Traits) -> None:
    """What Spark cannot keep in memory, and what we cannot fork from there."""
    what = ""
    if any(node.nodeName().startswith("TransformWithState") for node in nodes):
        what = "transformWithState needs RocksDB"
    elif traits.operator_class is OperatorClass.ARBITRARY and traits.stateful:
        # Its files have one name for all attempts: that of a failed one would stay.
        what = f"{traits.decided_by.name} answers differently when an epoch is computed again"
    if what:
        raise DefinitionError(
            f"{fragment.where}: fragment {fragment.name!r} cannot keep its state in memory: {what}",
            hint='leave out state="memory"',
        )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in items(plan.children()):
        yield from _nodes(child)


def _stateful(nodes: list[Any]) -> Iterator[str]:
    for node in nodes:
        if operators.is_stateful(node):
            yield f"{operators.STATEFUL[node.nodeName()]}: {tidy(node.simpleString(8))}"


def _watermarks(nodes: list[Any]) -> Iterator[Watermark]:
    seen = set()
    for node in nodes:
        if node.nodeName() == "EventTimeWatermark":
            node_id = node.nodeId().toString()
            if node_id not in seen:  # A self-join meets one operator twice.
                seen.add(node_id)
                text = tidy(node.simpleString(8)).removeprefix("EventTimeWatermark")
                yield Watermark(node_id, text.lstrip(" ,"), frozenset(_streams(node)))


def _streams(node: Any) -> Iterator[str]:
    """The streams that an operator reads, by the option that their sources were given."""
    for each in _nodes(node):
        if each.nodeName() == "StreamingRelationV2":
            name = each.extraOptions().get("input")
            if name is not None:
                yield str(name)


def _event_time(schema: pa.Schema, frame: DataFrame) -> str | None:
    """The column that carries event time: the first one that a watermark marks."""
    for field in frame.schema.fields:
        marked = "spark.watermarkDelayMs" in (field.metadata or {})
        if marked and pa.types.is_timestamp(schema.field(field.name).type):
            return field.name
    return None


def _check_supported(fragment: Fragment, frame: DataFrame) -> None:
    """Asks Spark whether the plan can run in this output mode, as it will when it starts."""
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update}[fragment.output_mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except PySparkException as error:
        raise DefinitionError(
            f"{fragment.where}: Spark cannot run fragment {fragment.name!r} in "
            f"{fragment.output_mode} mode: {_first_lines(error.getMessage() or str(error))}",
            hint="another output_mode, or a watermark on the event time, may help",
        ) from None


def _is_leaf(node: Any) -> bool:
    return bool(node.children().isEmpty())


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    schema = to_arrow_schema(
        frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC"
    )
    duplicated = sorted({n for n in schema.names if schema.names.count(n) > 1})
    if duplicated:
        raise ValueError(f"two columns of one name: {', '.join(duplicated)}; rename one of them")
    # A consumer must take what Spark delivers, and Spark does not check NOT NULL.
    return pa.schema([pa.field(f.name, f.type) for f in schema])


def _user_line(fragment: Fragment, error: BaseException) -> str:
    """The innermost line of the user's own file in the traceback."""
    code = getattr(fragment.function, "__code__", None)
    line, trace = fragment.where, error.__traceback__
    while trace is not None:
        if code is not None and trace.tb_frame.f_code.co_filename == code.co_filename:
            line = f"{fragment.where.rsplit(':', 1)[0]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _first_lines(text: str, most: int = 3) -> str:
    return " ".join(text.strip().splitlines()[:most])
