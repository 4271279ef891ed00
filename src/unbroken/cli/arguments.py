"""What several commands take: an address, a pair of name and path, help with examples."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unbroken.errors import DefinitionError, UnbrokenError

PORT = 4715
AT = f"grpc://127.0.0.1:{PORT}"


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], about: str, examples: str
) -> argparse.ArgumentParser:
    """A command with its help text; `examples` are shown below the options."""
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(command=run)
    return made


def add_at(parser: argparse.ArgumentParser) -> None:
    """`--at ADDRESS`: the cluster to talk to."""
    parser.add_argument(
        "--at", default=AT, metavar="ADDRESS", help="where the cluster runs (default: %(default)s)"
    )


def add_two_ends(parser: argparse.ArgumentParser) -> None:
    """`A B`: the two ends of a cable."""
    for name, other in (("a", "one end"), ("b", "the other end")):
        parser.add_argument(name, metavar=name.upper(), help=f'{other}: a node, or "keeper"')


def add_json(parser: argparse.ArgumentParser, about: str) -> None:
    """`--json`: for programs."""
    parser.add_argument("--json", action="store_true", help=about)


def add_bad_rows(parser: argparse.ArgumentParser) -> None:
    """`--bad-rows`: what becomes of rows that do not fit."""
    parser.add_argument(
        "--bad-rows",
        choices=("raise", "skip"),
        default="raise",
        help="what to do with rows that do not fit the schema (default: %(default)s)",
    )


def named_path(text: str) -> tuple[str, Path]:
    """NAME=PATH.

    >>> named_path("clicks=a=b.csv")
    ('clicks', PosixPath('a=b.csv'))
    """
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, Path(path)


def chosen(option: str, text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    """Some of the `known` words, with commas between them, each once; all, if nothing was said.

    >>> chosen("--faults", "kill, pause,kill", ["kill", "pause"])
    ('kill', 'pause')
    """
    if text is None:
        return tuple(known)
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in known:
            raise DefinitionError(
                f"{option} {text}: {word!r} is unknown",
                hint=f"some of {','.join(known)}, with commas between them",
            )
    return words


def say(text: str) -> None:
    """Progress of long work, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def positive(text: str) -> int:
    """A whole number from 1 on.

    >>> positive("3")
    3
    """
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def natural(text: str) -> int:
    """A whole number from 0 on.

    >>> natural("0")
    0
    """
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def positive_real(text: str) -> float:
    """A number above 0.

    >>> positive_real("0.5")
    0.5
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def paths(
    given: Sequence[tuple[str, Path]], known: Sequence[str], query: str, kind: str
) -> dict[str, Path]:
    """The paths that were given for the sources or sinks of a query, each to one that it has.

    >>> paths([("clicks", Path("a.csv"))], ["clicks"], "shop", "source")
    {'clicks': PosixPath('a.csv')}
    """
    found: dict[str, Path] = {}
    for name, path in given:
        if name not in known:
            raise DefinitionError(
                f"query {query!r} has no {kind} {name!r}",
                hint=f"its {kind}s are: {', '.join(known)}",
            )
        if name in found:
            raise DefinitionError(f"two paths for the {kind} {name!r}", hint="give one")
        if path.absolute() in {p.absolute() for p in found.values()} and kind == "sink":
            raise DefinitionError(f"two sinks in {path}", hint="give each a directory of its own")
        found[name] = path
    return found


def make_folder(path: Path) -> None:
    """A place for results, before anything is measured: an hour of work needs one.

    >>> import tempfile
    >>> make_folder(Path(tempfile.mkdtemp()) / "bench")
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnbrokenError(
            f"{path} cannot be made: {error.strerror}", hint="choose another directory: --out DIR"
        ) from None
    if not os.access(path, os.W_OK):
        raise UnbrokenError(f"cannot write into {path}", hint="choose another directory: --out DIR")
