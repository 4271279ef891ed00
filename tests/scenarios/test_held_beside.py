"""Two fragments read one stream, and one of them is lost for good: the other one is held too.

s1 ─▶ a ─┬─▶ c   without a policy, its disk is lost
         └─▶ d   has copies, and stands still when the log of a is full
"""

from __future__ import annotations

from unbroken.testing import Fault, Life, Piece, Sim
from unbroken.testing.life import SMALL_KEEP_EPOCHS


def test_whoever_reads_beside_it_is_told_for_whose_sake():
    """The log of a is kept for c, which nobody gives up without being asked (scenario 17)."""
    pieces = (
        Piece("a", "map", ("s1",), "active"), Piece("c", "count", ("a",), "restart"),
        Piece("d", "count", ("a",), "active"),
    )  # fmt: skip
    lost = Fault(3.0, "lose", "node-3", 5.0)
    sim = Sim(
        Life(
            7, 5, ("s1",), pieces, 200, (lost,), ("c", "d"),
            log_bytes_max=80, keep_epochs=SMALL_KEEP_EPOCHS,
        )
    )  # fmt: skip
    assert sim.setup.placement["c"] == ["node-3"]
    result = sim.run()
    assert result.violation is None
    told = {
        name: report["fragments"][name]["sentence"]
        for report, _ in sim.shells["keeper"].keeper._reports.values()
        for name in report["fragments"]
    }
    assert told["a"].startswith("waiting: the output log holds")
    assert told["a"].endswith("kept for c@node-3")
    assert "fragment 'c' has no checkpoint to go on from" in told["c"]
    beside = {sink.stream: sink.next for sink in sim.sinks()}
    assert beside["c"] < beside["d"] < 200
