"""What becomes of tentative epochs, and which rows have changed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.epochs import GAP, TENTATIVE, Epoch, Header
from unbroken.tentative.correction import CONFIRMED, REPLACED, Correction, difference, replacing


def tentative(number: int, digest: str) -> Header:
    return Header("alerts", number, TENTATIVE, digest=digest, branch="3@node-1")


def stable(number: int, digest: str) -> Header:
    return Header("alerts", number, digest=digest)


def test_every_tentative_epoch_is_confirmed_or_replaced():
    """Invariant 4: none is left open when the stable line has caught up."""
    correction = Correction("3@node-1", after=411)
    for number in range(412, 432):
        correction.said(tentative(number, f"said {number}"))
    for number in range(412, 432):
        same = number % 2 == 0
        verdict = correction.became(stable(number, f"said {number}" if same else "other"))
        assert verdict == (CONFIRMED if same else REPLACED)
    correction.changed(18)
    assert correction.open == []
    assert correction.sentence == "stable again: corrected epochs 412 to 431 (18 rows changed)"


def test_what_was_right_is_said_to_be_confirmed():
    """Nothing has changed: whoever acted on it need not look again."""
    correction = Correction("3@node-1", after=411)
    correction.said(tentative(412, "d"))
    assert correction.became(stable(412, "d")) == CONFIRMED
    assert correction.sentence == "stable again: confirmed epoch 412"


def test_a_stable_epoch_of_which_nothing_was_said_corrects_nothing():
    """The stable line was faster than the branch."""
    correction = Correction("3@node-1", after=411)
    assert correction.became(stable(412, "d")) is None
    assert correction.became(stable(413, "d")) is None
    assert correction.sentence == "stable again: nothing was said that had to be corrected"


def test_a_branch_that_ends_early_says_how_much_is_open():
    """Given up explicitly; the stable epochs come all the same."""
    correction = Correction("3@node-1", after=411)
    for number in (412, 413):
        correction.said(tentative(number, "d"))
    correction.became(stable(412, "d"))
    assert correction.open == [413]
    assert correction.given_up == (
        "the branch ended after epoch 413: 1 tentative epoch is open until stable ones come"
    )


def test_only_what_is_marked_may_be_taken_back():
    """A stable epoch is final."""
    with pytest.raises(AssertionError):
        Correction("3@node-1", after=411).said(stable(412, "d"))


values = st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-2, 2).map(float))
rows = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.one_of(st.none(), st.integers(0, 3)),
            "w": st.sampled_from(["a", "b", None]),
            "v": values,
            "tags": st.one_of(st.none(), st.lists(st.integers(0, 1), max_size=2)),
        }
    ),
    max_size=12,
)
SCHEMA = pa.schema(
    {"k": pa.int32(), "w": pa.string(), "v": pa.float64(), "tags": pa.list_(pa.int32())}
)


def counted(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(row) for row in found)


@given(rows, rows)
def test_the_difference_is_that_of_two_bags(before, after):
    """Rows that occur twice count twice; order, nulls and lists do not matter."""
    gone, new = difference(
        pa.Table.from_pylist(before, SCHEMA), pa.Table.from_pylist(after, SCHEMA)
    )
    old, young = (counted(pa.Table.from_pylist(rows, SCHEMA).to_pylist())
                  for rows in (before, after))  # fmt: skip
    assert counted(gone.to_pylist()) == old - young
    assert counted(new.to_pylist()) == young - old


def test_a_nan_is_equal_to_itself():
    """Otherwise a column of missing measurements would be withdrawn and added in every epoch."""
    table = pa.table({"v": [float("nan"), 1.0]})
    gone, new = difference(table, table)
    assert (gone.num_rows, new.num_rows) == (0, 0)


def test_an_epoch_says_what_it_replaces():
    """Medusa's selected updates: the changed rows, and nothing twice."""
    said = Epoch.of("alerts", 7, pa.table({"k": [1, 2]}), kind=TENTATIVE, branch="3@node-1")
    now = replacing(Epoch.of("alerts", 7, pa.table({"k": [2, 3]})), said)
    assert now.replaces is not None
    assert now.replaces.header.branch == "3@node-1"
    assert not now.confirmed
    same = replacing(Epoch.of("alerts", 7, pa.table({"k": [1, 2]})), said)
    assert same.confirmed
    assert replacing(Epoch.of("alerts", 7, pa.table({"k": [1]})), None).replaces is None


def test_what_is_given_up_is_said_so_and_neither_confirmed_nor_withdrawn():
    """Invariant 4: nobody will ever tell whether those rows are true."""
    said = Epoch.of("alerts", 7, pa.table({"k": [1, 2]}), kind=TENTATIVE)
    gap = replacing(Epoch.gap("alerts", 7, said.table.schema, lost=5), said)
    assert gap.given_up
    assert not gap.confirmed
    assert gap.replaces is not None
    assert gap.replaces.header == said.header
    assert gap.replaces.withdrawn is gap.replaces.added is None
    assert not Epoch.gap("alerts", 8, said.table.schema).given_up, "nothing was said of it"


def test_what_comes_after_the_gaps_is_corrected_as_ever():
    """The branch goes on while the later fork starts."""
    correction = Correction("3@node-1", after=411)
    for number in (412, 413, 414):
        correction.said(tentative(number, f"said {number}"))
    for number in (412, 413):
        correction.gives_up(Header("alerts", number, GAP, lost=3))
    assert correction.open == [414]
    assert correction.became(stable(414, "said 414")) == CONFIRMED
    assert correction.sentence == "stable again: gave up epochs 412 to 413 (6 input rows)"
