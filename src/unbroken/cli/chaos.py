"""`unbroken chaos`: your query on a real cluster under fire, and whether its results are right."""

from __future__ import annotations

import argparse
import contextlib
import json
import random
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from unbroken.cli import arguments
from unbroken.cli.explain import explain
from unbroken.cli.load import load
from unbroken.definitions import seconds
from unbroken.errors import DefinitionError
from unbroken.measure.chaos import FAULTS, Chaos, Outcome, UnderFire
from unbroken.measure.compare import Difference
from unbroken.measure.made_up import MadeUp
from unbroken.measure.replayed import Replayed
from unbroken.measure.workload import Workload
from unbroken.policies import Restart
from unbroken.policies.guarantee import Recovery
from unbroken.policies.traits import OperatorClass
from unbroken.query import Query


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "chaos", run,
        "run your query on a cluster of this machine while its processes are killed and paused",
        "  unbroken chaos intrusion.py --for 10m --faults kill,pause\n"
        "  unbroken chaos intrusion.py --source connections=trace.csv --for 2m --rate 500\n\n"
        "Nodes are hit, and the control plane, each when every fragment survives it.  Never the\n"
        "keeper: it takes the rows in, there is one of it, and no policy stands for it.  While it\n"
        "is away nothing comes, whatever your query does.\n\n"
        "At the end the sinks are compared row by row with an undisturbed run of the same epochs.\n"
        "The exit code is 1 if one that is precise is not equal, or one with gaps differs in what\n"
        "no gap tells of.  Without --source, rows are made up from the schemas.",
    )  # fmt: skip
    parser.add_argument("file", type=Path, metavar="FILE.py", help="a Python file with one query")
    parser.add_argument("--for", type=_length, default=600.0, dest="length_s", metavar="TIME",
                        help="how long, such as 90s or 10m (default: 10m)")  # fmt: skip
    parser.add_argument("--faults", default=",".join(FAULTS), metavar="F,F",
                        help="which (default: %(default)s)")  # fmt: skip
    parser.add_argument("--nodes", type=arguments.positive, default=3, metavar="N",
                        help="how many Spark nodes (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--source", action="append", default=[], type=arguments.named_path, metavar="NAME=FILE",
        help="replay a source from a file, round and round",
    )  # fmt: skip
    parser.add_argument("--rate", type=arguments.positive, default=500, metavar="N",
                        help="rows per second, offered whether or not anybody keeps up "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--bound", type=_length, default=3.0, dest="bound_s", metavar="TIME",
                        help="results that come later than this after their rows count as not "
                        "available (default: 3s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=None, metavar="N",
                        help="hits the same processes in the same order "
                        "(default: by chance)")  # fmt: skip
    arguments.add_json(parser, "the outcome as one JSON object on stdout")


def run(given: argparse.Namespace) -> int:
    """Sets the query under fire; 1 if it did not do what it promises."""
    faults = arguments.chosen("--faults", given.faults, FAULTS)
    query = load(given.file)
    _check(query, given.nodes)
    seed = random.randrange(1 << 16) if given.seed is None else given.seed
    workload = _workload(query, given, seed)
    told = explain(workload.query(None))["fragments"]
    promised = {sink: Recovery(told[sink]["merging"]) for sink in query.sinks if sink in told}
    arguments.say(f"{workload.text(None)}, {given.nodes} nodes, --seed {seed}")
    cluster = UnderFire(workload, None, given.nodes)
    with contextlib.closing(cluster):
        chaos = Chaos(
            cluster, workload, faults=faults, length_s=given.length_s, bound_s=given.bound_s,
            seed=seed, say=arguments.say, forgetful=forgetful(told),
        )  # fmt: skip
        try:
            chaos.run()
        finally:  # Also of a run that is broken off.
            outcome = {"query": query.name, "seed": seed, **chaos.outcome.to_json()}
            told = words(chaos.outcome, promised, faults)
            print(json.dumps(outcome) if given.json else told, flush=True)
    return 1 if broken(chaos.outcome, promised) else 0


def forgetful(fragments: Mapping[str, Any]) -> set[str]:
    """The fragments that have state behind a gap: of theirs later epochs may differ too.

    >>> gap = {"merging": "gap", "class": "repeatable", "inputs": ["clicks"]}
    >>> counts = {**gap, "class": "deterministic", "inputs": ["clean"]}
    >>> top = {**gap, "inputs": ["counts"]}
    >>> sorted(forgetful({"clean": gap, "counts": counts, "top": top}))
    ['counts', 'top']
    """
    found: set[str] = set()
    for name, told in fragments.items():  # In the order of the data.
        state = told["class"] != OperatorClass.REPEATABLE.value
        if Recovery(told["merging"]) is Recovery.GAP and (state or found & {*told["inputs"]}):
            found.add(name)
    return found


def broken(outcome: Outcome, promised: Mapping[str, Recovery]) -> list[str]:
    """The sinks that are promised to be precise, and are not, or differ where no gap is told.

    >>> outcome = Outcome(3.0, differences={"a": Difference(lost=1), "b": Difference()})
    >>> broken(outcome, {"a": Recovery.PRECISE, "b": Recovery.PRECISE})
    ['a']
    """
    none = Difference()
    wrong = {Recovery.PRECISE: outcome.differences or {}, Recovery.GAP: outcome.untold}
    return [
        sink
        for sink in outcome.differences or {}
        if wrong.get(promised.get(sink, Recovery.PRECISE), {}).get(sink, none) != none
    ]


def words(
    outcome: Outcome, promised: Mapping[str, Recovery], faults: Collection[str] = ()
) -> str:  # fmt: skip
    """What happened when, availability, and what the comparison says.

    >>> print(words(Outcome(3.0, epochs=200, within=199, longest_s=3.5), {}))
    0 faults
    availability 99.5 %: 199 of 200 epochs within 3 s; the latest after 3.5 s
    the results were not compared
    """
    lines = [hit.text for hit in outcome.hits]
    counts = {kind: sum(hit.kind == kind for hit in outcome.hits) for kind in faults}
    told = ", ".join(f"{n} {kind}{'' if n == 1 else 's'}" for kind, n in counts.items())
    lines.append(told if outcome.hits else "0 faults")
    never = [kind for kind, n in counts.items() if not n]
    if never:
        lines.append(f"no {' and no '.join(never)} happened: nobody is hit before all is whole "
                     "again; a longer --for gives more of them")  # fmt: skip
    if outcome.availability is not None:
        lines.append(
            f"availability {100 * outcome.availability:.1f} %: {outcome.within:,} of "
            f"{outcome.epochs:,} epochs within {outcome.bound_s:g} s; the latest after "
            f"{outcome.longest_s:.1f} s"
            + (f", and {outcome.missing:,} not at all" if outcome.missing else "")
        )
    if outcome.differences is None:
        return "\n".join([*lines, "the results were not compared"])
    for sink, difference in outcome.differences.items():
        promise = promised.get(sink, Recovery.PRECISE)
        verdict = "NOT AS PROMISED" if sink in broken(outcome, promised) else "as promised"
        if verdict.isupper() and promise is Recovery.GAP:
            verdict += f", {outcome.untold[sink].rows} rows differ where no gap is told"
        lines.append(
            f"{sink}: {difference.lost} rows lost, {difference.repeated} repeated, "
            f"{difference.wrong} wrong against an undisturbed run; {promise.value}: {verdict}"
        )
    return "\n".join([*lines, f"{outcome.rows:,} rows were sent"])


def _workload(query: Query, given: argparse.Namespace, seed: int) -> Workload:
    if not given.source:
        return MadeUp(query, given.rate, seed)
    paths = arguments.paths(given.source, list(query.sources), query.name, "source")
    return Replayed(query, paths, given.rate, arguments.say)


def _check(query: Query, nodes: int) -> None:
    """A cluster that cannot be whole would never be hit."""
    for fragment in query.fragments.values():
        if fragment.policy.copies > nodes:
            raise DefinitionError(
                f"fragment {fragment.name!r} wants {fragment.policy.copies} nodes, and there are "
                f"{nodes}", hint=f"more of them: --nodes {fragment.policy.copies + 1}",
            )  # fmt: skip
    if all(isinstance(each.policy, Restart) for each in query.fragments.values()):
        arguments.say("no fragment has a policy: results stop while its node is started again")


def _length(text: str) -> float:
    found = seconds(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time, such as 90s or 10m")
    return found
