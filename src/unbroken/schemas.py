"""What a stream's rows look like, and how rows from outside are made to look so.

A schema is written once, as Spark DDL, and becomes the Arrow schema that Spark itself would make of
it.  Data in it therefore goes to Spark and back without a cast:

    "ts TIMESTAMP, port INT"  --parse-->  pa.Schema  --to_ddl-->  the same text
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

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from unbroken.errors import RowError, SchemaError

TEXT_CHARS_MAX = 500
"""How much of a bad row is kept: enough to find it, too little to fill a log."""

_NAIVE, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
_YEAR_1_US, _YEAR_9999_US = -62_135_596_800_000_000, 253_402_300_799_999_999

# The first name of a type is the one that to_ddl writes.
_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "BYTE": pa.int8(), "SMALLINT": pa.int16(),
    "SHORT": pa.int16(), "INT": pa.int32(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "LONG": pa.int64(), "FLOAT": pa.float32(), "REAL": pa.float32(), "DOUBLE": pa.float64(),
    "STRING": pa.string(), "BINARY": pa.binary(), "DATE": pa.date32(), "TIMESTAMP": _UTC,
    "TIMESTAMP_LTZ": _UTC, "TIMESTAMP_NTZ": _NAIVE,
}  # fmt: skip
_WRITTEN = {type_: name for name, type_ in reversed(_TYPES.items())}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_INSTEAD = {
    "VARCHAR": "STRING", "CHAR": "STRING", "CHARACTER": "STRING", "TEXT": "STRING",
    "VARIANT": "STRING that holds JSON", "INTERVAL": "BIGINT, with the unit in its name",
    "TIME": "BIGINT, with the unit in its name", "VOID": "type that has values",
}  # fmt: skip

_TOKEN = re.compile(
    r"""\s*(?: (?P<name>[A-Za-z_][A-Za-z0-9_]*) | `(?P<quoted>(?:[^`]|``)*)` | (?P<number>[0-9]+\b)
    | (?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*") | (?P<sign>[<>(),:]) | (?P<end>$) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_ESCAPES |= {"%": r"\%", "_": r"\_"}  # Spark keeps these two, they mean something to LIKE.

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Sequence[Mapping[str, object]]"


@dataclass(frozen=True)
class BadRow:
    """A row that was set aside: its number from 0 among those given, why, and what it said."""

    row: int
    why: str
    text: str


def parse(ddl: str) -> pa.Schema:
    """The Arrow schema of a Spark DDL text, the one that Spark would make of it.

    >>> parse("src STRING NOT NULL, tags ARRAY<STRING>").field("tags").type
    ListType(list<element: string>)
    >>> parse("port INTT")
    Traceback (most recent call last):
    unbroken.errors.SchemaError: schema, column 'port', position 6: unknown type 'INTT'
      → did you mean INT?
    """
    return pa.schema(_Parser(ddl).fields("end"))


def to_ddl(schema: pa.Schema) -> str:
    """The DDL that `parse` reads as this schema.

    DDL cannot say that the elements of an array or map are never null: that alone is lost.

    >>> to_ddl(parse("`a b` dec(5,2) not null comment 'euro', s struct<x int>"))
    "`a b` DECIMAL(5,2) NOT NULL COMMENT 'euro', s STRUCT<x: INT>"
    """
    return ", ".join(_field_ddl(field, " ") for field in schema)


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


class _Parser:
    """Reads DDL from left to right; remembers the column it is in, for its errors."""

    def __init__(self, ddl: str) -> None:
        self.ddl, self.at, self.column = ddl, 0, ""
        self.kind = self.value = self.word = ""
        self.start = 0
        self.step()

    def step(self) -> str:
        """Moves to the next token and gives the one that was left."""
        left, match = self.value, _TOKEN.match(self.ddl, self.at)
        if match is None:
            rest = self.ddl[self.at :].lstrip()
            self.start = len(self.ddl) - len(rest)
            self.fail(f"cannot read {rest[:20]!r}", "a name that is not only letters, digits and _ "
                      "stands in backquotes: `like-this`")  # fmt: skip
        self.kind = str(match.lastgroup)
        self.value, self.start, self.at = match[self.kind], match.start(self.kind), match.end()
        self.word = self.value.upper() if self.kind in ("name", "sign") else ""
        return left

    def fail(self, what: str, hint: str) -> NoReturn:
        where = f"schema, column {self.column!r}" if self.column else "schema"
        raise SchemaError(f"{where}, position {self.start + 1}: {what}", hint=hint)

    def take(self, *words: str) -> bool:
        """Steps over the word or sign if it is one of these."""
        found = self.word in words
        if found:
            self.step()
        return found

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            found = repr(self.value) if self.kind != "end" else "the end"
            self.fail(f"expected {sign!r}, found {found}", "a column is: name TYPE [NOT NULL] "
                      "[COMMENT 'text'], the next one follows after a comma")  # fmt: skip

    def fields(self, end: str) -> list[pa.Field]:
        outer, found, seen = self.column, list[pa.Field](), set[str]()
        while not found or self.take(","):
            self.column = outer
            if self.kind not in ("name", "quoted") or not self.value:
                self.fail("expected a column name", 'for example "ts TIMESTAMP, port INT"')
            name = self.value.replace("``", "`") if self.kind == "quoted" else self.value
            self.column = f"{outer}.{name}" if outer else name
            if name.lower() in seen:
                self.fail("this name is there twice", "Spark does not tell A from a: rename one")
            seen.add(name.lower())
            self.step()
            self.take(":")
            found.append(self.field(name))
        if end != "end":
            self.column = outer
            self.expect(end)
        elif self.kind != "end":
            self.expect(",")
        return found

    def field(self, name: str) -> pa.Field:
        type_, nullable, metadata = self.type(), True, None
        if self.take("NOT"):
            self.expect("NULL")
            nullable = False
        if self.take("COMMENT"):
            if self.kind != "text":
                self.fail("expected a text after COMMENT", "put it in quotes: COMMENT 'text'")
            metadata = {_METADATA: json.dumps({"comment": _unquoted(self.step())}).encode()}
        return pa.field(name, type_, nullable, metadata)

    def type(self) -> pa.DataType:
        word = self.word
        if word in _TYPES:
            self.step()
            return _TYPES[word]
        if self.take(*_DECIMALS):
            return self.decimal()
        if self.take("ARRAY"):
            self.expect("<")
            element = pa.field("element", self.type())
            self.expect(">")
            return pa.list_(element)
        if self.take("MAP"):
            self.expect("<")
            key = pa.field("key", self.type(), nullable=False)
            self.expect(",")
            value = pa.field("value", self.type())
            self.expect(">")
            return pa.map_(key, value)
        if self.take("STRUCT"):
            self.expect("<")
            return pa.struct(self.fields(">"))
        if word in _INSTEAD:
            self.fail(f"{word} is not supported", f"use a {_INSTEAD[word]}")
        if self.kind != "name":
            self.fail("expected a type", 'for example "ts TIMESTAMP, port INT"')
        known = [*_TYPES, *_DECIMALS, "ARRAY", "MAP", "STRUCT"]
        close = difflib.get_close_matches(word, known, 1)
        hint = f"did you mean {close[0]}?" if close else "known are " + ", ".join(known)
        self.fail(f"unknown type {self.value!r}", hint)

    def decimal(self) -> pa.DataType:
        digits, start = [10, 0], self.start
        if self.take("("):
            digits = [self.number(), self.number() if self.take(",") else 0]
            self.expect(")")
        if not (1 <= digits[0] <= 38 and digits[1] <= digits[0]):
            self.start = start
            self.fail(f"no DECIMAL has {digits[0]} digits, {digits[1]} of them after the point",
                      "at most 38 digits, DECIMAL(38,18) for example")  # fmt: skip
        return pa.decimal128(*digits)

    def number(self) -> int:
        if self.kind != "number":
            self.fail("expected a number of digits", "for example DECIMAL(10,2)")
        return int(self.step())


_METADATA = b"SPARK::metadata::json"  # Where Spark keeps a column's comment in Arrow.


def _unquoted(text: str) -> str:
    quote, body = text[0], text[1:-1]

    def plain(match: re.Match[str]) -> str:
        code, char = match.groups()
        return chr(int(code, 16)) if code else _ESCAPES.get(char, char) if char else quote

    return re.sub(rf"\\u([0-9a-fA-F]{{4}})|\\(.)|{quote}{quote}", plain, body, flags=re.DOTALL)


def _field_ddl(field: pa.Field, between: str) -> str:
    plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", field.name)
    name = field.name if plain else "`" + field.name.replace("`", "``") + "`"
    comment = json.loads((field.metadata or {}).get(_METADATA, b"{}")).get("comment")
    escaped = "" if comment is None else comment.replace("\\", "\\\\").replace("'", "\\'")
    return "".join((
        f"{name}{between}{_type_ddl(field.type)}",
        "" if field.nullable else " NOT NULL",
        "" if comment is None else f" COMMENT '{escaped}'",
    ))  # fmt: skip


def _type_ddl(type_: pa.DataType) -> str:
    if type_ in _WRITTEN:
        return _WRITTEN[type_]
    if pt.is_decimal128(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pt.is_list(type_):
        return f"ARRAY<{_type_ddl(type_.value_type)}>"
    if pt.is_map(type_):
        return f"MAP<{_type_ddl(type_.key_type)}, {_type_ddl(type_.item_type)}>"
    if pt.is_struct(type_):
        return f"STRUCT<{', '.join(_field_ddl(field, ': ') for field in type_)}>"
    raise SchemaError(f"no Spark DDL for the Arrow type {type_}", hint="cast the column first")


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
    return f"{shown} is not {_type_ddl(field.type)}{times}"


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
        if not pc.all(pc.equal(days.cast(_NAIVE), moments), min_count=0).as_py():
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
            (pc.invert(pc.or_(zoned, seconds)), lambda text: _cut(text).cast(_NAIVE)),
            (zoned, lambda text: _cut(text).cast(_UTC).cast(_NAIVE)),
            (seconds, lambda text: _times(text.cast(pa.float64()), "float")),
        ]
        none = pa.scalar(None, array.type)
        parts = [read(pc.if_else(own, array, none)) for own, read in forms if own.true_count]
        return pc.coalesce(*parts) if parts else pa.nulls(len(array), _NAIVE)
    if have == "timestamp":
        array = array.cast(pa.timestamp(array.type.unit))
        return pc.floor_temporal(array, unit="microsecond").cast(_NAIVE)
    if have == "date":
        return array.cast(_NAIVE)
    if have == "integer":
        us = pc.multiply_checked(array.cast(pa.int64()), 1_000_000)
    else:
        us = pc.round(pc.multiply(array.cast(pa.float64()), 1e6)).cast(pa.int64())
    inside = pc.and_(pc.less_equal(_YEAR_1_US, us), pc.less_equal(us, _YEAR_9999_US))
    if not pc.all(inside, min_count=0).as_py():
        raise ValueError("not a year from 1 to 9999")
    return us.cast(_NAIVE)


def _cut(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
