"""A cluster of ours under one policy, as a contender.

    sources ◀─ send          follow ─▶ what was sent, epoch by epoch
    sinks                    follow ─▶ what came out, and when

* All policies have the same nodes, so that spares cost each of them the same.
* Who is killed is one that holds state: the writer of some fragment, or any of its copies.
* A node that was killed comes back when the fragments are whole without it, and outside of what is
  measured: on another machine its start would cost the others nothing.  Without protection there
  is nobody else, so it is started again at once, as a supervisor does.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from unbroken.client.producer import Producer
from unbroken.epochs import Epoch
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.local import CONTROL, KEEPER, LocalCluster
from unbroken.measure import compare, costs
from unbroken.measure.compare import Difference
from unbroken.measure.contender import Kill, until
from unbroken.measure.following import Following
from unbroken.measure.watch import Watch
from unbroken.measure.workload import Workload
from unbroken.node.setup import RUNNING
from unbroken.policies import Active, Passive, Policy, Restart

NODES = 3
#: A copy that is further behind would be heard as silence when the other one dies.
BEHIND_EPOCHS_MAX = 2
#: How often the control plane's log is looked at, and how long at most.
NOTICE_S, NOTICE_S_MAX = 0.01, 60.0


class Clustered:
    """`workload` on some nodes, every fragment under `policy`, or as it is written."""

    def __init__(
        self, workload: Workload, policy: Policy | None, nodes: int = NODES, *, cables: bool = False
    ) -> None:
        """With `cables` it can be cut, and its results are heard tentatively too."""
        self._workload, self._policy = workload, policy
        self._query = workload.query(policy)
        self._cables = cables
        self._cluster = LocalCluster(self._query, nodes, cables=cables)
        self._producers: dict[str, Producer] = {}
        self._sources: dict[str, Following] = {}
        self._sinks: dict[str, Following] = {}
        #: When the newest row of each epoch was due, for results that do not carry it.
        self._due_s: dict[int, float] = {}
        self._down: str | None = None

    @property
    def watches(self) -> Sequence[Watch]:
        """One per sink."""
        return [following.watch for following in self._sinks.values()]

    def start(self) -> None:
        """Starts the cluster, producers and followers."""
        self._cluster.start()
        # Followers of sources are waited for: a source trims what its fragments have committed.
        self._sources = {
            name: Following(self._cluster, name, lambda epoch: None, consumer="bench")
            for name in self._query.sources
        }
        self._sinks = {
            name: Following(self._cluster, name, self._due, tentative=self._cables)
            for name in self._query.sinks
        }
        for following in (*self._sources.values(), *self._sinks.values()):
            following.start()
        self._producers = {name: self._cluster.producer(name) for name in self._query.sources}

    def _due(self, epoch: Epoch) -> float | None:
        column = self._workload.due
        if column is None:
            return self._due_s.get(epoch.number)
        if epoch.table.num_rows == 0 or column not in epoch.table.column_names:
            return None
        return float(max(epoch.table[column].cast(pa.int64()).to_numpy())) / 1e6

    def send(self, tick: int, due_s: float, tables: Mapping[str, pa.Table]) -> None:
        """Each table into its source."""
        for name, table in tables.items():
            receipt = self._producers[name].send(table)
            self._due_s[receipt.epoch] = due_s

    def kill(self) -> Kill:
        """A node that holds the state of some fragment."""
        fragment = random.choice(list(self._query.fragments))
        node = random.choice(holders(self._cluster.status(), fragment))
        log = self._cluster.folder / f"{CONTROL}.log"
        offset = log.stat().st_size
        made = Kill(node, time.time())
        # Its Python first, which has its door: finding the rest of the tree takes a while, and the
        # moment should be known.
        os.kill(self._cluster.pid(node), signal.SIGKILL)
        threading.Thread(
            target=self._notice, args=(made, offset), daemon=True, name="notice"
        ).start()
        self._cluster.kill(node)
        self._down = node
        if isinstance(self._policy, Restart):
            self._cluster.restart(node, wait=False)
        return made

    def _notice(self, kill: Kill, offset: int) -> None:
        """Waits for the control plane's word that the node is dead."""
        words = f"{kill.process} is dead".encode()
        deadline_s = time.monotonic() + NOTICE_S_MAX
        with open(self._cluster.folder / f"{CONTROL}.log", "rb") as log:
            while kill.noticed_s is None and time.monotonic() < deadline_s:
                log.seek(offset)
                if words in log.read():
                    kill.noticed_s = time.time()
                time.sleep(NOTICE_S)

    def whole(self) -> bool:
        """Whether every fragment is served, and survives what its policy promises."""
        try:
            status = self._cluster.status()
        except Unreachable:
            return False
        return all(self._whole(status, name) for name in self._query.fragments)

    def _whole(self, status: Mapping[str, Any], fragment: str) -> bool:
        """Also as fast as it will be: a kill that comes earlier would measure the start."""
        if not self._protected(status, fragment):
            return False
        policy = self._query.fragments[fragment].policy
        if isinstance(policy, Active):
            return behind(status, fragment) <= BEHIND_EPOCHS_MAX
        return not isinstance(policy, Passive) or warm(status, fragment)

    def _protected(self, status: Mapping[str, Any], fragment: str) -> bool:
        """Whether it is served, and survives what its policy promises."""
        policy = self._query.fragments[fragment].policy
        if isinstance(policy, Restart):
            # Reports of a process that is dead may still be there: those of its successor count.
            nodes = [n for n in self._cluster.nodes if n in status["nodes"]]
            return any(
                status["nodes"][n]["pid"] == self._cluster.pid(n)
                for n in nodes
                if n in running(status, fragment)
            )
        told = status["fragments"].get(fragment)
        wanted = policy.survives(policy.copies)
        return bool(told and told["nodes"] and told["survives"] == wanted)

    def mend(self) -> None:
        """The killed node comes back: as a spare, or to go on with what it held."""
        if self._down is not None and not isinstance(self._policy, Restart):
            self._cluster.restart(self._down)
        self._down = None
        self._cluster.wait_ready()

    def check(self) -> None:
        """Raises why a process gave up, or why nothing can be followed any more."""
        self._cluster.raise_start_error()
        for following in (*self._sources.values(), *self._sinks.values()):
            if following.error is not None:
                raise following.error

    def cpu_s(self) -> float:
        """Of the keeper, the control plane and all nodes, spares too."""
        return costs.cpu_s(map(self._cluster.pid, (KEEPER, CONTROL, *self._cluster.nodes)))

    def sent_bytes(self) -> int | None:
        """What the doors of keeper and nodes have sent, if `status` says it."""
        return sent_bytes(self._cluster.status())

    def kept_bytes(self) -> int:
        """Logs and checkpoints of all processes."""
        return costs.kept_bytes(self._cluster.folder)

    def finish(self) -> Difference:
        """Every epoch that was sealed must have come out, as an undisturbed run makes it."""
        return sum(self.differences().values(), Difference())

    def differences(self) -> dict[str, Difference]:
        """The same, by sink."""
        return {name: compare.epochs(*both) for name, both in self.outcome().items()}

    def outcome(self) -> dict[str, tuple[Sequence[pa.Table], list[Epoch]]]:
        """Ends the load and the cluster; by sink, what had to come out and what did."""
        last = self._cluster.finish()
        every = [*self._sources.values(), *self._sinks.values()]
        until(lambda: all(f.next >= last for f in every), "the last epoch", check=self.check)
        sent = {
            name: [epoch.table for epoch in following.epochs[:last]]
            for name, following in self._sources.items()
        }
        came = {name: following.epochs for name, following in self._sinks.items()}
        self.close()  # The undisturbed run may want the machine.
        answers = self._workload.answers(self._policy, sent)
        return {name: (answers[name], came[name]) for name in came}

    def close(self) -> None:
        """Ends every process; may be said twice."""
        for following in (*self._sources.values(), *self._sinks.values()):
            following.stopped = True
        self._cluster.close()


def running(status: Mapping[str, Any], fragment: str) -> list[str]:
    """The nodes that report that they run `fragment`.

    >>> node = {"state": "running", "fragments": {"counts": {}}}
    >>> running({"nodes": {"node-1": node, "node-2": {**node, "state": "silent"}}}, "counts")
    ['node-1']
    """
    nodes = status["nodes"].items()
    return [n for n, told in nodes if told["state"] == RUNNING and fragment in told["fragments"]]


def holders(status: Mapping[str, Any], fragment: str) -> list[str]:
    """The nodes that hold the state of `fragment`: its writer, or whoever serves it.

    Where the control plane knows of none, whoever reports that it runs there.

    >>> node = {"state": "running", "fragments": {"counts": {}}}
    >>> status = {"nodes": {"node-3": node}, "fragments": {"counts": {"nodes": ["node-1"]}}}
    >>> holders(status, "counts")
    ['node-1']
    >>> status["fragments"]["counts"]["writer"] = "node-2"; holders(status, "counts")
    ['node-2']
    >>> status["fragments"] = {}; holders(status, "counts")
    ['node-3']
    """
    told = status["fragments"].get(fragment, {})
    if told.get("writer"):
        return [told["writer"]]
    found: list[str] = told.get("nodes") or running(status, fragment)
    if not found:
        raise UnbrokenError(f"nobody holds the state of {fragment!r}", hint="see its nodes' logs")
    return found


def warm(status: Mapping[str, Any], fragment: str) -> bool:
    """Whether a standby of `fragment` has its query started, and has rehearsed.

    Or there was nothing to rehearse with: then nobody should wait for it.

    >>> standby = {"counts": {"held": True, "rehearsed": False, "prepared": True}}
    >>> warm({"nodes": {"node-1": {"standbys": standby}}}, "counts")
    True
    """
    standbys = [told.get("standbys", {}).get(fragment) for told in status["nodes"].values()]
    return any(each and each["prepared"] for each in standbys)


def behind(status: Mapping[str, Any], fragment: str) -> int:
    """How many epochs the slowest copy of `fragment` is behind the fastest.

    >>> told = {n: {"fragments": {"counts": {"epoch": n}}} for n in (7, 9, 4)}
    >>> behind({"nodes": told, "fragments": {"counts": {"nodes": [7, 9]}}}, "counts")
    2
    """
    nodes = status["fragments"][fragment]["nodes"]
    reports = [status["nodes"].get(node, {}).get("fragments", {}) for node in nodes]
    epochs = [told[fragment]["epoch"] for told in reports if fragment in told]
    return max(epochs, default=0) - min(epochs, default=0)


def sent_bytes(status: Mapping[str, Any]) -> int | None:
    """The sum of what keeper and nodes say they have sent; None if one does not say.

    >>> sent_bytes({"sent_bytes": 5, "nodes": {"node-1": {"sent_bytes": 7}}})
    12
    >>> sent_bytes({"nodes": {"node-1": {}}}) is None
    True
    """
    told = [status.get("sent_bytes"), *(n.get("sent_bytes") for n in status["nodes"].values())]
    return None if None in told else sum(int(each) for each in told if each is not None)
