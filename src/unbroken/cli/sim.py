"""`unbroken sim`: thousands of bad days, in simulated time, from seeds."""

from __future__ import annotations

import argparse
import itertools
import shlex
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from unbroken.cli import arguments
from unbroken.cli.load import load
from unbroken.errors import DefinitionError

#: How many lives there are if nobody says how many, or for how long.
SEEDS = 1000
EPOCHS = 200
#: How often it says how far it is.
SAY_S = 10.0


def register(commands: Any) -> None:
    """Adds the command's arguments."""
    parser = arguments.add_command(
        commands, "sim", run,
        "run simulated clusters with the real protocol code: random faults, from seeds",
        "  unbroken sim --seeds 1000                          random queries, policies and faults\n"
        "  unbroken sim --faults crash,disk --policy passive  only these\n"
        "  unbroken sim --minutes 10 --from 5000              ten minutes of fresh lives\n"
        "  unbroken sim --cuts                                delay bounds, inputs cut off\n"
        "  unbroken sim intrusion.py                          your own graph and policies\n\n"
        "Clock, network, disk and engine are simulated; one seed is one life, always the same.\n"
        "Ends with 1 if an invariant does not hold: with the smallest life that breaks it, its\n"
        "story, and the command to see it again.",
    )  # fmt: skip
    parser.add_argument(
        "file", type=Path, metavar="FILE.py", nargs="?",
        help="a Python file with one query: its graph and policies, operators of the same classes",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=arguments.positive, default=None, metavar="N",
        help=f"how many lives ({SEEDS:,}; with --minutes as many as there is time for)",
    )  # fmt: skip
    parser.add_argument(
        "--from", type=arguments.natural, default=0, dest="first", help="the first seed (0)"
    )
    parser.add_argument(
        "--faults", default=None, help="only these: crash,pause,cut,slow,disk,clock (all)"
    )
    parser.add_argument(
        "--policy", default=None, help="only these: active,passive,upstream,gap,restart (all)"
    )
    parser.add_argument(
        "--cuts", action="store_true",
        help="lives with delay bounds whose inputs are cut off; other faults come with them",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=arguments.positive_real, default=None, help="ends after so long (never)"
    )
    parser.add_argument(
        "--epochs", type=arguments.positive, default=EPOCHS,
        help="epochs of each life (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--variant", default="", help="a protocol that is broken on purpose")


def run(given: argparse.Namespace) -> int:
    """Lives one life after the other; 1 if an invariant does not hold."""
    # Not before: importing the node's classes takes a second.
    from unbroken.testing.reached import Reached
    from unbroken.testing.variants import variant

    live, lived = _lives(given), Lived(given.first, Reached())
    said_s = lived.began_s
    try:
        with variant(given.variant):
            for seed in _seeds(given):
                result = _live(live(seed))
                lived.add(result)
                if result.violation is not None:
                    _tell(given, result)
                    return 1
                now_s = time.monotonic()
                if given.minutes and now_s - lived.began_s > 60 * given.minutes:
                    break
                if now_s > said_s + SAY_S:
                    said_s = now_s
                    arguments.say(f"{lived.done:,} lives, {lived.failures:,} failures")
    except KeyboardInterrupt:
        if lived.done:
            print(lived.text)  # What was lived until then is worth as much.
        raise
    print(lived.text)
    return 0


class Lived:
    """What the lives went through, together."""

    def __init__(self, first: int, reached: Any) -> None:
        self._first, self._reached = first, reached
        self.began_s = time.monotonic()
        # On a machine that others use, that is what can be compared.
        self._busy_s = time.process_time()
        self.done = self._epochs = self.failures = self._restarts = 0

    def add(self, result: Any) -> None:
        """One more life."""
        self.done += 1
        self._epochs += result.epochs
        self.failures += result.failures
        self._restarts += result.restarts
        self._reached.update(result.reached)

    @property
    def text(self) -> str:
        """How many there were, and how fast."""
        took_s = time.monotonic() - self.began_s
        busy_s = time.process_time() - self._busy_s
        clusters = "cluster" if self.done == 1 else "clusters"
        return (
            f"{self.done} simulated {clusters} (seeds {self._first} to "
            f"{self._first + self.done - 1}): {self._epochs:,} epochs, {self.failures:,} failures, "
            f"{self._restarts:,} processes started again; {self._reached.recoveries:,} recoveries "
            f"({self._reached.text}); no invariant was broken.  "
            f"{60 * self.done / max(took_s, 1e-9):.0f} clusters per minute, "
            f"{60 * self.done / max(busy_s, 1e-9):.0f} per minute of one core."
        )


def _seeds(given: argparse.Namespace) -> Iterable[int]:
    """As many as were asked for; while there is time, if only a time was given."""
    if given.seeds is None and given.minutes:
        return itertools.count(given.first)
    return range(given.first, given.first + (given.seeds or SEEDS))


def _lives(given: argparse.Namespace) -> Callable[[int], Any]:
    """The life of a seed, as the options want it."""
    from unbroken.testing import life as lives
    from unbroken.testing.cut_lives import random_cut_life
    from unbroken.testing.own import own_life, traits_of

    faults = arguments.chosen("--faults", given.faults, lives.FAULTS)
    policies = arguments.chosen("--policy", given.policy, lives.POLICIES)
    if given.file is not None:
        if given.cuts or given.policy is not None:
            raise DefinitionError(
                f"{given.file} says itself what is protected how, and waits how long",
                hint="leave out --cuts and --policy; --faults may be chosen",
            )
        query = load(given.file)
        arguments.say(f"reading {given.file} with Spark")
        return partial(own_life, query, traits_of(query), faults=faults, epochs=given.epochs)
    if given.cuts:
        if given.faults is not None or given.policy is not None:
            raise DefinitionError(
                "lives with --cuts have faults and policies of their own",
                hint="leave out --faults and --policy, or --cuts",
            )
        return partial(random_cut_life, epochs=given.epochs)
    return partial(lives.random_life, faults=faults, policies=policies, epochs=given.epochs)


def _live(life: Any) -> Any:
    from unbroken.testing.sim import simulate

    return simulate(life)


def _tell(given: argparse.Namespace, result: Any) -> None:
    """The violation, the smallest life that has it, its story, and how to see it again."""
    from unbroken.testing.shrink import smallest

    print(f"seed {result.life.seed}: {result.violation}\n")
    arguments.say(f"looking for a smaller life; this one: {_again(given, result.life.seed)}")
    found = result

    def still_wrong(smaller: Any) -> bool:
        nonlocal found
        tried = _live(smaller)
        same = tried.violation is not None and tried.violation.number == result.violation.number
        if same:
            found = tried
        return same

    smallest(result.life, still_wrong)
    print(f"The smallest life found that breaks it: {found.violation}\n\n{found.life.text}\n")
    for line in found.story:
        print(line)
    print(f"\nTo see it again: {_again(given, result.life.seed)}")


def _again(given: argparse.Namespace, seed: int) -> str:
    """The command that lives the life of `seed` again, as a shell takes it.

    >>> given = argparse.Namespace(file=Path("my shop.py"), faults="crash", policy=None, cuts=False,
    ...                            variant="two writers", epochs=200)
    >>> _again(given, 7)
    "unbroken sim 'my shop.py' --seeds 1 --from 7 --faults crash --variant 'two writers'"
    """
    words = ["unbroken", "sim", *([str(given.file)] if given.file else [])]
    words += ["--seeds", "1", "--from", str(seed)]
    for option, value in (
        ("--faults", given.faults), ("--policy", given.policy), ("--variant", given.variant),
        ("--epochs", str(given.epochs) if given.epochs != EPOCHS else ""),
    ):  # fmt: skip
        words += [option, value] if value else []
    return shlex.join([*words, *(["--cuts"] if given.cuts else [])])
