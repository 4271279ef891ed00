"""The past: a successor that begins with the seed has the same state, and says the same."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unbroken.errors import UnbrokenError
from unbroken.policies import past as module
from unbroken.policies.past import Marks, Past, Seed
from unbroken.policies.reach import epochs_kept
from unbroken.policies.traits import OperatorClass, Traits
from unbroken.policies.upstream import Upstream

SECOND_MS = 1000
NO_ROW_YET = Marks(0, (None,))


@dataclass
class Windows:
    """Spark's windowed count in append mode, one batch per epoch, as scenario 4 describes it.

    Late rows are dropped by the watermark of the batch before; eviction is by this batch's.
    """

    delay_ms: int
    length_ms: int
    slide_ms: int
    marks: Marks = NO_ROW_YET
    #: The watermark of the batch before; None in an empty checkpoint: nothing is late.
    late_ms: int | None = None
    #: (end of window, epoch) to rows of that epoch in that window.
    state: Counter[tuple[int, int]] = field(default_factory=Counter)

    def batch(self, epoch: int, times: list[int]) -> list[tuple[int, int]]:
        """Takes the rows of an epoch; the windows that close, with their counts."""
        evict_ms = self.marks.current_ms
        for t in times:
            for end in self.ends(t):
                if self.late_ms is None or end > self.late_ms:
                    self.state[end, epoch] += 1
        closed = Counter[int]()
        for end, at in list(self.state):
            if end <= evict_ms:
                closed[end] += self.state.pop((end, at))
        self.late_ms = evict_ms
        if times:
            own = max([max(times) - self.delay_ms, *(m for m in self.marks.operators if m)])
            self.marks = Marks(max(evict_ms, own), (own,))
        return sorted(closed.items())

    def ends(self, t: int) -> list[int]:
        """The ends of the windows that a row is in."""
        first = t // self.slide_ms * self.slide_ms
        return [a + self.length_ms for a in range(first, t - self.length_ms, -self.slide_ms)]

    @property
    def counts(self) -> Counter[int]:
        """How many rows each open window has."""
        counts = Counter[int]()
        for (end, _), rows in self.state.items():
            counts[end] += rows
        return counts


def run(windows: Windows, epochs: list[list[int]], first: int, past: Past):
    """By epoch: the output, the state after it, and the oldest epoch with a row in it."""
    seen = {}
    for epoch in range(first, len(epochs)):
        out = windows.batch(epoch, epochs[epoch])
        past.done(epoch, windows.marks)
        oldest = min((at for _, at in windows.state), default=epoch + 1)
        seen[epoch] = out, windows.counts, oldest
    return seen


#: Steps of event time, with stragglers and epochs without rows.
streams = st.lists(
    st.tuples(st.integers(0, 3000), st.lists(st.integers(-9000, 2000), max_size=4)),
    min_size=1, max_size=60,
)  # fmt: skip


def times_of(stream: list[tuple[int, list[int]]]) -> list[list[int]]:
    now, made = 20_000, []
    for step, offsets in stream:
        now += step
        made.append([now + offset for offset in offsets])
    return made


@settings(max_examples=300, deadline=None)
@given(stream=streams, delay=st.integers(0, 4000), slide=st.integers(1, 3000),
       slides=st.integers(1, 3), data=st.data())  # fmt: skip
def test_a_successor_from_the_seed_says_what_the_first_one_said(
    stream, delay: int, slide: int, slides: int, data: st.DataObject
):
    """Goal: scenario 4.  State after s and all output from D on are those of an undisturbed run.

    Method: a model of Spark's windows on random rows; by brute force which epochs have rows in a
    window that is open after s; and a second run, empty from the seed, compared epoch by epoch.
    """
    epochs, length = times_of(stream), slide * slides
    past = Past(delay_ms=delay, history_ms=length)
    whole = run(Windows(delay, length, slide), epochs, 0, past)
    speak = data.draw(st.integers(0, len(epochs)), "speak")
    seed = past.seed(speak)
    assert seed is not None, "it saw everything"
    assert seed.first <= (whole[speak - 1][2] if speak else 0)
    again = Past(delay_ms=delay, history_ms=length)
    again.began(seed.first - 1, seed.marks)
    marks = seed.marks or NO_ROW_YET
    replayed = run(Windows(delay, length, slide, marks), epochs, seed.first, again)
    if speak:
        assert replayed[speak - 1][1] == whole[speak - 1][1], "the state, when it begins to speak"
    for epoch in range(speak, len(epochs)):
        assert replayed[epoch][:2] == whole[epoch][:2]
    later = data.draw(st.integers(speak, len(epochs)), "later")
    assert again.seed(later) == past.seed(later), "a successor of the successor begins there too"


def steady(past: Past, first: int, after: int, delay_ms: int) -> None:
    """A second of event time in every epoch."""
    for epoch in range(first, after):
        past.done(epoch, steady_marks(epoch, delay_ms))


def steady_marks(epoch: int, delay_ms: int) -> Marks:
    own = epoch * SECOND_MS - delay_ms
    return Marks(max(0, own), (own,))


def test_the_seed_is_not_earlier_than_the_history_asks_for():
    """Delay, history, the epoch by which eviction lags, the one replayed for late rows, a bound."""
    past = Past(delay_ms=10_000, history_ms=5_000)
    steady(past, 0, 200, 10_000)
    seed = past.seed(150)
    assert seed is not None
    assert 149 - seed.first <= 15 + 3
    told = epochs_kept(Upstream(), Traits(OperatorClass.CONVERGENT, stateful=True, delay_s=10,
                                          history_s=5), epoch_s=1)  # fmt: skip
    assert told is not None
    assert abs(150 - seed.first + 1 - told) <= 1, "explain estimates what is then kept"


def test_a_fragment_without_state_replays_one_epoch():
    past = Past.of(Traits(delay_s=10))
    for epoch in range(5):
        past.done(epoch, Marks())
    assert past.seed(0) == Seed(0, 0)
    assert past.seed(1) == Seed(0, 1)
    assert past.seed(4) == Seed(3, 4, Marks())
    assert past.seed(6) == Seed(5, 6, Marks()), "epoch 5 is sealed and acked, not committed"


def test_what_is_asked_before_its_time_is_not_known():
    """Batch s evicts with the marks after s - 1; an epoch at work may bring anything."""
    past = Past(delay_ms=0, history_ms=0)
    steady(past, 0, 10, 0)
    assert past.seed(12) is None
    at_work = past.seed(11)
    assert at_work is not None
    assert at_work.first <= 9
    past.done(10, steady_marks(30, 0))
    assert past.seed(12) is not None


def test_a_process_that_began_in_the_middle_knows_nothing_until_its_state_is_its_own():
    """Its checkpoint holds rows of epochs whose marks it never saw."""
    past = Past(delay_ms=2_000, history_ms=5_000)
    past.began(99, steady_marks(99, 2_000))
    assert past.seed(100) is None
    known = None
    for epoch in range(100, 130):
        past.done(epoch, steady_marks(epoch, 2_000))
        seed = past.seed(epoch + 1)
        assert known is None or seed is not None, "known once, known for good"
        known = seed or known
        if seed:
            assert seed.first > 99
            assert seed.marks == steady_marks(seed.first - 1, 2_000)
    assert known is not None


def test_it_waits_one_epoch_longer_if_not_even_the_marks_at_its_start_are_known():
    told, untold = (Past(delay_ms=0, history_ms=0) for _ in range(2))
    told.began(9, steady_marks(9, 0))
    untold.began(9, None)
    first_known = []
    for past in (told, untold):
        assert past.seed(5) is None
        for epoch in range(10, 20):
            past.done(epoch, steady_marks(epoch, 0))
            if past.seed(epoch + 1):
                first_known.append(epoch)
                break
    assert first_known == [12, 13]


def test_before_any_row_nothing_is_in_the_state():
    past = Past(delay_ms=0, history_ms=5_000)
    for epoch in range(50):
        past.done(epoch, Marks(0, (None, None)))
    assert past.seed(50) == Seed(49, 50, Marks(0, (None, None)))


def test_one_silent_input_keeps_everything():
    """`min` of two watermarks stands still: nothing is evicted, so nothing may go."""
    past = Past(delay_ms=0, history_ms=5_000)
    for epoch in range(50):
        past.done(epoch, Marks(0, (epoch * SECOND_MS, None)))
    assert past.seed(50) == Seed(0, 50)


def test_a_watermark_that_a_restart_forgot_does_not_fall():
    """Spark's tracker knows an operator's mark only after the first row since it started."""
    past = Past(delay_ms=0, history_ms=0)
    past.began(9, Marks(9_000, (9_000,)))
    past.done(10, Marks(9_000, (None,)))
    past.done(11, Marks(9_000, (4_000,)))
    past.done(12, Marks(20_000, (20_000,)))
    past.done(13, Marks(20_000, (20_000,)))
    assert past.seed(14) == Seed(11, 14, Marks(9_000, (9_000,)))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """What only older questions need goes; a quiet stream takes one place; a limit holds."""
    past = Past(delay_ms=2_000, history_ms=5_000)
    for epoch in range(2_000):
        past.done(epoch, steady_marks(epoch, 2_000))
        past.seed(epoch - 3)
    assert len(past) < 20
    quiet = Past(delay_ms=0, history_ms=0)
    for epoch in range(5_000):
        quiet.done(epoch, Marks(7, (7,)))
    assert len(quiet) == 2
    assert quiet.seed(4_000) == Seed(0, 4_000)
    monkeypatch.setattr(module, "RUNS_MAX", 50)
    stuck = Past(delay_ms=0, history_ms=0)
    steady(stuck, 0, 500, 0)
    assert len(stuck) == 50
    assert stuck.seed(10) is None, "the seed that was said stays in force"
    assert stuck.seed(490) is not None


def test_a_seed_is_the_same_after_a_journey():
    for seed in (Seed(0, 0), Seed(0, 7), Seed(5, 5, Marks()), Seed(3, 9, Marks(-4, (None, 2**61)))):
        assert Seed.of(json.loads(json.dumps(seed.to_dict()))) == seed
        assert str(seed.speak) in seed.text


MARKS = {"current_ms": 1, "operators": [1, None]}
WRONG: dict[str, object] = {
    "nothing": None,
    "a list": [1, 2, 3],
    "a field missing": {"first": 1, "speak": 2},
    "a field more": {"first": 1, "speak": 2, "marks": MARKS, "x": 1},
    "true for one": {"first": True, "speak": 2, "marks": MARKS},
    "text for a number": {"first": "1", "speak": 2, "marks": MARKS},
    "half an epoch": {"first": 1.5, "speak": 2, "marks": MARKS},
    "before the beginning": {"first": -1, "speak": 2, "marks": MARKS},
    "speaks before it begins": {"first": 3, "speak": 2, "marks": MARKS},
    "beyond all bounds": {"first": 1, "speak": 2**63, "marks": MARKS},
    "no marks in the middle": {"first": 1, "speak": 2, "marks": None},
    "marks at the beginning": {"first": 0, "speak": 2, "marks": MARKS},
    "marks that are a number": {"first": 1, "speak": 2, "marks": 7},
    "no operators": {"first": 1, "speak": 2, "marks": {"current_ms": 1}},
    "operators that are text": {"first": 1, "speak": 2,
                                "marks": {"current_ms": 1, "operators": "12"}},
    "an operator that is text": {"first": 1, "speak": 2,
                                 "marks": {"current_ms": 1, "operators": ["1"]}},
    "too many operators": {"first": 1, "speak": 2,
                           "marks": {"current_ms": 1, "operators": [1] * 65}},
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_nothing_from_the_wire_is_believed(mistake: str):
    with pytest.raises(UnbrokenError, match="not a seed"):
        Seed.of(WRONG[mistake])
