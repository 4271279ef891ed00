"""The past of session windows: a successor from the seed has the same sessions, and closes them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unbroken.policies import sessions as module
from unbroken.policies.past import Marks, Past, Seed
from unbroken.policies.reach import epochs_kept, keeps
from unbroken.policies.sessions import Reading, SessionPast, past_of
from unbroken.policies.traits import Endless, Operator, Traits
from unbroken.policies.upstream import Upstream

NO_ROW_YET = Marks(0, (None,))
#: The key of rows that raise the watermark and go no further.
FILTERED = "-"
#: Key, event time and gap, in milliseconds.
Row = tuple[str, int, int]
#: Key, start, end, and the rows in the order in which they were merged: (time, epoch).
Session = tuple[str, int, int, tuple[tuple[int, int], ...]]
BUSY = Traits(
    stateful=True, delay_s=2.5, history_s=None,
    endless=(Endless(Operator("sessions"), "", "", bounded=True, readable=True),),
)  # fmt: skip


@dataclass
class Sessions:
    """Spark's session windows in append mode, one batch per epoch.

    A row is a session of its own, [time, time + gap]; those of a key that overlap or touch become
    one.  A row that ends by the watermark of the batch before is late; a session that ends by this
    batch's is closed.
    """

    delay_ms: int
    marks: Marks = NO_ROW_YET
    #: The watermark of the batch before; None in an empty checkpoint: nothing is late.
    late_ms: int | None = None
    open: list[Session] = field(default_factory=list)

    def batch(self, epoch: int, rows: list[Row]) -> list[Session]:
        """Takes the rows of an epoch; the sessions that close."""
        evict_ms = self.marks.current_ms
        new = [
            (key, time, time + gap, ((time, epoch),))
            for key, time, gap in rows
            if key != FILTERED and (self.late_ms is None or time + gap > self.late_ms)
        ]
        merged: list[Session] = []
        for each in sorted([*self.open, *new], key=lambda session: session[:2]):
            if merged and merged[-1][0] == each[0] and each[1] <= merged[-1][2]:
                key, start, end, held = merged.pop()
                each = (key, start, max(end, each[2]), held + each[3])
            merged.append(each)
        self.open = [each for each in merged if each[2] > evict_ms]
        self.late_ms = evict_ms
        if rows:
            newest = max(time for _, time, _ in rows)
            own = max([newest - self.delay_ms, *(m for m in self.marks.operators if m is not None)])
            self.marks = Marks(max(evict_ms, own), (own,))
        return [each for each in merged if each[2] <= evict_ms]

    @property
    def oldest_ms(self) -> int | None:
        """What a reading of the state would say."""
        return min((start for _, start, _, _ in self.open), default=None)


@dataclass
class Seen:
    """One run: by epoch what closed, what was open after it, and what a reading would say."""

    closed: dict[int, list[Session]] = field(default_factory=dict)
    open: dict[int, list[Session]] = field(default_factory=dict)
    readings: dict[int, Reading] = field(default_factory=dict)


def run(sessions: Sessions, epochs: list[list[Row]], first: int, past: Past) -> Seen:
    seen = Seen()
    for epoch in range(first, len(epochs)):
        seen.closed[epoch] = sessions.batch(epoch, epochs[epoch])
        seen.open[epoch] = list(sessions.open)
        seen.readings[epoch] = Reading(epoch, sessions.oldest_ms)
        past.done(epoch, sessions.marks)
    return seen


def same(whole: Seen, again: Seen, speak: int, end: int) -> bool:
    """Whether a successor has the state of the first run and says what it said, from `speak` on."""
    if again.open.get(speak - 1, []) != whole.open.get(speak - 1, []):
        return False  # One that begins with `speak` has nothing open before.
    return all(
        (again.closed[e], again.open[e]) == (whole.closed[e], whole.open[e])
        for e in range(speak, end)
    )


def begun(past: SessionPast, seed: Seed, delay_ms: int) -> Sessions:
    past.began(seed.first - 1, seed.marks)
    return Sessions(delay_ms, seed.marks or NO_ROW_YET)


#: Steps of event time; rows with stragglers, many of them late; epochs without rows.
KEYS = ["a", "b", FILTERED]
rows = st.tuples(st.sampled_from(KEYS), st.integers(-9000, 2000), st.integers(1, 9000))
streams = st.lists(
    st.tuples(st.integers(0, 3000), st.lists(rows, max_size=4)), min_size=1, max_size=60
)


def rows_of(stream: list[tuple[int, list[Row]]], gap: int | None) -> list[list[Row]]:
    """With `gap` for all rows, or with each row's own."""
    now, made = 20_000, []
    for step, offsets in stream:
        now += step
        made.append([(key, now + offset, gap or own) for key, offset, own in offsets])
    return made


@settings(max_examples=200, deadline=None)
@given(stream=streams, delay=st.integers(0, 4000), gap=st.none() | st.integers(1, 9000),
       data=st.data())  # fmt: skip
def test_a_successor_from_the_seed_says_what_the_first_one_said(
    stream, delay: int, gap: int | None, data: st.DataObject
):
    """Goal: open sessions after s and all output from D on are those of an undisturbed run.

    Method: a model of Spark's session windows on random rows, gaps that differ or not, readings
    at random; a second run, empty from the seed, compared epoch by epoch; and a third from its.
    """
    epochs = rows_of(stream, gap)
    numbers = st.integers(0, len(epochs) - 1)
    speak = data.draw(st.integers(0, len(epochs)), "speak")
    past = SessionPast(delay_ms=delay)
    whole = run(Sessions(delay), epochs, 0, past)
    for epoch in sorted(data.draw(st.sets(numbers), "read")):
        past.read(whole.readings[epoch])
    seed = past.seed(speak)
    assert seed is not None, "it saw everything"
    assert seed.first <= oldest_epoch(whole.open.get(speak - 1, []), speak)
    again = SessionPast(delay_ms=delay)
    replayed = run(begun(again, seed, delay), epochs, seed.first, again)
    assert same(whole, replayed, speak, len(epochs))
    for epoch in sorted(data.draw(st.sets(numbers), "read again")):
        if epoch >= seed.first:
            again.read(replayed.readings[epoch])
    later = data.draw(st.integers(speak, len(epochs)), "later")
    next_seed = again.seed(later)
    if next_seed is not None:
        third = SessionPast(delay_ms=delay)
        assert same(
            whole,
            run(begun(third, next_seed, delay), epochs, next_seed.first, third),
            later,
            len(epochs),
        )


def oldest_epoch(sessions: list[Session], otherwise: int) -> int:
    return min((at for _, _, _, held in sessions for _, at in held), default=otherwise)


class Late(SessionPast):
    """Begins with the first epoch that it needs, and not with the one before."""

    def _oldest_in_state(self, last: int) -> int:
        return super()._oldest_in_state(last) + 1


class Newer(SessionPast):
    """Believes a reading although it is of after s."""

    def has_news(self, speak: int) -> bool:
        return bool(self._readings)

    def _oldest_in_state(self, last: int) -> int:
        return super()._oldest_in_state(self._newest)


class Behind(SessionPast):
    """Forgets that event times run ahead of the watermark by its delay."""

    def _first_of(self, reading: Reading) -> int:
        self._delay_ms = 0
        return super()._first_of(reading)


class Youngest(SessionPast):
    """Takes the start of some open session for that of the oldest."""

    def read(self, reading: Reading) -> None:
        if reading.oldest_ms is not None:
            reading = Reading(reading.epoch, reading.oldest_ms + 3000)
        super().read(reading)


EPOCHS, RUNS = 15, 1500


def random_stream(drawn: random.Random) -> list[tuple[int, list[Row]]]:
    """Event time that moves on faster than sessions last, or none of them would ever close."""

    def row() -> Row:
        return drawn.choice(KEYS), drawn.randrange(-12_000, 2000), drawn.randrange(1, 9000)

    return [
        (drawn.randrange(6000), [row() for _ in range(drawn.randrange(4))]) for _ in range(EPOCHS)
    ]


@pytest.mark.parametrize("bound", [SessionPast, Late, Newer, Behind, Youngest])
def test_every_part_of_the_bound_is_needed(bound: Callable[..., SessionPast]):
    """Goal: the model above can tell a right bound from one that is wrong by little.

    Method: many random runs, the successor compared as above; only the right one never differs.
    """
    drawn = random.Random(13)
    for _ in range(RUNS):
        epochs = rows_of(random_stream(drawn), drawn.choice([None, 3000]))
        past = bound(delay_ms=2000)
        whole = run(Sessions(2000), epochs, 0, past)
        for epoch in sorted(drawn.sample(range(EPOCHS), 5)):
            past.read(whole.readings[epoch])
        speak = drawn.randrange(1, EPOCHS)
        seed = past.seed(speak)
        if seed is None:
            continue
        again = SessionPast(delay_ms=2000)
        replayed = run(begun(again, seed, 2000), epochs, seed.first, again)
        if seed.first > speak or not same(whole, replayed, speak, EPOCHS):
            assert bound is not SessionPast
            return
    assert bound is SessionPast


def steady(past: Past, first: int, after: int) -> None:
    """A second of event time in every epoch, a delay of two."""
    for epoch in range(first, after):
        past.done(epoch, steady_marks(epoch))


def steady_marks(epoch: int) -> Marks:
    own = epoch * 1000 - 2000
    return Marks(max(0, own), (own,))


def test_without_a_reading_everything_is_kept():
    past = SessionPast(delay_ms=2000)
    steady(past, 0, 50)
    assert past.seed(40) == Seed(0, 40)


def test_nothing_open_keeps_one_epoch_for_late_rows():
    past = SessionPast(delay_ms=2000)
    steady(past, 0, 50)
    past.read(Reading(30, None))
    assert past.seed(40) == Seed(30, 40, steady_marks(29))


def test_the_newest_reading_up_to_what_consumers_have_counts():
    """What was open when they were there may be closed by now."""
    past = SessionPast(delay_ms=2000)
    steady(past, 0, 50)
    past.read(Reading(20, 15_000))
    past.read(Reading(30, 28_000))
    past.read(Reading(45, None))
    assert past.seed(20) == Seed(0, 20), "the reading after epoch 20 is not of after 19"
    assert past.seed(21) == Seed(14, 21, steady_marks(13))
    assert past.seed(40) == Seed(27, 40, steady_marks(26))
    assert past.seed(46) == Seed(45, 46, steady_marks(44))


def test_a_session_that_begins_before_the_last_reading_brings_nothing_back():
    """A straggler that is not late starts a session in the past, with its own row alone."""
    past = SessionPast(delay_ms=2000)
    steady(past, 0, 50)
    past.read(Reading(30, None))
    past.read(Reading(32, 21_000))
    assert past.seed(40) == Seed(30, 40, steady_marks(29))


def test_who_asks_for_an_older_epoch_again_is_not_told_of_a_newer_one():
    past = SessionPast(delay_ms=2000)
    steady(past, 0, 50)
    past.read(Reading(30, None))
    assert past.seed(40) is not None
    assert past.seed(20) is None


def test_a_reading_waits_until_its_epoch_is_known():
    """Spark's commit can be read before the watermarks after it were."""
    past = SessionPast(delay_ms=2000)
    steady(past, 0, 30)
    past.read(Reading(30, 29_500))
    assert past.seed(30) == Seed(0, 30)
    past.done(30, steady_marks(30))
    assert past.seed(31) == Seed(29, 31, steady_marks(28))


def test_a_process_that_began_in_the_middle_knows_nothing_before_a_reading_of_its_own_epochs():
    past = SessionPast(delay_ms=2000)
    past.began(99, steady_marks(99))
    steady(past, 100, 120)
    assert past.seed(110) is None
    past.read(Reading(110, 95_000))
    assert past.has_news(111)
    assert past.seed(111) is None, "the oldest session is older than what it has seen"
    assert not past.has_news(111), "said once: nobody is told the same again and again"
    past.read(Reading(115, 104_000))
    assert past.seed(116) == Seed(103, 116, steady_marks(102))


def test_a_reading_from_before_the_first_known_marks_says_nothing():
    past = SessionPast(delay_ms=2000)
    past.began(99, None)
    past.read(Reading(99, 98_000))
    assert past.seed(100) is None
    steady(past, 100, 110)
    assert past.seed(108) is None
    past.read(Reading(107, 104_000))
    assert past.seed(108) == Seed(103, 108, steady_marks(102))


def test_readings_that_nobody_waits_for_do_not_pile_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "READINGS_MAX", 3)
    past = SessionPast(delay_ms=2000)
    steady(past, 0, 50)
    for epoch in range(10, 20):
        past.read(Reading(epoch, None))
    assert past.seed(20) == Seed(12, 20, steady_marks(11)), "older, and as right"
    past.read(Reading(25, None))
    assert past.seed(30) == Seed(25, 30, steady_marks(24))


def test_a_session_that_never_falls_quiet_has_no_number():
    assert isinstance(past_of(BUSY), SessionPast)
    assert epochs_kept(Upstream(), BUSY, epoch_s=1) is None
    assert "from the first row of the oldest open session" in keeps(Upstream(), BUSY, None)
