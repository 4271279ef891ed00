"""Rows lost, repeated and wrong, against the undisturbed run; and that run's model."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

from unbroken.epochs import Epoch
from unbroken.errors import DefinitionError
from unbroken.measure import compare
from unbroken.measure.compare import Difference
from unbroken.measure.replayed import Replayed
from unbroken.measure.workload import WINDOW_S, Counts
from unbroken.policies import Active, Upstream
from unbroken.query import Query

TABLE = pa.table({"k": [1, 2, 3], "n": [1, 1, 1]})


def test_the_order_of_rows_means_nothing_and_their_number_does():
    assert compare.rows(TABLE, TABLE.take([2, 0, 1])) == Difference()
    assert compare.rows(TABLE, TABLE.take([2, 0, 1, 1])) == Difference(repeated=1)
    assert compare.rows(TABLE, TABLE.take([2, 0])) == Difference(lost=1)


def test_a_row_with_another_value_is_wrong_and_not_lost():
    other = pa.table({"k": [1, 2, 3], "n": [1, 7, 1]})
    assert compare.rows(TABLE, other) == Difference(wrong=1)


def test_columns_that_arrow_cannot_sort_are_compared_too():
    table = pa.table({"words": [["a"], ["b", "c"]], "x": [float("nan"), 1.0]})
    assert compare.rows(table, table.take([1, 0])) == Difference()
    assert compare.rows(table, table.take([1])) == Difference(lost=1)


def test_epochs_that_are_missing_repeated_or_past_the_end_are_counted():
    came = [Epoch.of("s", n, TABLE) for n in (0, 0, 2, 9)]
    found = compare.epochs([TABLE, TABLE, TABLE], came)
    assert found == Difference(lost=3, repeated=6)


def test_a_gap_has_lost_what_it_says():
    gap = Epoch.gap("s", 1, TABLE.schema, lost=20)
    assert compare.epochs([TABLE, TABLE], [Epoch.of("s", 0, TABLE), gap]) == Difference(lost=20)


@pytest.mark.parametrize("policy", [Active(), Upstream()])
def test_the_answer_of_the_built_in_workload_is_a_count_by_hand(policy: Active | Upstream):
    """Method: count in a dictionary, row by row, over ticks that cross a window's end."""
    made = Counts(keys=20, rate=150)
    due_s = [WINDOW_S - 0.35 + tick / 10 for tick in range(8)]
    sent = [made.tables(tick, due)["input"] for tick, due in enumerate(due_s)]
    # Two ticks are an epoch; one that nothing was sent in is in the middle.
    epochs = [pa.concat_tables(sent[i : i + 2]) for i in range(0, 8, 2)]
    epochs.insert(2, sent[0].slice(0, 0))
    counts: dict[tuple[int, int], int] = defaultdict(int)
    answers = made.answers(policy, {"input": epochs})["output"]
    assert len(answers) == len(epochs)
    for epoch, answer in zip(epochs, answers, strict=True):
        newest: dict[tuple[int, int], int] = {}
        for due_us, key in zip(epoch["due"].cast(pa.int64()).to_pylist(), epoch["k"].to_pylist(),
                               strict=True):  # fmt: skip
            window = due_us // (WINDOW_S * 10**6) if isinstance(policy, Upstream) else 0
            counts[window, key] += 1
            newest[window, key] = due_us
        expected = {(*at, counts[at], due_us) for at, due_us in newest.items()}
        columns = [answer[name].cast(pa.int64()).to_pylist() for name in ("k", "n", "due")]
        starts = [0] * answer.num_rows
        if isinstance(policy, Upstream):
            starts = [s // (WINDOW_S * 10**6) for s in answer["w"].cast(pa.int64()).to_pylist()]
        assert set(zip(starts, *columns, strict=True)) == expected
        assert answer.num_rows == len(expected)


def test_the_rate_is_what_was_asked_for_even_if_it_is_no_whole_number_per_tick():
    made = Counts(keys=1, rate=25)
    rows = sum(made.tables(tick, 0.0)["input"].num_rows for tick in range(40))
    assert rows == 100 + made.keys


@pytest.fixture
def shop() -> Query:
    query = Query("shop", epoch="manual")
    clicks = query.source("clicks", "ts TIMESTAMP, page STRING", event_time="ts")
    sales = query.source("sales", "ts TIMESTAMP, price INT", event_time="ts")
    query.sink(query.fragment(clicks, sales)(lambda clicks, sales: clicks, name="both"))
    return query


def files(folder: Path) -> dict[str, Path]:
    clicks, sales = folder / "clicks.csv", folder / "sales.csv"
    clicks.write_text("ts,page\n100,a\n101,b\n103,c\n102,d\n")
    sales.write_text("ts,price\n100.5,1\n104,2\n")
    return {"clicks": clicks, "sales": sales}


def test_files_are_replayed_in_step_and_begin_again_later(tmp_path: Path, shop: Query):
    """Rows keep the order of their file, the late one too; the second lap goes on in time."""
    made = Replayed(shop, files(tmp_path), rate=30)
    ticks = [made.tables(tick, 0.0) for tick in range(4)]
    assert [sum(t.num_rows for t in tick.values()) for tick in ticks] == [3, 3, 3, 3]
    first = ticks[0]
    assert first["clicks"]["page"].to_pylist() == ["a", "b"]
    assert first["sales"]["price"].to_pylist() == [1]
    pages = [
        page for tick in ticks if "clicks" in tick for page in tick["clicks"]["page"].to_pylist()
    ]
    assert pages == ["a", "b", "c", "d"] * 2
    times = [
        ts.timestamp()
        for tick in ticks
        if "sales" in tick
        for ts in tick["sales"]["ts"].to_pylist()
    ]
    assert times == [100.5, 104.0, 105.5, 109.0]


def test_a_tick_may_be_longer_than_the_files(tmp_path: Path, shop: Query):
    made = Replayed(shop, files(tmp_path), rate=130)
    tables = made.tables(0, 0.0)
    assert tables["clicks"].num_rows + tables["sales"].num_rows == 13
    assert tables["clicks"]["page"].to_pylist()[:5] == ["a", "b", "c", "d", "a"]


def test_every_fragment_gets_the_policy_and_the_users_query_stays_as_it_is(
    tmp_path: Path, shop: Query
):
    made = Replayed(shop, files(tmp_path), rate=30).query(Active(replicas=3))
    assert made.fragments["both"].policy == Active(replicas=3)
    assert made.epoch_s is not None
    assert shop.epoch_s is None
    assert shop.fragments["both"].policy.name == "restart"


def test_a_file_without_rows_and_a_source_without_file_are_told(tmp_path: Path, shop: Query):
    given = files(tmp_path)
    given["sales"].write_text("ts,price\n")
    with pytest.raises(DefinitionError, match="no rows"):
        Replayed(shop, given, rate=30)
    with pytest.raises(DefinitionError, match="'sales' of query 'shop' has no file"):
        Replayed(shop, {"clicks": given["clicks"]}, rate=30)
