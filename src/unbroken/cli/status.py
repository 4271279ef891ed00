"""`unbroken status`: what every source, node and fragment does right now."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console

from unbroken.cli import arguments
from unbroken.cli.meter import Meter
from unbroken.cli.view import render
from unbroken.client.cluster import connect


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "status", run, "show what a running cluster does",
        "  unbroken status\n  unbroken status --at grpc://127.0.0.1:4716 --json",
    )  # fmt: skip
    arguments.add_at(parser)
    arguments.add_json(parser, "everything the cluster tells, as one JSON object")


def run(given: argparse.Namespace) -> int:
    """Prints the status once; 1 if a fragment has failed or a node is silent."""
    cluster = connect(given.at)
    status, pulled = cluster.status(), cluster.pulled()
    if given.json:
        print(json.dumps(status | {"pulled": pulled}))
    else:
        console = Console(highlight=False)
        console.print(render(Meter(status["query"]).read(status, "", 0.0), live=False))
        for sentence in pulled:
            print(f"{sentence}, until unbroken heal")
    nodes = status["nodes"].values()
    failed = any(f["failed"] for node in nodes for f in node["fragments"].values())
    return 1 if failed or any("silent" in node["state"] for node in nodes) else 0
