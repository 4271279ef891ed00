"""`unbroken`: reads the arguments, runs a command, and turns errors into words and exit codes.

0    done
1    something went wrong: `error: what` and the way out, on stderr
2    the arguments, or the query as written, cannot be run: nothing was started
130  ended by Ctrl-C (143: by SIGTERM); no process is left, and the same command goes on
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from unbroken.cli import (
    bench,
    chaos,
    cut,
    demo,
    explain,
    follow,
    heal,
    node,
    run,
    send,
    sim,
    slow,
    status,
)
from unbroken.errors import DefinitionError, UnbrokenError

COMMANDS = (
    run, follow, send, status, node, explain, cut, slow, heal, bench, chaos, demo, sim,
)  # fmt: skip


class _Terminated(KeyboardInterrupt):
    """SIGTERM: ends as Ctrl-C does, so that no process is left behind."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; tells its exit code."""
    given = parser().parse_args(arguments)
    _end_on_sigterm()
    try:
        code: int = given.command(given)
        sys.stdout.flush()
        return code
    except DefinitionError as error:
        return _tell(error, 2)
    except UnbrokenError as error:
        return _tell(error, 1)
    except _Terminated:
        return 143
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parser() -> argparse.ArgumentParser:
    """The arguments of all commands.

    >>> parser().parse_args(["status"]).at
    'grpc://127.0.0.1:4715'
    """
    made = argparse.ArgumentParser(
        prog="unbroken",
        description="Keeps Spark streaming queries answering through crashes and partitions.",
        epilog="Begin with: unbroken demo",
    )
    made.add_argument("--version", action="version", version=f"unbroken {version('unbroken')}")
    commands = made.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.register(commands)
    return made


def _tell(error: UnbrokenError, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code


def _end_on_sigterm() -> None:
    def end(number: int, frame: object) -> NoReturn:
        raise _Terminated

    # A shell that starts us in the background lets us ignore Ctrl-C; kill -INT should still work.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, end)


if __name__ == "__main__":
    sys.exit(main())
