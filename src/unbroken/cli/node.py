"""`unbroken node`: one more node for a running cluster.

The code comes from the user's own copy of the file, never over the network; a copy that differs is
found out by its fingerprint, and its epochs do not merge.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from unbroken.cli import arguments
from unbroken.cli.load import load
from unbroken.client.cluster import Cluster, connect
from unbroken.errors import DefinitionError, UnbrokenError
from unbroken.node import setup
from unbroken.node.process import Restarts, Tree, lock_folder, raise_noted
from unbroken.query import Query
from unbroken.streams.flight import Peer, checked_name

LOOK_S = 0.5


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "node", run, "add a node to a running cluster; it becomes a spare",
        "  unbroken node intrusion.py --join 127.0.0.1:4715\n"
        "  unbroken node intrusion.py --join 10.0.0.1:4715 --host 10.0.0.7 --name east-1\n\n"
        "FILE.py must be the one that the cluster runs.  Ctrl-C takes the node away again.",
    )  # fmt: skip
    parser.add_argument("file", type=Path, metavar="FILE.py", help="the file with the query")
    parser.add_argument("--join", required=True, metavar="HOST:PORT",
                        help="where the cluster listens")  # fmt: skip
    parser.add_argument("--name", metavar="NAME",
                        help="what the node is called (default: the next free node-N)")  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", metavar="H",
                        help="address to listen at (default: %(default)s)")  # fmt: skip
    parser.add_argument("--dir", type=Path, metavar="DIR",
                        help="its logs and checkpoints (default: .unbroken/<name>)")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Runs a node until it ends, or until Ctrl-C."""
    query = load(given.file)
    address = f"grpc://{given.join.removeprefix('grpc://')}"
    cluster = connect(address)
    name = _name(cluster, given.name)
    folder = (given.dir or Path(".unbroken") / name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    lock = lock_folder(folder, "another node", wait_s=0.0)
    setup.save(folder, query, replace(_setup(address, query), entry=address))
    arguments_of_node = ["--folder", str(folder), "--name", name, "--host", given.host]
    log = folder / f"{name}.log"
    restarts = Restarts()
    print(f"{name} starts; its log is {log}", flush=True)
    while True:
        tree = Tree("unbroken.node.loop", arguments_of_node, log, share=lock)
        try:
            _watch(cluster, name, tree)
        finally:
            tree.kill()
        raise_noted(folder, name)
        if not restarts.allowed(name, now_s=time.monotonic()):
            raise UnbrokenError(f"{name} has ended again and again", hint=f"its log is {log}")
        print(f"{name} has ended, and is started again; its log is {log}", flush=True)


def _name(cluster: Cluster, wanted: str | None) -> str:
    known = cluster.status()["nodes"]
    if wanted is not None:
        told = known.get(checked_name(wanted))
        if told is not None and "silent" not in told["state"]:
            raise DefinitionError(f"a node called {wanted} is there already", hint="another --name")
        return wanted
    return next(name for i in range(1, 10_000) if (name := f"node-{i}") not in known)


def _setup(address: str, query: Query) -> setup.Setup:
    with Peer(address) as entry:
        given = setup.Setup(**entry.act({"do": "setup"}))
    if given.query != query.name:
        raise DefinitionError(
            f"the cluster at {address} runs {given.query!r}, the file has {query.name!r}",
            hint="give the file that the cluster was started with",
        )
    return given


def _watch(cluster: Cluster, name: str, tree: Tree) -> None:
    """Tells what the node does, whenever that changes, as long as it lives."""
    said = ""
    while tree.alive:
        words = said
        # The keeper is away, or stumbles over the question: the node goes on.
        with contextlib.suppress(UnbrokenError):
            node = cluster.status()["nodes"].get(name)
            if node is not None and node["pid"] == tree.pid:
                runs = ", ".join(node["fragments"]) or "nothing yet: a spare"
                words = f"{name} {node['state']}" + (
                    f", it runs {runs}" if node["state"] == "running" else ""
                )
        if words != said:
            print(words, flush=True)
            said = words
        time.sleep(LOOK_S)
