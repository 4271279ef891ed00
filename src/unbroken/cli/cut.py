"""`unbroken cut`: pulls the cable between two processes of a cluster on this machine.

Nothing is refused and nothing closed: to both ends it looks like a network partition.  It stays so
until `unbroken heal`.
"""

from __future__ import annotations

import argparse
from typing import Any

from unbroken.cli import arguments
from unbroken.client.cluster import connect


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "cut", run, "pull the cable between two processes, until heal",
        "  unbroken cut node-2 node-3\n"
        "  unbroken cut node-2 node-3 --one-way     # what node-3 sends still arrives\n"
        "  unbroken cut keeper node-1               # the sources are with the keeper\n\n"
        "The cluster must have cables: unbroken run FILE.py --nodes 3 --cables\n"
        "unbroken status shows who goes on without whom.",
    )  # fmt: skip
    arguments.add_two_ends(parser)
    parser.add_argument("--one-way", action="store_true",
                        help="only what A sends to B is lost")  # fmt: skip
    arguments.add_at(parser)


def run(given: argparse.Namespace) -> int:
    """Cuts, and tells all that is pulled now."""
    for sentence in connect(given.at).cut(given.a, given.b, one_way=given.one_way):
        print(sentence)
    return 0
