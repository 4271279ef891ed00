"""`unbroken bench partition`: what a network partition costs under each choice, measured here."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from unbroken.cli import arguments
from unbroken.errors import DefinitionError, UnbrokenError
from unbroken.measure import partition_report as report
from unbroken.measure.course import MEASURED
from unbroken.measure.partition import Cabled, Found, measure
from unbroken.measure.shapes import SHAPES, shape
from unbroken.tentative.branch import WHEN_CUT
from unbroken.tentative.given import DELAY_S_MAX, DELAY_S_MIN

LENGTHS, QUICK_LENGTHS = "2,5,10,30,60", "2,8"
LENGTH_S_MAX = 3600.0
EXAMPLE = "  unbroken bench partition --quick"


def register(kinds: Any) -> None:
    """Adds the command to those of `bench`."""
    parser = arguments.add_command(
        kinds, "partition", run,
        "cut one input off, again and again: waits, tentative rows, corrections",
        f"{EXAMPLE}\n"
        "  unbroken bench partition --shapes union --lengths 5,20\n\n"
        "One cluster per shape and choice, one after the other, cut for every length and healed.\n"
        "All of it takes an hour; Ctrl-C ends early and shows what was measured.  Writes\n"
        "partition.json and partition.svg.  Ends with 1 if a stable row is not as undisturbed, a\n"
        "result waited for longer than X and an epoch, or a short cut was not masked.",
    )  # fmt: skip
    parser.add_argument("--lengths", metavar="S,S",
                        help=f"how long cuts are, in seconds (default: {LENGTHS})")  # fmt: skip
    parser.add_argument("--x", type=float, default=3.0, metavar="S",
                        help="how long a new result may wait: max_delay (default: %(default)g "
                        "s)")  # fmt: skip
    parser.add_argument("--policies", default=",".join(WHEN_CUT), metavar="P,P",
                        help="which choices of when_cut (default: %(default)s)")  # fmt: skip
    parser.add_argument("--shapes", default=",".join(SHAPES), metavar="S,S",
                        help="which shapes of queries (default: %(default)s)")  # fmt: skip
    parser.add_argument("--quick", action="store_true",
                        help=f"cuts of {QUICK_LENGTHS} s only")  # fmt: skip
    parser.add_argument("--rate", type=arguments.positive, default=300, metavar="N",
                        help="rows per second over all sources (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("bench-partition"), metavar="DIR",
                        help="where the results go (default: %(default)s)")  # fmt: skip
    arguments.add_json(parser, "the result as one JSON object on stdout")


def run(given: argparse.Namespace) -> int:
    """Measures one shape after the other, and shows what is known, however it ends."""
    choices = arguments.chosen("--policies", given.policies, list(WHEN_CUT))
    shapes = arguments.chosen("--shapes", given.shapes, list(SHAPES))
    lengths = _lengths(given.lengths or (QUICK_LENGTHS if given.quick else LENGTHS))
    if not DELAY_S_MIN <= given.x <= DELAY_S_MAX:
        raise DefinitionError(
            f"--x {given.x:g}: not a delay", hint=f"seconds, from {DELAY_S_MIN:g} on"
        )
    arguments.make_folder(given.out)
    found: list[Found] = []
    try:
        for name in shapes:
            for when_cut in choices:
                made = shape(name, when_cut, x_s=given.x, rate=given.rate)
                found.append(Found(name, when_cut, made.text(None)))
                measure(found[-1], made, partial(Cabled, made), lengths, say=arguments.say)
                if found[-1].outcome != MEASURED:
                    arguments.say(f"{name}, {when_cut}: {found[-1].outcome}")
    except KeyboardInterrupt:
        arguments.say("stopped; what was measured so far:")
        raise
    finally:
        _show(found, given, lengths)
    if not any(each.cells for each in found):
        raise UnbrokenError("nothing could be measured", hint="the reasons are above")
    return 1 if any(each.failed or each.broken(given.x) for each in found) else 0


def _show(found: list[Found], given: argparse.Namespace, lengths: list[float]) -> None:
    result = report.to_json(found, x_s=given.x, rate=given.rate, lengths_s=lengths)
    print(json.dumps(result) if given.json else report.words(found, given.x), flush=True)
    if any(each.cells for each in found):
        (given.out / "partition.json").write_text(json.dumps(result, indent=1) + "\n")
        (given.out / "partition.svg").write_text(report.draw(found, given.x))
        arguments.say(f"written: {given.out}/partition.json, {given.out}/partition.svg")


def _lengths(text: str) -> list[float]:
    """Seconds with commas between them, shortest first.

    >>> _lengths("5,2.5")
    [2.5, 5.0]
    """
    try:
        lengths = sorted({float(word) for word in text.split(",")})
    except ValueError:
        lengths = []
    if not lengths or not 0 < lengths[0] <= lengths[-1] <= LENGTH_S_MAX:
        raise DefinitionError(
            f"--lengths {text}: not lengths of time",
            hint=f"seconds with commas between them, up to {LENGTH_S_MAX:.0f}: 2,5,10",
        )
    return lengths
