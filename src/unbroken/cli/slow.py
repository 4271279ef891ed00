"""`unbroken slow`: lets everything between two processes arrive later, on this machine."""

from __future__ import annotations

import argparse
from typing import Any

from unbroken.cli import arguments
from unbroken.client.cluster import connect


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "slow", run, "make the cable between two processes slow, until heal",
        "  unbroken slow node-1 node-3 0.2\n\n"
        "The cluster must have cables: unbroken run FILE.py --nodes 3 --cables",
    )  # fmt: skip
    arguments.add_two_ends(parser)
    parser.add_argument("seconds", type=float, metavar="SECONDS",
                        help="how much later everything arrives")  # fmt: skip
    arguments.add_at(parser)


def run(given: argparse.Namespace) -> int:
    """Slows down, and tells all that is pulled now."""
    for sentence in connect(given.at).slow(given.a, given.b, given.seconds):
        print(sentence)
    return 0
