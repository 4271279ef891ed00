"""What the processes of a cluster are told when they start: a folder with the query in it.

    <folder>/query.pickle     the query with the user's functions (written and read on this machine)
    <folder>/cluster.json     who runs what, and how

The query is pickled by the process that starts the cluster and read by its own children from a
folder that only this user can write: it never comes over the network.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from unbroken.engine import code
from unbroken.errors import UnbrokenError
from unbroken.query import Query
from unbroken.streams import disk

#: The state of a node that waits for epochs, as its reports say it.
RUNNING = "running"


@dataclass(frozen=True)
class Setup:
    """How a cluster is laid out."""

    query: str
    #: Fragment name to the nodes that run it, one replica each.
    placement: dict[str, list[str]]
    entry: str
    #: The door of the control plane.
    control: str
    manual: bool
    master: str = "local[2]"
    memory: str = "1g"
    settings: dict[str, str] = field(default_factory=dict)
    log_bytes_max: int = 1 << 30
    #: How patient failure detection is, by name.
    timing: str = "local"
    #: Whether a new query's clock waits for `begin`: Spark takes long to start, and the epochs of
    #: that time would be a backlog before the first row.
    hold_clock: bool = False
    #: Who reaches whom through a cable that can be cut: reader to process to address.
    cables: dict[str, dict[str, str]] = field(default_factory=dict)
    #: The door of the process that can cut them; empty without cables.
    cables_held_at: str = ""

    def consumers(self, query: Query, stream: str) -> list[str]:
        """The replicas that read `stream`, by name: each of them acks, and holds back trimming."""
        return [
            replica_name(fragment, node)
            for fragment in query.consumers(stream)
            for node in self.placement[fragment]
        ]


def replica_name(fragment: str, node: str) -> str:
    """A replica, as the book and its producers know it.

    >>> replica_name("suspects", "node-1")
    'suspects@node-1'
    """
    return f"{fragment}@{node}"


def save(folder: Path, query: Query, setup: Setup) -> None:
    """Writes both files."""
    os.chmod(folder, 0o700)
    disk.write_whole(folder / "query.pickle", [code.dumps(query)])
    disk.write_whole(folder / "cluster.json", [json.dumps(asdict(setup), indent=1).encode()])


def load(folder: Path) -> tuple[Query, Setup]:
    """Reads what `save` wrote; only from a folder of this user."""
    if folder.stat().st_uid != os.getuid():
        raise UnbrokenError(f"{folder} belongs to another user: its query is not loaded")
    query = code.loads((folder / "query.pickle").read_bytes())
    return query, Setup(**json.loads((folder / "cluster.json").read_bytes()))
