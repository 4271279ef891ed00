"""The intrusion query over half a minute of made-up traffic, from Python.

python examples/in_python.py
"""

import unbroken as ub
from unbroken.demo.intrusion_trace import attackers, trace
from unbroken.demo.queries.intrusion import query


def main() -> None:
    """Feeds one table per epoch and prints the alerts of each."""
    seconds = list(trace(seed=7, seconds=30, rows_per_s=200))
    results = ub.run(query, {"connections": seconds})
    for epoch in results["alerts"]:
        for row in epoch.table.to_pylist():
            print(f"epoch {epoch.number} ({epoch.kind}): {row['kind']} by {row['src']}")
    print("planted:", ", ".join(f"{a.kind} by {a.src}" for a in attackers(seed=7, seconds=30)))


if __name__ == "__main__":
    main()
