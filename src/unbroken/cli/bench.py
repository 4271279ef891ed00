"""`unbroken bench`: what a failure costs under each policy, measured on this machine.

`recovery` is here, `partition` in `bench_partition`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from unbroken.cli import arguments, bench_partition
from unbroken.cli.load import load
from unbroken.errors import DefinitionError, UnbrokenError
from unbroken.measure import figure, report
from unbroken.measure.clustered import NODES, Clustered
from unbroken.measure.course import MEASURED
from unbroken.measure.plain import Plain
from unbroken.measure.recovery import Found, measure
from unbroken.measure.replayed import Replayed
from unbroken.measure.workload import Counts, Workload
from unbroken.policies import Active, Gap, Passive, Policy, Restart, Upstream

POLICIES: dict[str, Callable[[], Policy]] = {
    "active": Active, "passive": Passive, "upstream": Upstream, "gap": Gap, "restart": Restart,
}  # fmt: skip
KEYS = 100_000
#: Kills per contender, and how long each is looked at before the first one.
KILLS, UNDISTURBED_S = 10, 30.0
QUICK_KILLS, QUICK_UNDISTURBED_S = 2, 10.0


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    about = "measure what a failure costs under each policy"
    example = "  unbroken bench recovery --quick"
    bench = commands.add_parser(
        "bench", help=about, description=about[0].upper() + about[1:] + ".",
        epilog=f"examples:\n{example}\n{bench_partition.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    kinds = bench.add_subparsers(metavar="WHAT", required=True)
    bench_partition.register(kinds)
    parser = arguments.add_command(
        kinds, "recovery", run,
        "kill nodes under each policy: output gap, rows lost, and what protection costs",
        f"{example}\n"
        "  unbroken bench recovery --policies active,restart --no-plain --kills 3\n"
        "  unbroken bench recovery intrusion.py --source connections=trace.csv --rate 2000\n\n"
        f"Each policy runs on {NODES} Spark nodes of this machine, one after the other, and plain\n"
        "Structured Streaming with a supervisor after them.  Ten kills each take an hour; Ctrl-C\n"
        "ends early and shows what was measured.  Writes recovery.json and recovery.svg.",
    )  # fmt: skip
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE.py",
                        help="your own query (default: counts of many keys)")  # fmt: skip
    parser.add_argument(
        "--source", action="append", default=[], type=arguments.named_path, metavar="NAME=FILE",
        help="replay a source of FILE.py from a file, round and round",
    )  # fmt: skip
    parser.add_argument("--policies", default=",".join(POLICIES), metavar="P,P",
                        help="which to measure (default: %(default)s)")  # fmt: skip
    parser.add_argument("--plain", action=argparse.BooleanOptionalAction,
                        help="plain Structured Streaming too; without FILE.py only (default: "
                        "yes)")  # fmt: skip
    parser.add_argument("--kills", type=arguments.positive, metavar="N",
                        help=f"kills per policy (default: {KILLS})")  # fmt: skip
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_KILLS} kills per policy, and a shorter look before",
    )
    parser.add_argument("--rate", type=arguments.positive, default=5000, metavar="N",
                        help="rows per second, offered whether or not anybody keeps up "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--keys", type=arguments.positive, metavar="N",
                        help=f"keys in the state, without FILE.py (default: {KEYS})")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("bench-recovery"), metavar="DIR",
                        help="where the results go (default: %(default)s)")  # fmt: skip
    arguments.add_json(parser, "the result as one JSON object on stdout")


def run(given: argparse.Namespace) -> int:
    """Measures one contender after the other, and shows what is known, however it ends."""
    names = arguments.chosen("--policies", given.policies, list(POLICIES))
    policies = [POLICIES[name]() for name in names]
    workload = _workload(given)
    arguments.make_folder(given.out)
    kills = given.kills or (QUICK_KILLS if given.quick else KILLS)
    undisturbed_s = QUICK_UNDISTURBED_S if given.quick else UNDISTURBED_S
    found: list[Found] = []

    def one(name: str, text: str, make: Callable[[], Any]) -> None:
        found.append(Found(name, text))
        measure(
            found[-1], workload, make, kills=kills, undisturbed_s=undisturbed_s, say=arguments.say
        )
        if found[-1].outcome != MEASURED:
            arguments.say(f"{name}: {found[-1].outcome}")

    try:
        for policy in policies:
            one(policy.name, workload.text(policy), partial(Clustered, workload, policy))
        if given.plain is not False and isinstance(workload, Counts):
            one(report.PLAIN, workload.text(Restart()), partial(Plain, workload))
    except KeyboardInterrupt:
        arguments.say("stopped; what was measured so far:")
        raise
    finally:
        asked = {"rate": given.rate, "kills": kills, "nodes": NODES}
        result = report.to_json(found, **asked)
        _show(result, found, given)
    if not any(each.ran for each in found):
        raise UnbrokenError("nothing could be measured", hint="the reasons are above")
    return 1 if any(each.outcome.startswith("failed") for each in found) else 0


def _show(result: dict[str, Any], found: list[Found], given: argparse.Namespace) -> None:
    print(json.dumps(result) if given.json else report.words(found), flush=True)
    if any(each.ran for each in found):
        (given.out / "recovery.json").write_text(json.dumps(result, indent=1) + "\n")
        (given.out / "recovery.svg").write_text(figure.draw(found))
        arguments.say(f"written: {given.out}/recovery.json, {given.out}/recovery.svg")


def _workload(given: argparse.Namespace) -> Workload:
    if given.file is None:
        if given.source:
            raise DefinitionError(
                f"--source {given.source[0][0]}=… without a query",
                hint="say whose source it is: unbroken bench recovery FILE.py --source NAME=FILE",
            )
        return Counts(given.keys or KEYS, given.rate)
    for option in ("keys", "plain"):
        if getattr(given, option):
            raise DefinitionError(
                f"--{option} with {given.file}",
                hint=f"--{option} is for the workload that is built in: leave it out, or the file",
            )
    query = load(given.file)
    paths = arguments.paths(given.source, list(query.sources), query.name, "source")
    return Replayed(query, paths, given.rate, arguments.say)
