"""What `max_delay` costs while nothing is cut: rows per second and CPU, in turns, in one run.

    python bench/bound.py                 # about five minutes
    python bench/bound.py --quick

Two clusters of one node (`turns`), the same query with and without the bound.  Two inputs and two
levels, so that inputs are waited for and one fragment listens to what the other might say
tentatively.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from turns import ROWS, Contender, take_turns, tell
from workloads import DDL, WORKLOADS

import unbroken as ub

BOUNDS: dict[str, dict[str, Any]] = {"without": {}, "with": {"max_delay": "3s"}}


def united(left: Any, right: Any) -> Any:
    """The first level."""
    return left.union(right)


def contender(name: str) -> Contender:
    """A cluster with or without the bound."""
    bound, keyed = BOUNDS[name], WORKLOADS["keyed"]
    query = ub.Query(f"bound-{name}", epoch="manual")
    for side in ("left", "right"):
        query.source(side, DDL, event_time="ts")
    near = query.fragment("left", "right", **bound)(united, name="near")
    totals = query.fragment(near, output_mode=keyed.mode, **bound)
    query.sink(totals(keyed.transform, name="totals"))
    return Contender(name, query)


def main() -> None:
    """Prints medians, extremes, and the ratio of the two, turn by turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4 short turns instead of 10")
    given = parser.parse_args()
    turns, warm, per_turn = (4, 20, 20) if given.quick else (10, 60, 40)
    found = take_turns({name: partial(contender, name) for name in BOUNDS}, turns, warm, per_turn)
    print(f"{ROWS:,} rows per epoch, {turns} turns of {per_turn} epochs")
    tell(found, "without")


if __name__ == "__main__":
    main()
