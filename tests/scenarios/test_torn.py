"""A power cut tears what was not synced, and nobody takes half of an epoch for a whole one.

Found: what a writer held back for its standby was not looked at after a reboot, and an epoch that
is missing between others was taken for a reason to stop.  The node could not stand by again, and
whoever had taken over from it shows nothing that no standby has.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unbroken.node import replica
from unbroken.streams.log import drop_torn_tail
from unbroken.testing import Fault, Life, Piece, Result, simulate
from unbroken.testing.patches import patched

#: What the writer has drawn is confirmed by nobody when its machine goes down.
_HELD_BACK = Life(
    0, 2, ("s1",), (Piece("a", "draw", ("s1",), "passive"),), 240,
    (Fault(5.0, "cut", "node-1", 20.0, "node-2"), Fault(6.0, "power", "node-1", 1.0)), ("a",),
)  # fmt: skip


def said(result: Result, who: str, text: str) -> bool:
    return any(line.who == who and text in line.text for line in result.story)


@pytest.mark.parametrize("seed", range(6))
def test_what_was_held_back_is_dropped_from_the_first_torn_or_missing_epoch_on(seed: int):
    result = simulate(replace(_HELD_BACK, seed=seed))
    assert result.violation is None
    assert said(result, "fault", "power node-1")
    assert said(result, "control", "a: node-2 takes over from node-1")
    assert not said(result, "node-1", "has a hole")
    assert not said(result, "node-1", "is damaged")


def test_a_writer_that_does_not_look_cannot_be_started_again():
    """So that the lives above are such lives."""

    def output_only(folder: Path) -> Any:
        if folder.name == "output":
            drop_torn_tail(folder)

    with patched([(replica, "drop_torn_tail", output_only)]):
        results = [simulate(replace(_HELD_BACK, seed=seed)) for seed in range(6)]
    assert any(said(result, "node-1", "has a hole") for result in results)
    assert any(result.violation is not None for result in results)
