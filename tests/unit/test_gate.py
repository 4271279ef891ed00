"""The gate: one epoch at a time, complete on all inputs, whatever order things come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.errors import MisalignedBatch
from unbroken.gate import Gate


def test_a_poll_that_falls_between_two_inputs_waits():
    """Scenario 23: epoch 0 is there on a only; whoever asks, on whichever input, waits."""
    gate = Gate(["a", "b"], committed=-1)
    gate.offer("a", 0)
    assert gate.asked(after=-1) is None
    assert gate.missing == ["b"]
    gate.offer("b", 0)
    assert [gate.asked(after=-1), gate.asked(after=-1)] == [0, 0]


def test_the_question_for_the_next_is_the_news_of_the_commit():
    """Invariant 6: released is no commit, and "not yet" takes no commit back."""
    gate = Gate(["a"], committed=4)
    gate.offer("a", 5)
    assert (gate.asked(after=4), gate.committed, gate.released) == (5, 4, 5)
    assert (gate.asked(after=5), gate.committed, gate.released) == (None, 5, 5)
    assert (gate.asked(after=5), gate.committed, gate.missing) == (None, 5, ["a"])


@pytest.mark.parametrize("after", [3, 4, 7, 100])
def test_a_question_after_any_other_number_is_refused(after: int):
    """Spark went its own way (scenario 20): said with both numbers, and nothing changes."""
    gate = Gate(["a"], committed=4)
    for number in (5, 6):
        gate.offer("a", number)
    assert gate.asked(after=4) == 5
    assert gate.asked(after=5) == 6
    with pytest.raises(MisalignedBatch, match=f"after {after}, but 6 was released and 5 committed"):
        gate.asked(after=after)
    assert (gate.committed, gate.released) == (5, 6)


def test_an_input_that_skips_or_repeats_is_a_mistake_of_ours():
    """The merge delivers in order, none skipped; the gate relies on it and says so."""
    gate = Gate(["a"], committed=-1)
    gate.offer("a", 0)
    for number in (0, 2):
        with pytest.raises(AssertionError, match="in order"):
            gate.offer("a", number)


INPUTS = ("a", "b", "c")


@given(
    width=st.integers(1, 3), start=st.integers(-1, 5),
    moves=st.lists(st.sampled_from([*INPUTS, "ask", "ask", "ask"]), max_size=120),
)  # fmt: skip
def test_no_interleaving_releases_an_incomplete_epoch_or_skips_one(
    width: int, start: int, moves: list[str]
):
    """Goal: every release is the next number, there on all inputs, and the same for all of them.

    Method: any order of arrivals and questions.  Spark's one thread asks input after input, again
    after "not yet"; when all have answered it runs and commits the batch, and asks after it.
    """
    inputs = INPUTS[:width]
    gate, arrived = Gate(inputs, committed=start), dict.fromkeys(inputs, start)
    committed, to_ask = start, list(inputs)
    for move in moves:
        if move in arrived:
            arrived[move] += 1
            gate.offer(move, arrived[move])
        elif move == "ask":
            complete = min(arrived.values()) > committed
            answer = gate.asked(after=committed)
            assert answer == (committed + 1 if complete else None), "never early, never withheld"
            assert gate.committed == committed
            if answer is not None:
                to_ask.pop()
            if not to_ask:
                committed, to_ask = committed + 1, list(inputs)
