"""How old a row can be that is still in the state of an operator.

    event time   ···│←── span ──→│watermark│←── delay ──→│newest row
                    └ the oldest row that can be in the state

    windows of length L            L        (a window stays until the watermark passes its end)
    grouped by the event time      0
    duplicate removal by time      0; within the watermark: its delay
    join with a range of time      the range, as Spark computes it for its own eviction
    sessions                       any age, though bounded: a busy session never closes; but its
                                   state tells how old the oldest is (`oldest.py`)
    per-key functions              any age, though bounded
    anything else                  any age, and unbounded

Only what Spark itself evicts counts as bounded: it looks for `spark.watermarkDelayMs` in the
metadata of the keys, and so do we.  How old a row can be is then known from the operators' own
watermarks: so every row must have passed one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark import SparkContext

_DELAY, _SESSION = "spark.watermarkDelayMs", "spark.sessionWindow"
#: A watermark that is far from both ends of time, to ask Spark what it would evict.
_ASKED_MS = 10**12
_WATERMARK = 'bound it: .withWatermark("<event time>", "10 seconds") before it, and '


@dataclass(frozen=True)
class History:
    """How far behind the watermark an operator's state reaches; None if to any age."""

    span_s: float | None
    why: str = ""
    way_out: str = ""
    bounded: bool = False
    #: Whether the state tells how old its oldest row is, if no other operator has state.
    readable: bool = False
    is_join: bool = False


def total_s(all_of_them: list[History]) -> float | None:
    """How far back the state of a whole fragment reaches.

    Operators that feed each other add up.  A join that feeds another one counts twice: its
    watermark lags by the range, and its two rows are up to the range apart.

    >>> total_s([History(10.0), History(8.0, is_join=True)])
    26.0
    """
    spans = [each.span_s for each in all_of_them]
    if None in spans:
        return None
    again = [each.span_s for each in all_of_them if each.is_join] if len(spans) > 1 else []
    return float(sum(span for span in [*spans, *again] if span is not None))


def delay_s(nodes: list[Any]) -> float:
    """The longest delay of the watermarks on the columns of these nodes."""
    columns = [column for node in nodes for column in items(node.output()) if _has(column, _DELAY)]
    return max((column.metadata().getLong(_DELAY) / 1000 for column in columns), default=0.0)


def keys(node: Any) -> list[Any]:
    """The attributes by which a stateful node groups its state."""
    name = node.nodeName()
    if name == "Aggregate":
        return items(node.groupingExpressions())
    if name in ("Deduplicate", "DeduplicateWithinWatermark"):
        return items(node.keys())
    if name == "Distinct":
        return items(node.output())
    if name == "FlatMapGroupsInPandasWithState":
        return items(node.groupingAttributes())
    return []


def by_clock(node: Any) -> bool:
    """Whether a per-key function may use timers of the machine's clock."""
    return "ProcessingTime" in _time_of(node)


def of(node: Any) -> History:
    """How far back the state of a stateful node reaches."""
    found = _of(node)
    if (found.span_s is None and not found.readable) or not _some_pass_by(node):
        return found
    return History(
        None,
        "rows come to it that have passed no watermark, so nothing tells how new they are",
        "give every part of a union its .withWatermark(...)",
        bounded=True,
    )


def alone(seen: History, others: int) -> History:
    """The history of an operator beside so many `others` with state in its fragment.

    >>> alone(History(None, "any age", readable=True), others=1).readable
    False
    """
    if not seen.readable or not others:
        return seen
    return replace(
        seen,
        readable=False,
        why=f"{seen.why}, and its fragment has another operator with state, whose oldest row "
        "the sessions do not tell",
        way_out="put each of them into a fragment of its own",
    )


def _of(node: Any) -> History:
    name = node.nodeName()
    if name == "Join":
        return _join(node)
    if name == "GlobalLimit":
        return History(None, "it counts rows from the first epoch on", "filter instead of limiting")
    if name == "DeduplicateWithinWatermark":
        return History(delay_s(items(node.children())))
    if name in ("Aggregate", "Deduplicate", "Distinct"):
        return _keyed(node)
    if "EventTime" in _time_of(node):
        return History(
            None,
            "a Python function decides by its timers how long it keeps what",
            "write it with windows",
            bounded=True,
        )
    return History(
        None,
        "a Python function keeps its state without a time limit in event time",
        "write it with windows",
    )


def _keyed(node: Any) -> History:
    marked = [key for key in keys(node) if _has(key, _DELAY)]
    if not marked:
        return History(
            None,
            "no watermark among its keys, so nothing is ever removed from its state",
            f"{_WATERMARK}a window or the event time among its keys",
        )
    if any(_has(key, _SESSION) for key in marked):
        return _sessions(node, marked)
    # A key that is a struct is a window.  One that came with the input has no length here: event
    # time is then its end, and the history counts from there.
    windows = any(key.dataType().typeName() == "struct" for key in marked)
    return History(max(_window_lengths_s(node), default=0.0) if windows else 0.0)


def _sessions(node: Any, marked: list[Any]) -> History:
    any_age = "a session that never falls quiet is never closed, so its first row can be of any age"
    # With two, Spark closes sessions by one of them, and not always by the session's end.
    if node.nodeName() != "Aggregate" or len(marked) > 1:
        why = f"{any_age}, and the watermark is on other keys of it, too"
        return History(None, why, "group by the session and keys without a watermark", bounded=True)
    return History(None, any_age, "use windows of a fixed length", bounded=True, readable=True)


def _some_pass_by(node: Any) -> bool:
    """Whether rows of a stream can come to a node without having passed a watermark."""
    if node.nodeName() == "EventTimeWatermark" or not node.isStreaming():
        return False
    children = items(node.children())
    return not children or any(_some_pass_by(child) for child in children)


def _join(node: Any) -> History:
    helper = _jvm().org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    left, right = node.left(), node.right()
    if helper.isWatermarkInJoinKeys(node):
        return History(0.0, is_join=True)
    spans = []
    for here, there in ((left, right), (right, left)):
        if not any(_has(each, _DELAY) for each in items(here.output())):
            continue
        kept = helper.getStateValueWatermark(
            here.outputSet(), there.outputSet(), node.condition(), _jvm().scala.Some(_boxed())
        )
        if kept.isDefined():
            spans.append((_ASKED_MS - int(kept.get())) / 1000)
    if len(spans) < 2:
        return History(
            None,
            "no range of event time in its condition bounds both sides",
            f"{_WATERMARK}on both inputs, and a range to the condition: "
            "a.ts BETWEEN b.ts AND b.ts + INTERVAL 1 MINUTE",
        )
    # A bound that lies in the future of the watermark still keeps what the watermark lets in.
    return History(max(0.0, *spans), is_join=True)


def _window_lengths_s(node: Any) -> list[float]:
    """The lengths of all windows made below a node, read from the expression of their `end`."""
    lengths = []
    for each in _below(node):
        for expression in expressions(each):
            lengths += _lengths_in(expression)
    return lengths


def _lengths_in(expression: Any) -> list[float]:
    kind = expression.getClass().getSimpleName()
    children = items(expression.children())
    if kind == "CreateNamedStruct" and len(children) == 4:
        name, end = children[2], children[3]
        if name.toString() == "end":
            return [micros / 1e6 for micros in _added(end)]
    return [length for child in children for length in _lengths_in(child)]


def _added(end: Any) -> list[int]:
    """`end` is start + length: the literal of the outermost addition."""
    while end.getClass().getSimpleName() != "Add":
        children = items(end.children())
        if not children:
            return []
        end = children[0]
    literal = items(end.children())[1]
    return [int(literal.toString())] if literal.getClass().getSimpleName() == "Literal" else []


def _below(node: Any) -> list[Any]:
    children = items(node.children())
    return [*children, *(below for child in children for below in _below(child))]


def _has(expression: Any, key: str) -> bool:
    """Whether a column's metadata has a key; expressions without a name have no metadata."""
    if expression.getClass().getSimpleName() not in ("AttributeReference", "Alias"):
        return False
    return bool(expression.metadata().contains(key))


def _time_of(node: Any) -> str:
    name = node.nodeName()
    if name.startswith("TransformWithState"):
        return str(node.timeMode().toString())
    return str(node.timeout().toString()) if name.startswith("FlatMapGroups") else ""


def expressions(node: Any) -> list[Any]:
    """The expressions of a node, of a sliding window's many alike projections only the first."""
    if node.nodeName() == "Expand":
        return items(node.projections().apply(0))
    return items(node.expressions())


def items(sequence: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [sequence.apply(index) for index in range(sequence.length())]


def _jvm() -> Any:
    context: Any = SparkContext._active_spark_context
    return context._jvm


def _boxed() -> Any:
    # py4j turns a boxed Long back into an int on its way; an array's element stays boxed.
    context: Any = SparkContext._active_spark_context
    box = context._gateway.new_array(context._jvm.java.lang.Long, 1)
    box[0] = _ASKED_MS
    return context._jvm.java.lang.reflect.Array.get(box, 0)
