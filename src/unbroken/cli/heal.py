"""`unbroken heal`: puts all cables back that `cut` and `slow` have pulled."""

from __future__ import annotations

import argparse
from typing import Any

from unbroken.cli import arguments
from unbroken.client.cluster import connect


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "heal", run, "put all cables back",
        "  unbroken heal\n  unbroken heal --at grpc://127.0.0.1:4716",
    )  # fmt: skip
    arguments.add_at(parser)


def run(given: argparse.Namespace) -> int:
    """Heals, and tells what was pulled."""
    healed = connect(given.at).heal()
    print("\n".join(f"not any more: {sentence}" for sentence in healed) or "nothing was pulled")
    return 0
