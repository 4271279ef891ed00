"""Merge: every epoch once, in order, from whoever has it; what disagrees is told."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.epochs import Epoch, Header
from unbroken.errors import DivergenceError
from unbroken.streams.merge import REMEMBERED_MAX, Fetch, Merge


def headers(first: int, last: int, *, code: str = "") -> list[Header]:
    return [Header("s", n, digest=f"d{n}", fingerprint=code) for n in range(first, last + 1)]


def test_the_first_copy_wins_and_the_next_replica_helps_out():
    """Nothing is detected, nothing is switched: a failed fetch goes to whoever is next."""
    merge = Merge("s", start=7)
    merge.announced("r2", headers(7, 8))
    merge.announced("r1", headers(7, 9))
    assert merge.wanted() == Fetch("r2", 7)
    assert merge.others(Fetch("r2", 7))
    merge.failed(Fetch("r2", 7))
    assert merge.wanted() == Fetch("r1", 7)
    assert not merge.others(Fetch("r1", 7))
    merge.taken(7)
    assert merge.wanted() == Fetch("r2", 8)


def test_a_replica_that_failed_is_asked_again_once_it_announces_again():
    """The only replica stalled: nobody to ask until it is heard of, then it is asked."""
    merge = Merge("s", start=0)
    merge.announced("r1", headers(0, 0))
    merge.failed(Fetch("r1", 0))
    assert merge.wanted() is None
    merge.announced("r1", headers(0, 0))
    assert merge.wanted() == Fetch("r1", 0)


def test_a_lost_replica_leaves_what_others_have():
    """What only the dead one had announced must be announced anew."""
    merge = Merge("s", start=0)
    merge.announced("r1", headers(0, 3))
    merge.announced("r2", headers(0, 1))
    merge.lost("r1")
    assert merge.wanted() == Fetch("r2", 0)
    merge.taken(0)
    merge.taken(1)
    assert merge.wanted() is None


@pytest.mark.parametrize("taken", [False, True])
def test_two_contents_under_one_number_are_a_divergence(taken: bool):
    """Invariant 1, before and after the epoch was taken: the message has both digests."""
    merge = Merge("s", start=0)
    merge.announced("r1", headers(0, 0))
    if taken:
        merge.taken(0)
    with pytest.raises(DivergenceError, match=r"digest other .* at r2, and d0 "):
        merge.announced("r2", [Header("s", 0, digest="other")])


def test_a_copy_that_has_lost_more_on_the_way_is_no_divergence_and_the_line_that_goes_on():
    """The other one was made of epochs that are lost by now, by a replica that is lost as well."""
    merge = Merge("s", start=0)
    merge.announced("r1", headers(0, 2))
    merge.taken(0)
    less = [Header("s", n, digest=f"e{n}", gaps_total=4) for n in range(4)]
    merge.announced("r2", less)
    assert merge.wanted() == Fetch("r2", 1)
    merge.announced("r3", headers(0, 2))
    merge.taken(1)
    assert merge.wanted() == Fetch("r2", 2)
    with pytest.raises(DivergenceError):
        merge.announced("r4", [Header("s", 2, digest="other", gaps_total=4)])


def test_who_stands_alone_is_the_only_one_to_be_taken_from_until_a_later_one_does():
    """Also by a consumer that hears of an older term again."""
    merge = Merge("s", start=0)
    merge.announced("r1", headers(0, 2))
    assert merge.only(5, "r2")
    assert merge.wanted() is None
    merge.announced("r1", headers(0, 2))
    assert merge.wanted() is None
    merge.announced("r2", [Header("s", 0, digest="gap", kind="gap")])
    assert merge.wanted() == Fetch("r2", 0)
    assert not merge.only(5, "r2")
    assert not merge.only(3, "r1")
    assert merge.only(7, "r3")
    assert [merge.allows(replica) for replica in ("r1", "r2", "r3")] == [False, False, True]


def test_copies_that_come_late_are_dropped_and_compared_for_a_while():
    """Invariant 7: the memory of taken epochs has a limit."""
    merge = Merge("s", start=0)
    merge.announced("r1", headers(0, REMEMBERED_MAX))
    for number in range(REMEMBERED_MAX + 1):
        merge.taken(number)
    merge.announced("r2", [Header("s", 0, digest="too old to be compared")])
    assert merge.wanted() is None
    with pytest.raises(DivergenceError):
        merge.announced("r2", [Header("s", 1, digest="other")])


def test_a_number_that_nobody_announced_cannot_be_skipped():
    """Invariant 2: 1 is there, 0 is not: wait."""
    merge = Merge("s", start=0)
    merge.announced("r1", headers(1, 5))
    assert merge.wanted() is None
    with pytest.raises(AssertionError, match="in order"):
        merge.taken(1)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("announce"), st.sampled_from("abc"), st.integers(0, 12),
                  st.integers(0, 4)),
        st.tuples(st.just("fetch"), st.booleans()),
        st.tuples(st.just("lost"), st.sampled_from("abc")),
    ),
    max_size=60,
)  # fmt: skip


@given(steps)
def test_whatever_happens_epochs_are_taken_once_in_order_from_one_who_has_them(steps):
    """Invariant 2 under any interleaving of announcements, failed fetches and lost replicas."""
    merge, taken = Merge("s", start=0), []
    has: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}
    for step in steps:
        if step[0] == "announce":
            _, replica, first, more = step
            merge.announced(replica, headers(first, first + more))
            has[replica] |= set(range(first, first + more + 1))
        elif step[0] == "lost":
            merge.lost(step[1])
            has[step[1]].clear()
        else:
            fetch = merge.wanted()
            ready = {replica for replica in has if merge.next in has[replica]}
            assert (fetch is None) == (not ready), "whoever announced the next one is asked"
            if fetch is None:
                continue
            assert fetch.replica in ready
            assert fetch.number == merge.next
            if step[1]:
                merge.taken(fetch.number)
                taken.append(fetch.number)
            else:
                merge.failed(fetch)
                has[fetch.replica].discard(fetch.number)
    assert taken == list(range(len(taken)))


def test_a_replica_that_goes_between_body_and_taken_loses_nothing():
    merge = Merge("s", start=7)
    merge.announced("r1", [Header("s", 7, digest="d7")])
    merge.lost("r1")
    merge.taken(7)
    assert merge.next == 8


def test_a_gap_and_rows_under_one_number_are_a_divergence():
    """Invariant 1: nobody may have an epoch that others are told is lost."""
    gap = Epoch.gap("s", 7, pa.schema([("n", pa.int64())])).header
    merge = Merge("s", start=7)
    merge.announced("r1", [gap])
    merge.announced("r2", [gap])
    with pytest.raises(DivergenceError, match="epoch 7 has digest"):
        merge.announced("r3", [Epoch.of("s", 7, pa.table({"n": pa.array([], pa.int64())})).header])
