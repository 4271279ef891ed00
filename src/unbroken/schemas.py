"""What a stream's rows look like, and how rows from outside are made to look so.

A schema is written once, as Spark DDL, and becomes the Arrow schema that Spark itself would make of
it.  Data in it therefore goes to Spark and back without a cast:

    "ts TIMESTAMP, port INT"  --parse-->  pa.Schema  --to_ddl-->  the same text   (ddl.py)
                                             |
    dicts, tables  -------------fit------>  pa.Table, one chunk per column

    column      takes
    number      numbers that lose nothing (a DOUBLE into DECIMAL is rounded), text like "12"
    TIMESTAMP   times, dates, ISO 8601 text, seconds since 1970 (also as text)
    DATE        dates, times at midnight, text like "2024-01-31"
    STRING      text, UTF-8 bytes, whole numbers
    BOOLEAN     Booleans, text like "true"
    ARRAY, MAP, STRUCT   the same, their parts by the same rules

* A time without a zone is UTC: the result must not depend on where a client happens to run.
* Times are in microseconds, because Spark's are: seconds are rounded, finer text is cut.
* Seconds after the year 9999 are refused: they are milliseconds by mistake.
* Whether a row fits depends on that row alone, never on its neighbours: otherwise the same row,
  sent again in another batch, could be judged differently.
* Bad rows are rare.  So a column is cast as a whole, and only when that fails is it halved until
  the bad rows are found.

No Spark here: clients have no Java.

>>> schema = parse("ts TIMESTAMP NOT NULL, port INT")
>>> fit([{"ts": 0.5, "port": "80"}], schema).to_pylist()[0]["port"]
80
>>> good, bad = fit_or_set_aside([{"ts": 1}, {"ts": "noon"}, {"ts": 2}], schema)
>>> good.num_rows, bad[0].why
(2, "column 'ts': 'noon' is not TIMESTAMP (ISO 8601, or seconds since 1970)")
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from unbroken.ddl import NAIVE, UTC, parse, to_ddl, type_ddl
from unbroken.errors import RowError

__all__ = ["BadRow", "Rows", "fit", "fit_or_set_aside", "parse", "to_ddl"]

TEXT_CHARS_MAX = 500
"""How much of a bad row is kept: enough to find it, too little to fill a log."""

_YEAR_1_US, _YEAR_9999_US = -62_135_596_800_000_000, 253_402_300_799_999_999

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Sequence[Mapping[str, object]]"


@dataclass(frozen=True)
class BadRow:
    """A row that was set aside: its number from 0 among those given, why, and what it said."""

    row: int
    why: str
    text: str


def fit(rows: Rows, schema: pa.Schema) -> pa.Table:
    """All rows in the schema's columns, types and order, or a RowError and none of them.

    >>> fit([{"port": 80}, {"port": 2**40}], parse("port INT"))
    Traceback (most recent call last):
    unbroken.errors.RowError: row 1: column 'port': 1099511627776 is not INT
      → correct it and send all 2 rows again: none of them was taken
    """
    table, bad = fit_or_set_aside(rows, schema, first_only=True)
    if bad:
        raise RowError(
            f"row {bad[0].row}: {bad[0].why}",
            hint=f"correct it and send all {len(rows)} rows again: none of them was taken",
        )
    return table


def fit_or_set_aside(
    rows: Rows, schema: pa.Schema, *, first_only: bool = False
) -> tuple[pa.Table, list[BadRow]]:
    """The rows that fit, and those that do not.

    Columns are matched by name; one that is missing is null.  An Arrow table with an unknown
    column, or without a NOT NULL one, is a RowError: none of its rows could fit.

    With `first_only` the search ends at the first bad row, and the table holds the rows before it:
    under a wrong schema every row is bad, and whoever stops anyway need not wait for them all.
    """
    bad: dict[int, str] = {}
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        columns = _columns_of_table(rows, schema)
    elif isinstance(rows, (list, tuple)):
        columns = _columns_of_dicts(rows, schema, bad)
    else:
        raise RowError(
            f"rows are a list of dicts or an Arrow table, not {type(rows).__name__}",
            hint="for a pandas frame: pa.Table.from_pandas(frame, preserve_index=False)",
        )
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        array, failed = _fit_column(column, field, first_only)
        arrays.append(array)
        bad = failed | bad  # The first thing wrong with a row is the one to tell.
    if bad and first_only:
        bad = {min(bad): bad[min(bad)]}
        arrays = [array[: min(bad)] for array in arrays]
    table = pa.Table.from_arrays(arrays, schema=schema)
    if not bad:
        return table, []
    keep = pa.array([row for row in range(table.num_rows) if row not in bad], pa.int64())
    set_aside = [BadRow(row, bad[row], _row_text(rows, row)) for row in sorted(bad)]
    return table.take(keep).combine_chunks(), set_aside


def _columns_of_table(rows: Any, schema: pa.Schema) -> list[pa.Array]:
    names = rows.schema.names
    unknown = sorted({name for name in names if name not in schema.names or names.count(name) > 1})
    absent = [f.name for f in schema if not f.nullable and f.name not in names]
    if unknown or absent:
        what = f"unknown or double: {unknown}" if unknown else f"missing, but NOT NULL: {absent}"
        raise RowError(f"the columns do not fit: {what}", hint=f"the schema is: {to_ddl(schema)}")
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    missing = pa.nulls(table.num_rows)
    return [table[n].combine_chunks() if n in names else missing for n in schema.names]


def _columns_of_dicts(
    rows: Sequence[Any], schema: pa.Schema, bad: dict[int, str]
) -> list[list[object]]:
    names = set(schema.names)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            bad[number] = f"a row is a dict of columns, not {type(row).__name__}"
        elif not row.keys() <= names:
            unknown = sorted(map(str, row.keys() - names))
            bad[number] = f"unknown column {unknown[0]!r}; the schema is: {to_ddl(schema)}"
    good = [{} if number in bad else row for number, row in enumerate(rows)] if bad else rows
    return [[row.get(name) for row in good] for name in schema.names]


def _row_text(rows: Any, number: int) -> str:
    row = rows[number] if isinstance(rows, (list, tuple)) else rows.slice(number, 1).to_pylist()[0]
    if isinstance(row, Mapping):
        row = json.dumps({str(name): value for name, value in row.items()}, default=repr)
    return str(row)[:TEXT_CHARS_MAX]


_NO_FIT = (ValueError, TypeError, NotImplementedError, OverflowError)  # All that Arrow raises.


def _fit_column(values: Any, field: pa.Field, first_only: bool) -> tuple[pa.Array, dict[int, str]]:
    """The column with null for each value that does not fit, and why it does not."""
    bad: dict[int, str] = {}
    parts: list[pa.Array] = []

    def go(low: int, high: int) -> None:
        if first_only and bad:
            return
        part = values[low:high]
        try:
            array = _array(part, field.type) if isinstance(part, list) else _cast(part, field.type)
            if array.null_count and not field.nullable:
                raise ValueError("null")
            parts.append(array)
        except _NO_FIT:
            if high - low > 1:
                middle = (low + high) // 2
                go(low, middle)
                go(middle, high)
                return
            parts.append(pa.nulls(high - low, field.type))
            for value in part:  # One, or none if the column is empty.
                bad[low] = f"column {field.name!r}: {_expected(value, field)}"

    go(0, len(values))
    return (parts[0] if len(parts) == 1 else pa.concat_arrays(parts)), bad


def _expected(value: Any, field: pa.Field) -> str:
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    if value is None:
        return "null, but the column is NOT NULL"
    shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:80] + "..."
    times = " (ISO 8601, or seconds since 1970)" if pt.is_timestamp(field.type) else ""
    return f"{shown} is not {type_ddl(field.type)}{times}"


def _array(values: list[Any], to: pa.DataType) -> pa.Array:
    """Python values as an Arrow array; nested ones are taken apart, so all leaves meet `_cast`."""
    there = [value for value in values if value is not None]
    null = pa.array([value is None for value in values], pa.bool_())
    if pt.is_struct(to):
        names = {field.name for field in to}
        for value in there:
            if not (isinstance(value, Mapping) and value.keys() <= names):
                raise TypeError("no such struct")
            if any(not field.nullable and value.get(field.name) is None for field in to):
                raise ValueError("null")
        children = [
            _array([None if v is None else v.get(field.name) for v in values], field.type)
            for field in to
        ]
        return pa.StructArray.from_arrays(children, fields=list(to), mask=null)
    if pt.is_map(to):
        there = [list(v.items()) if isinstance(v, Mapping) else v for v in there]
    if pt.is_list(to) or pt.is_map(to):
        if not all(isinstance(value, (list, tuple)) for value in there):
            raise TypeError("no list")  # A text is a sequence too, but never meant as one.
        lengths = iter(map(len, there))
        sizes = (0 if value is None else next(lengths) for value in values)
        offsets = pa.array(accumulate(sizes, initial=0), pa.int32())
        flat = [item for value in there for item in value]
        if pt.is_list(to):
            return pa.ListArray.from_arrays(offsets, _array(flat, to.value_type), to, mask=null)
        keys = _array([key for key, _ in flat], to.key_type)
        if keys.null_count:
            raise ValueError("null")
        items = _array([item for _, item in flat], to.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, to, mask=null)
    # Arrow guesses one type for a mixed list and bends the others to it (a date beside a datetime
    # cuts off its time), so each Python type is cast alone.
    kinds = {type(value) for value in there}
    arrays = []
    for kind in kinds:
        own = values if len(kinds) == 1 else [v if type(v) is kind else None for v in values]
        wide = pa.decimal128(38, 0) if kind is int and pt.is_decimal(to) else None
        arrays.append(_cast(pa.array(own, wide), to))
    return pc.coalesce(*arrays) if arrays else pa.nulls(len(values), to)


_IS: dict[str, Callable[[pa.DataType], bool]] = {
    "integer": pt.is_integer,
    "float": pt.is_floating,
    "decimal": pt.is_decimal,
    "bool": pt.is_boolean,
    "timestamp": pt.is_timestamp,
    "date": pt.is_date,
    "text": lambda t: pt.is_string(t) or pt.is_large_string(t) or pt.is_string_view(t),
    "bytes": lambda t: pt.is_binary(t) or pt.is_large_binary(t) or pt.is_fixed_size_binary(t),
}
_TAKES = {
    "integer": {"integer", "float", "decimal", "text"},
    "float": {"integer", "float", "decimal", "text"},
    "decimal": {"integer", "float", "decimal", "text"},
    "bool": {"bool", "text"},
    "timestamp": {"timestamp", "date", "integer", "float", "decimal", "text"},
    "date": {"date", "timestamp", "text"},
    "text": {"text", "bytes", "integer"},
    "bytes": {"bytes", "text"},
}


def _cast(array: pa.Array, to: pa.DataType) -> pa.Array:
    """An Arrow array in another type, or an error as soon as one value would change."""
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == to:
        return array.cast(to)  # Equal types may still name the parts of a list differently.
    if pt.is_null(array.type):
        return pa.nulls(len(array), to)
    if pt.is_nested(to):
        return _array(array.to_pylist(), to)
    have, want = (next((k for k, of in _IS.items() if of(t)), "") for t in (array.type, to))
    if have not in _TAKES[want]:
        raise TypeError(f"{have} is not {want}")
    if have == "text" and want not in ("text", "bytes"):
        array = pc.utf8_trim_whitespace(array)
    if want == "timestamp":
        return _times(array, have).cast(to)
    if have == "timestamp":
        moments = _times(array, have)
        days = moments.cast(to)
        if not pc.all(pc.equal(days.cast(NAIVE), moments), min_count=0).as_py():
            raise ValueError("not at midnight")
        return days
    if have == "integer" and want == "decimal":
        array = array.cast(pa.decimal128(20, 0))  # Arrow wants room for every possible integer.
    if have != "integer" and to == pa.float32():
        array = array.cast(pa.float64())
        if not pc.is_inf(array).equals(pc.is_inf(array.cast(to))):
            raise OverflowError("too large for FLOAT")
    return array.cast(to)


def _times(array: pa.Array, have: str) -> pa.Array:
    """Moments as UTC microseconds without a zone."""
    if have == "text":
        zoned = pc.match_substring_regex(array, r"[T ]\d.*(Z|[+-]\d\d(:?\d\d)?)$")
        seconds = pc.match_substring_regex(array, r"^[+-]?[0-9.]+([eE][+-]?[0-9]+)?$")
        # What is neither goes first: if a text is no time at all, it is in there.
        forms: list[tuple[pa.Array, Callable[[pa.Array], pa.Array]]] = [
            (pc.invert(pc.or_(zoned, seconds)), lambda text: _cut(text).cast(NAIVE)),
            (zoned, lambda text: _cut(text).cast(UTC).cast(NAIVE)),
            (seconds, lambda text: _times(text.cast(pa.float64()), "float")),
        ]
        none = pa.scalar(None, array.type)
        parts = [read(pc.if_else(own, array, none)) for own, read in forms if own.true_count]
        return pc.coalesce(*parts) if parts else pa.nulls(len(array), NAIVE)
    if have == "timestamp":
        array = array.cast(pa.timestamp(array.type.unit))
        return pc.floor_temporal(array, unit="microsecond").cast(NAIVE)
    if have == "date":
        return array.cast(NAIVE)
    if have == "integer":
        us = pc.multiply_checked(array.cast(pa.int64()), 1_000_000)
    else:
        us = pc.round(pc.multiply(array.cast(pa.float64()), 1e6)).cast(pa.int64())
    inside = pc.and_(pc.less_equal(_YEAR_1_US, us), pc.less_equal(us, _YEAR_9999_US))
    if not pc.all(inside, min_count=0).as_py():
        raise ValueError("not a year from 1 to 9999")
    return us.cast(NAIVE)


def _cut(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
