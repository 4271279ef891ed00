"""Reads off the analyzed plan what a fragment's operators allow: their class, and their history.

    expressions   rand, current_timestamp, ...   ─▶ arbitrary
    stateful      no watermark among its keys    ─▶ deterministic    history without end
    nodes         bounded by a watermark         ─▶ convergent-capable   history in seconds
    otherwise                                    ─▶ repeatable

* Spark's `deterministic` flag is not enough: in the analyzed plan `current_timestamp` calls itself
  deterministic, and so does a stateful function with processing-time timers.  What the flag calls
  non-deterministic is believed; for the rest there are lists here.
* first, last, collect_list and sums of floats depend on the order of rows.  Here they are
  deterministic, because epochs are fed in canonical order and in splits that depend on the epoch
  alone (scenario 22): that is why they are on no list.
* Python is deterministic *as declared* (`asNondeterministic`); it is checked when it runs, by
  comparing the digests of copies.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbroken.engine import history
from unbroken.engine.fingerprint import tidy
from unbroken.engine.history import items
from unbroken.policies.traits import Endless, Operator, OperatorClass, Traits, weakest

#: Operators that keep state from epoch to epoch, by Spark's name, in words of ours.
STATEFUL = {
    "Aggregate": "aggregate",
    "Deduplicate": "duplicate removal",
    "Distinct": "duplicate removal",
    "DeduplicateWithinWatermark": "duplicate removal within the watermark",
    "FlatMapGroupsWithState": "state per key",
    "FlatMapGroupsInPandasWithState": "state per key (pandas)",
    "TransformWithState": "state per key",
    "TransformWithStateInPandas": "state per key (pandas)",
    "TransformWithStateInPySpark": "state per key (Python)",
    "GlobalLimit": "limit",
    "Join": "join of streams",
}
#: Expressions that Spark calls deterministic, and that answer otherwise in another run.
CLOCKS = {"CurrentTimestamp", "CurrentBatchTimestamp", "CurrentDate", "CurrentTime", "Now",
          "LocalTimestamp"}  # fmt: skip
#: Tables that stand in the plan itself; any other is read anew in every epoch.
IN_PLAN = {"LocalRelation", "LogicalRDD", "Range", "OneRowRelation"}
#: How an operator is written, to find its line.
_WRITTEN = {
    "Aggregate": r"\.(groupBy|groupby|rollup|cube)\(",
    "Deduplicate": r"\.(dropDuplicates|drop_duplicates|distinct)\(",
    "Distinct": r"\.distinct\(",
    "DeduplicateWithinWatermark": r"\.dropDuplicatesWithinWatermark\(",
    "FlatMapGroupsInPandasWithState": r"\.applyInPandasWithState\(",
    "TransformWithStateInPandas": r"\.transformWithStateInPandas\(",
    "TransformWithStateInPySpark": r"\.transformWithState(InPandas)?\(",
    "GlobalLimit": r"\.limit\(",
    "Join": r"\.join\(",
    "Sample": r"\.sample\(",
}
#: Spark shows a column with a watermark as `ts-T10000ms`.
_DELAY_MARK = re.compile(r"-T\d+ms")


@dataclass
class _Found:
    """What the walk over a plan has seen."""

    arbitrary: list[Operator] = field(default_factory=list)
    stateful: list[tuple[Operator, history.History]] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)


def is_stateful(node: Any) -> bool:
    """Whether a node of the plan keeps state from epoch to epoch."""
    name = node.nodeName()
    if name not in STATEFUL or not node.isStreaming():
        return False
    return name != "Join" or all(child.isStreaming() for child in items(node.children()))


def read(nodes: list[Any], function: Callable[..., Any]) -> Traits:
    """The traits of a fragment: from the nodes of its analyzed plan, and its text for the lines."""
    found = _Found()
    source = _Source(function)
    for node in nodes:
        _read_node(node, source, found)
    others = len(found.stateful) - 1
    endless = tuple(
        _endless(operator, history.alone(seen, others))
        for operator, seen in found.stateful
        if seen.span_s is None
    )
    return Traits(
        *_class_of(found, endless),
        stateful=bool(found.stateful),
        endless=endless,
        delay_s=history.delay_s([n for n in nodes if n.nodeName() == "EventTimeWatermark"]),
        history_s=history.total_s([each for _, each in found.stateful]),
        declared=tuple(dict.fromkeys(found.declared)),
    )


def _class_of(found: _Found, endless: tuple[Endless, ...]) -> tuple[OperatorClass, Operator]:
    """The weakest class, and the first operator that has it."""
    named = [(OperatorClass.ARBITRARY, each) for each in found.arbitrary]
    named += [(OperatorClass.DETERMINISTIC, e.operator) for e in endless if not e.bounded]
    named += [(OperatorClass.CONVERGENT, operator) for operator, _ in found.stateful]
    named += [(OperatorClass.REPEATABLE, Traits().decided_by)]
    worst = weakest(each for each, _ in named)
    return next(pair for pair in named if pair[0] is worst)


def _endless(operator: Operator, seen: history.History) -> Endless:
    return Endless(operator, seen.why, seen.way_out, bounded=seen.bounded, readable=seen.readable)


def _read_node(node: Any, source: _Source, found: _Found) -> None:
    name = node.nodeName()
    if is_stateful(node):
        operator = Operator(_in_words(node), source.line(_WRITTEN.get(name)))
        found.stateful.append((operator, history.of(node)))
        if history.by_clock(node):
            # Time to live needs them too, and cannot be seen from here.
            timers = f"processing-time timers of {operator.name}"
            found.arbitrary.append(Operator(timers, operator.where))
    elif name == "Sample":
        # A seed that the user did not give is drawn anew by every process that reads the file.
        found.arbitrary.append(Operator("sample()", source.line(_WRITTEN[name])))
    elif node.children().isEmpty():
        if not node.isStreaming() and name not in IN_PLAN:
            found.declared.append(f"{tidy(node.simpleString(4))}: the same in every epoch")
        return
    for expression in history.expressions(node):
        _read_expression(expression, "", source, found)


def _read_expression(expression: Any, outer: str, source: _Source, found: _Found) -> None:
    kind = expression.getClass().getSimpleName()
    if kind in ("AttributeReference", "Literal"):  # Most of them, and nothing to see.
        return
    call_site = _call_site(expression) or outer
    children = items(expression.children())
    python = kind in ("PythonUDF", "PythonUDAF", "PythonUDTF")
    if kind in CLOCKS:
        shown = str(expression.prettyName())
        found.arbitrary.append(Operator(f"{shown}()", source.line(rf"\b{shown}\b") or call_site))
    elif not expression.deterministic() and all(child.deterministic() for child in children):
        shown = str(expression.name() if python else expression.prettyName().lower())
        where = source.line(rf"\b{re.escape(shown)}\b") or call_site
        text = f"Python function {shown!r}, declared so" if python else f"{shown}()"
        found.arbitrary.append(Operator(text, where))
    elif python:
        found.declared.append(f"Python function {expression.name()!r}: deterministic")
    for child in children:
        _read_expression(child, call_site, source, found)


def _in_words(node: Any) -> str:
    name = node.nodeName()
    keys = [_DELAY_MARK.sub("", tidy(key.toString())) for key in history.keys(node)]
    if name == "Join":
        condition = node.condition()
        text = tidy(condition.get().toString()) if condition.isDefined() else "nothing"
        return f"{STATEFUL[name]} on {_DELAY_MARK.sub('', text)}"
    return f"{STATEFUL[name]} by {', '.join(keys)}" if keys else STATEFUL[name]


def _call_site(expression: Any) -> str:
    """The user's `file:line`, where PySpark has noted it: for operators of columns, mostly."""
    context = expression.origin().context()
    if context is None or context.contextType().toString() != "DataFrame":
        return ""
    noted = context.pysparkErrorContext()
    return Path(str(noted.get()._2())).name if noted.isDefined() else ""


class _Source:
    """The text of a fragment's function, to find the line of an operator in it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            lines, first = inspect.getsourcelines(function)
            self._file = Path(inspect.getsourcefile(function) or "?").name
        except (OSError, TypeError):  # Typed in, or sent here without its file.
            lines, first = [], 0
        self._lines = list(enumerate(lines, start=first))

    def line(self, pattern: str | None) -> str:
        """The only line that fits, or nothing: rather no line than a wrong one."""
        fitting = [
            number
            for number, text in self._lines
            if pattern and re.search(pattern, text.split("#")[0], re.IGNORECASE)
        ]
        return f"{self._file}:{fitting[0]}" if len(fitting) == 1 else ""
