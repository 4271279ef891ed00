"""What protection costs while nothing fails: rows per second and CPU, in turns, in one run.

    python bench/protection.py                 # count by key, 100,000 keys, about five minutes
    python bench/protection.py --quick

One cluster per policy, in turns (`turns`).
"""

from __future__ import annotations

import argparse
from functools import partial

from turns import ROWS, Contender, take_turns, tell
from workloads import DDL, WORKLOADS

import unbroken as ub
from unbroken.policies import Policy, Restart

#: Policy and number of nodes; without protection there is one.
CONTENDERS: dict[str, tuple[Policy, int]] = {
    "restart": (Restart(), 1),
    "passive": (ub.Passive(interval="2s"), 2),
    "active": (ub.Active(replicas=2), 2),
}


def contender(name: str, workload: str) -> Contender:
    """A cluster under one policy."""
    policy, nodes = CONTENDERS[name]
    given = WORKLOADS[workload]
    query = ub.Query(f"protected-{name}", epoch="manual")
    source = query.source("input", DDL, event_time="ts")
    fragment = query.fragment(source, output_mode=given.mode, policy=policy)
    query.sink(fragment(given.transform, name="output"))
    return Contender(name, query, nodes)


def main() -> None:
    """Prints medians, extremes, and ratios to no protection."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="keyed")
    parser.add_argument("--quick", action="store_true", help="2 short turns instead of 5")
    given = parser.parse_args()
    turns, warm, per_turn = (2, 20, 20) if given.quick else (5, 60, 40)
    makers = {name: partial(contender, name, given.workload) for name in CONTENDERS}
    found = take_turns(makers, turns, warm, per_turn)
    print(f"{given.workload}, {ROWS:,} rows per epoch, {turns} turns of {per_turn} epochs")
    tell(found, "restart")


if __name__ == "__main__":
    main()
