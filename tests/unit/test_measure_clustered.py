"""When a cluster counts as whole again, read off its status."""

from __future__ import annotations

from typing import Any

import pytest

from unbroken.errors import UnbrokenError
from unbroken.local import LocalCluster
from unbroken.measure.clustered import Clustered, holders
from unbroken.measure.workload import Counts
from unbroken.policies import Active, Policy, Restart

OLD, NEW = 100, 200


def told(nodes: list[str], survives: int, *, pid: int, state: str = "running") -> dict[str, Any]:
    node = {"state": state, "pid": pid, "fragments": {"output": {"epoch": 5}}}
    protection = {"nodes": nodes, "survives": survives}
    return {"nodes": {"node-1": node}, "fragments": {"output": protection}}


def contender(policy: Policy, status: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Clustered:
    monkeypatch.setattr(LocalCluster, "status", lambda self: status)
    monkeypatch.setattr(LocalCluster, "pid", lambda self, name: NEW)
    return Clustered(Counts(keys=1, rate=1), policy)


@pytest.mark.parametrize(
    ("policy", "status", "whole"),
    [
        (Active(), told(["node-1", "node-2"], 1, pid=NEW), True),
        (Active(), told(["node-1"], 0, pid=NEW), False),
        # The control plane does not count a node that came back; its own report does.
        (Restart(), told([], 0, pid=NEW), True),
        (Restart(), told([], 0, pid=NEW, state="starting Spark"), False),
        # Said by the process that was killed.
        (Restart(), told(["node-1"], 0, pid=OLD), False),
    ],
)
def test_whole_is_what_the_policy_promises(
    policy: Policy, status: dict[str, Any], whole: bool, monkeypatch: pytest.MonkeyPatch
):
    made = contender(policy, status, monkeypatch)
    try:
        assert made.whole() is whole
    finally:
        made.close()


def test_a_copy_that_is_far_behind_does_not_make_it_whole(monkeypatch: pytest.MonkeyPatch):
    status = told(["node-1", "node-2"], 1, pid=NEW)
    status["nodes"]["node-2"] = {**status["nodes"]["node-1"], "fragments": {"output": {"epoch": 2}}}
    made = contender(Active(), status, monkeypatch)
    try:
        assert not made.whole()
        status["nodes"]["node-2"]["fragments"]["output"]["epoch"] = 3
        assert made.whole()
    finally:
        made.close()


def test_a_fragment_that_nobody_holds_is_an_error_and_no_crash():
    with pytest.raises(UnbrokenError, match="nobody holds"):
        holders(told([], 0, pid=OLD, state="silent for 7 s"), "output")
