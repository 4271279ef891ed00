"""What a running cluster has measured, for `unbroken explain`: from its status.

>>> log = {"first": 10, "next": 14, "bytes": 4_000}
>>> told = {"counts": {"work_s": 0.25, "start_s": 2.0, "output": log}}
>>> status = {"sources": {"clicks": log}, "nodes": {"node-1": {"fragments": told}}}
>>> of(status, "counts").work_s
0.25
>>> bytes_kept(status, ["clicks", "counts"], epochs=5)
10000
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unbroken.control.detector import TIMINGS
from unbroken.policies.costs import Measured

Status = Mapping[str, Any]


def of(status: Status, fragment: str) -> Measured:
    """The numbers of one fragment: of its slowest replica."""
    told = list(_replicas(status, fragment))
    starts = [each["start_s"] for each in told if each["start_s"] is not None]
    works = [each["work_s"] for each in told if each["work_s"] is not None]
    timing = TIMINGS[status.get("timing", "local")]
    return Measured(max(starts, default=None), max(works, default=None), timing.remove_s)


def bytes_kept(status: Status, streams: Sequence[str], epochs: int | None) -> int | None:
    """What so many epochs of these streams take; None if that is not known."""
    sizes = [_epoch_bytes(status, stream) for stream in streams]
    if epochs is None or None in sizes:
        return None
    return round(epochs * sum(size for size in sizes if size is not None))


def _epoch_bytes(status: Status, stream: str) -> float | None:
    logs = [status.get("sources", {}).get(stream)]
    logs += [told["output"] for told in _replicas(status, stream)]
    sizes = [log["bytes"] / (log["next"] - log["first"]) for log in logs if log and _holds(log)]
    return max(sizes, default=None)


def _holds(log: Mapping[str, int]) -> bool:
    return log["next"] > log["first"]


def _replicas(status: Status, fragment: str) -> Iterator[Mapping[str, Any]]:
    for node in status.get("nodes", {}).values():
        if fragment in node["fragments"]:
            yield node["fragments"][fragment]
