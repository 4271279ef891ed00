"""`unbroken explain`: what a query is, as Spark sees it, before anything runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbroken import schemas
from unbroken.cli import arguments, measured
from unbroken.cli.load import load
from unbroken.client.cluster import connect
from unbroken.errors import DefinitionError
from unbroken.policies.costs import failure_costs
from unbroken.policies.guarantee import (
    Guarantee,
    Recovery,
    along,
    behind_gaps,
    gaps_before,
    guarantee,
    warnings,
)
from unbroken.policies.reach import epochs_kept, keeps
from unbroken.query import MEMORY, Fragment, Query, Source
from unbroken.streams.needs import UNDECLARED_EPOCHS
from unbroken.tentative.branch import CORRECT, SUSPEND, Bound

if TYPE_CHECKING:
    from unbroken.engine.plan import Plan


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "explain", run, "show the graph of a query as Spark sees it, without running it",
        "  unbroken explain intrusion.py\n  unbroken explain intrusion.py --json\n"
        f"  unbroken explain intrusion.py --at {arguments.AT}",
    )  # fmt: skip
    parser.add_argument("file", type=Path, metavar="FILE.py", help="a Python file with one query")
    parser.add_argument("--at", metavar="ADDRESS",
                        help="a cluster that runs it: bytes and seconds as measured")  # fmt: skip
    arguments.add_json(parser, "the graph as one JSON object")


def run(given: argparse.Namespace) -> int:
    """Prints the graph."""
    query = load(given.file)
    status = connect(given.at).status() if given.at else {}
    if status and status["query"] != query.name:
        raise DefinitionError(
            f"{given.at} runs query {status['query']!r}, and {given.file} has {query.name!r}",
            hint="give the address of a cluster that runs this query",
        )
    graph = explain(query, status)
    print(json.dumps(graph) if given.json else words(graph))
    return 0


def explain(query: Query, status: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Reads the query with Spark; numbers are from `status`."""
    # Not before: Spark takes a second to import, and other commands do without.
    from unbroken.engine.read import read

    return describe(query, read(query), status)


def describe(
    query: Query, plans: Mapping[str, Plan], status: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Sources, fragments and sinks with what Spark says about them, and what a failure does."""
    made: dict[str, Any] = {
        "query": query.name, "epoch_s": query.epoch_s, "sources": {}, "fragments": {},
        "sinks": query.sinks,
    }  # fmt: skip
    protection = protect(query, plans, status)
    for stream in query.check():
        if isinstance(stream, Source):
            made["sources"][stream.name] = {
                "schema": schemas.to_ddl(stream.schema), "event_time": stream.event_time,
                "where": stream.where,
            }  # fmt: skip
            continue
        plan = plans[stream.name]
        made["fragments"][stream.name] = {
            "about": stream.about, "inputs": list(stream.inputs),
            "output_mode": stream.output_mode, "schema": schemas.to_ddl(plan.schema),
            "stateful": list(plan.stateful), "state": plan.state,
            "watermarks": [w.text for w in plan.watermarks],
            "max_delay_s": stream.bound.delay_s_max if stream.bound else None,
            "when_cut": stream.bound.when_cut if stream.bound else SUSPEND,
            "when_healed": stream.bound.when_healed if stream.bound else CORRECT,
            "event_time": plan.event_time, "fingerprint": plan.fingerprint, "where": stream.where,
            **protection[stream.name],
        }  # fmt: skip
    return made


def protect(
    query: Query, plans: Mapping[str, Plan], status: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """For every fragment its class and policy, and what follows from them after a failure."""
    fragments = [stream for stream in query.check() if isinstance(stream, Fragment)]
    seen: dict[str, Guarantee] = {}
    for fragment in fragments:
        own = guarantee(fragment.policy, plans[fragment.name].traits.operator_class)
        assert own is not None, "what is refused was refused when it was analysed"
        before = [seen[name] for name in fragment.inputs if name in seen]
        seen[fragment.name] = along([*before, own])
    gaps = gaps_before(fragments)
    kept: dict[str, int | None] = {}
    for fragment in reversed(fragments):  # What consumers may ask for must be known first.
        consumers = [kept[name] for name in query.consumers(fragment.name)]
        consumers += [UNDECLARED_EPOCHS] if fragment.name in query.sinks else []
        traits = plans[fragment.name].traits
        kept[fragment.name] = epochs_kept(fragment.policy, traits, query.epoch_s, consumers)
    made = {}
    for fragment in fragments:
        policy, traits = fragment.policy, plans[fragment.name].traits
        epochs = kept[fragment.name]
        size = measured.bytes_kept(status or {}, fragment.inputs, epochs)
        cost = failure_costs(policy, epochs, measured.of(status or {}, fragment.name))
        made[fragment.name] = {
            "class": traits.operator_class.value, "decided_by": str(traits.decided_by),
            "unbounded": [str(each) for each in traits.unbounded],
            "declared": list(traits.declared), "policy": policy.text, "copies": policy.copies,
            "needs": policy.needs, "merging": seen[fragment.name].merging.value,
            "plain": seen[fragment.name].plain.value,
            "keeps": keeps(policy, traits, epochs), "keeps_epochs": epochs, "keeps_bytes": size,
            "failure_costs": cost.text, "failure_s": cost.seconds,
            "survives": policy.survives(policy.copies),
            "warnings": [*warnings(policy, traits), *behind_gaps(policy, gaps[fragment.name])],
        }  # fmt: skip
    return made


def words(graph: dict[str, Any]) -> str:
    """The graph for people."""
    every = "closed by producers" if graph["epoch_s"] is None else f"every {graph['epoch_s']:g} s"
    lines = [f"query {graph['query']}: epochs {every}"]
    for name, source in graph["sources"].items():
        time = f", event time {source['event_time']}" if source["event_time"] else ""
        lines += [
            "",
            f"source {name}{time}  ({source['where']})",
            f"  rows      {source['schema']}",
        ]
    for name, fragment in graph["fragments"].items():
        lines += ["", f"fragment {name}  ({fragment['where']})"]
        lines += [f"  about     {fragment['about']}"] if fragment["about"] else []
        lines += [
            f"  reads     {', '.join(fragment['inputs'])}",
            f"  writes    {fragment['schema']}  ({fragment['output_mode']} mode)",
        ]
        where = f" in {fragment['state']}" if fragment["state"] == MEMORY else ""
        lines += [f"  state     {text}{where}" for text in fragment["stateful"]]
        lines += [] if fragment["stateful"] else ["  state     none"]
        lines += [f"  watermark {text}" for text in fragment["watermarks"]]
        if fragment["max_delay_s"] is not None:
            how = fragment["max_delay_s"], fragment["when_cut"], fragment["when_healed"]
            waits = "waits: without its only input there is nothing to go on with"
            goes_on = _is_ever_tentative(graph["fragments"], name)
            lines += [f"  cut off   {Bound(*how).text if goes_on else waits}"]
        lines += _protection(fragment)
    lines += ["", *(f"sink {name}" for name in graph["sinks"])]
    return "\n".join(lines)


def _is_ever_tentative(fragments: dict[str, Any], name: str) -> bool:
    """Whether a bound changes anything: another input is left, or what it reads is tentative.

    >>> fragments = {"one": {"max_delay_s": 3.0, "inputs": ["source"]}}
    >>> _is_ever_tentative(fragments, "one")
    False
    >>> _is_ever_tentative({"one": {"max_delay_s": 3.0, "inputs": ["east", "west"]}}, "one")
    True
    """
    fragment = fragments.get(name)
    if fragment is None or fragment["max_delay_s"] is None:
        return False
    inputs = fragment["inputs"]
    return len(inputs) > 1 or any(_is_ever_tentative(fragments, each) for each in inputs)


def _protection(fragment: dict[str, Any]) -> list[str]:
    ours, plain = Recovery(fragment["merging"]), Recovery(fragment["plain"])
    lost, kept = fragment["survives"], fragment["keeps_bytes"]
    size = "" if kept is None else f", {kept:,} bytes at today's rate"
    return [
        f"  class     {fragment['class']}: {fragment['decided_by']}",
        *(f"  declared  {text}" for text in fragment["declared"]),
        f"  policy    {fragment['policy']}: {fragment['needs']}",
        f"  recovery  {ours.value}: {ours.meaning}",
        f"  plain     {plain.value}, for consumers that do not drop epochs they have: "
        f"{plain.meaning}",
        f"  kept      by producers, {fragment['keeps']}{size}",
        f"  failure   costs {fragment['failure_costs']}",
        f"  survives  the loss of {lost or 'no'} node{'s' if lost != 1 else ''} at once",
        *(f"  warning   {text}" for text in fragment["warnings"]),
    ]
