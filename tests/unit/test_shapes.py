"""The shapes that are cut in two: their models, by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unbroken.measure.shapes import FAR, NEAR, SHAPES, TOTALS, shape
from unbroken.tentative.branch import Bound

TIME = pa.timestamp("us", tz="UTC")


def rows(*pairs: tuple[float, int]) -> pa.Table:
    due = pa.array([round(at_s * 1e6) for at_s, _ in pairs], TIME)
    return pa.table({"due": due, "k": pa.array([k for _, k in pairs], pa.int32())})


@pytest.mark.parametrize("name", SHAPES)
def test_only_the_far_fragment_is_behind_the_cable(name: str):
    made = shape(name, "process", x_s=3.0, rate=300)
    query = made.query(None)
    query.check()
    assert query.fragments[FAR].inputs == ("west",)
    assert query.fragments[FAR].bound is None
    assert FAR in query.fragments[NEAR].inputs
    assert query.fragments[NEAR].bound == Bound(3.0, "process")
    assert query.sinks == [made.sink]
    assert len(query.fragments) == made.nodes, "a node each: only one cable is cut"


def test_suspend_has_no_bound():
    query = shape("chain", "suspend", x_s=3.0, rate=300).query(None)
    assert query.fragments[NEAR].bound is query.fragments[TOTALS].bound is None


def test_rows_are_the_same_in_every_run_and_shared_by_all_sources():
    made = shape("union", "process", x_s=3.0, rate=300)
    first, again = made.tables(7, due_s=0.7), made.tables(7, due_s=0.7)
    assert first == again
    assert {name: table.num_rows for name, table in first.items()} == {
        "east": 10, "north": 10, "west": 10,
    }  # fmt: skip
    assert first["east"] != first["west"]
    assert sum(made.tables(t, 0.0)["west"].num_rows for t in range(10)) == 100


def test_a_pair_comes_out_once_in_the_epoch_of_its_later_row():
    """Both in one epoch, either one first, too far apart, and of another key."""
    made = shape("join", "process", x_s=3.0, rate=300)
    none = rows()
    sent = {
        "east": [rows((0.0, 1)), none, rows((3.5, 1), (3.5, 2)), none],
        "west": [rows((0.0, 1)), rows((2.0, 1)), none, rows((5.6, 1), (5.5, 2))],
    }
    told = [table.to_pylist() for table in made.answers(None, sent)["near"]]
    seconds = [[(r["k"], r["east"].timestamp(), r["west"].timestamp()) for r in e] for e in told]
    assert seconds == [[(1, 0.0, 0.0)], [(1, 0.0, 2.0)], [(1, 3.5, 2.0)], [(2, 3.5, 5.5)]]


def test_the_chain_counts_what_the_union_lets_through():
    made = shape("chain", "process", x_s=3.0, rate=300)
    sent = {"east": [rows((0.0, 1)), rows((1.0, 1))], "west": [rows((0.0, 1)), rows((1.0, 2))]}
    told = made.answers(None, sent)["totals"]
    assert [dict(zip(t["k"].to_pylist(), t["n"].to_pylist(), strict=True)) for t in told] == [
        {1: 2}, {1: 3, 2: 1},
    ]  # fmt: skip
