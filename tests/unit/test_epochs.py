"""Epochs: headers travel unchanged, digests tell rows apart and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.epochs import (
    GAP,
    Epoch,
    Header,
    digest_of_hashes,
    digest_of_rows,
    event_bounds,
    header_of,
)

names = st.text(min_size=1, max_size=20)
numbers = st.integers(min_value=0, max_value=2**62)


@given(
    stream=names, number=numbers, low=st.none() | st.integers(-(2**62), 2**62),
    sequences=st.dictionaries(names, numbers, max_size=5),
)  # fmt: skip
def test_a_header_is_the_same_after_a_journey(
    stream: str, number: int, low: int | None, sequences: dict[str, int]
):
    """Goal: whatever a header says, files and the wire keep, also in other alphabets."""
    header = Header(stream, number, event_us_min=low, sequences=sequences, fingerprint="f")
    assert Header.from_json(header.to_json()) == header


def test_a_header_of_another_version_is_an_error_and_not_a_guess():
    """A field that nobody here knows may mean anything, for example "tentative"."""
    with pytest.raises(TypeError, match="surprise"):
        Header.from_json('{"stream": "s", "number": 1, "surprise": true}')


def test_rows_and_header_travel_together_and_the_table_comes_out_clean():
    """Goal: a stamped table is the epoch; the user's table has no trace of the stamp."""
    epoch = Epoch.of("s", 4, pa.table({"n": [1, None]}), term=3, fingerprint="abc")
    assert header_of(epoch.stamped().schema) == epoch.header
    back = Epoch.from_stamped(epoch.stamped())
    assert back == epoch
    assert back.table.schema.metadata is None


def test_an_empty_epoch_is_an_epoch():
    """It says that nothing is missing: rows 0, no event time, a digest of its own."""
    empty = Epoch.of("s", 0, pa.table({"ts": pa.array([], pa.timestamp("us", "UTC"))}),
                     event_time="ts")  # fmt: skip
    assert (empty.rows, empty.kind) == (0, "stable")
    assert (empty.header.event_us_min, empty.header.event_us_max) == (None, None)
    assert empty.digest


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_event_bounds_pass_over_rows_without_a_time(kind: pa.DataType):
    """A null among times changes no bound; only nulls have none."""
    moment = datetime(2024, 1, 31, 12, tzinfo=UTC)
    micros = int(moment.timestamp() * 1e6)
    column = pa.array([None, micros + 5, micros], pa.int64()).cast(pa.timestamp("us")).cast(kind)
    assert event_bounds(pa.table({"ts": column}), "ts") == (micros, micros + 5)
    assert event_bounds(pa.table({"ts": pa.nulls(3, kind)}), "ts") == (None, None)


@given(rows=st.lists(st.tuples(st.integers(-9, 9), st.none() | st.text(max_size=3)), max_size=20),
       cut=st.integers(0, 20))  # fmt: skip
def test_a_digest_is_of_rows_and_not_of_how_they_lie_in_memory(
    rows: list[tuple[int, str | None]], cut: int
):
    """Goal (invariant 1): a source that seals the same sends again gets the same digest.

    Method: the same rows in one chunk, in two, as a slice, and after a trip through Arrow IPC.
    """
    table = pa.table(
        {"a": pa.array([a for a, _ in rows], pa.int64()), "b": [b for _, b in rows]},
        schema=pa.schema([("a", pa.int64()), ("b", pa.string())]),
    )
    whole = digest_of_rows(table)
    pieces = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert digest_of_rows(pieces) == whole
    assert digest_of_rows(pa.concat_tables([table, table]).slice(len(rows))) == whole
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(pieces)
    assert digest_of_rows(pa.ipc.open_stream(sink.getvalue()).read_all()) == whole


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30, unique=True))
def test_sorted_hashes_tell_every_other_set_of_rows_apart(hashes: list[int]):
    """One row more, less or twice is another digest (replicas are compared by it)."""
    base = np.array(sorted(hashes), np.int64)
    digest = digest_of_hashes(base)
    assert digest == digest_of_hashes(np.array(sorted(hashes, reverse=True)[::-1], np.int64))
    if hashes:
        assert digest != digest_of_hashes(base[1:])
        assert digest != digest_of_hashes(np.sort(np.append(base, base[0])))


def test_a_gap_is_no_empty_epoch():
    """Invariant 4: nobody takes the one for the other, also by digest alone."""
    schema = pa.schema([("n", pa.int64())])
    gap = Epoch.gap("s", 7, schema, lost=12, term=3, fingerprint="f", sealed_us=5)
    empty = Epoch.of("s", 7, schema.empty_table())
    hashed = Epoch.of("s", 7, schema.empty_table(), digest=digest_of_hashes(np.array([], np.int64)))
    assert (gap.kind, gap.rows, gap.table.schema) == (GAP, 0, schema)
    assert gap.digest not in (empty.digest, hashed.digest)
    assert gap.digest == Epoch.gap("s", 7, schema, lost=13).digest, "recorded again, counted anew"
    back = Epoch.from_stamped(gap.stamped())
    assert back == gap
    assert (back.header.lost, back.header.term, back.header.sealed_us) == (12, 3, 5)
