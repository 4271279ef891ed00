"""`unbroken node`: a node that ends by itself is started again, one that gave up is not."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from unbroken.cli import node
from unbroken.errors import DefinitionError, UnbrokenError
from unbroken.node import process
from unbroken.node.setup import Setup


class Tree:
    """A process that is gone at the second look."""

    made: list[Tree]
    pid = 7

    def __init__(self, *given: Any, **how: Any) -> None:
        self.looks, self.killed = 0, False
        Tree.made.append(self)

    @property
    def alive(self) -> bool:
        self.looks += 1
        return self.looks < 2

    def kill(self) -> None:
        self.killed = True


class Cluster:
    """A keeper that stumbles over every question."""

    def status(self) -> dict[str, Any]:
        raise UnbrokenError("failed inside: RuntimeError")


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    Tree.made = []
    setup = Setup.__new__(Setup)
    for name, value in {
        "Tree": Tree, "LOOK_S": 0.0, "load": lambda file: None, "connect": lambda at: Cluster(),
        "_name": lambda cluster, wanted: "late", "_setup": lambda at, query: setup,
        "replace": lambda setup, **how: setup,
    }.items():  # fmt: skip
        monkeypatch.setattr(node, name, value)
    monkeypatch.setattr(node.setup, "save", lambda *what: None)
    return argparse.Namespace(
        file=Path("q.py"), join="127.0.0.1:1", name="late", dir=tmp_path, host="127.0.0.1"
    )


def test_it_is_started_again_and_not_for_ever(given: argparse.Namespace):
    """Nobody else would; what ends again and again ends for a reason."""
    with pytest.raises(UnbrokenError, match="late has ended again and again"):
        node.run(given)
    assert len(Tree.made) == 1 + process.RESTARTS_MAX
    assert all(tree.killed for tree in Tree.made), "also what it left behind"


def test_one_that_gave_up_is_not_started_again(given: argparse.Namespace):
    """It has noted why, and would end in the same way."""
    (given.dir / "late.error").write_text("DefinitionError\nno such column\nmend it")
    with pytest.raises(DefinitionError, match="no such column"):
        node.run(given)
    assert len(Tree.made) == 1
