"""The language in which a schema is written: Spark DDL, read and printed without Spark.

    "ts TIMESTAMP, port INT"  --parse-->  pa.Schema  --to_ddl-->  the same text

* What comes out is the Arrow schema that Spark itself would make of the text: data in it goes to
  Spark and back without a cast.
* An error names the column and the position, and what to write instead.

No Spark here: clients have no Java.

>>> to_ddl(parse("ts timestamp not null, port integer"))
'ts TIMESTAMP NOT NULL, port INT'
"""

from __future__ import annotations

import difflib
import json
import re
from typing import NoReturn

import pyarrow as pa
import pyarrow.types as pt

from unbroken.errors import SchemaError

NAIVE, UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")

# The first name of a type is the one that to_ddl writes.
_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "BYTE": pa.int8(), "SMALLINT": pa.int16(),
    "SHORT": pa.int16(), "INT": pa.int32(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "LONG": pa.int64(), "FLOAT": pa.float32(), "REAL": pa.float32(), "DOUBLE": pa.float64(),
    "STRING": pa.string(), "BINARY": pa.binary(), "DATE": pa.date32(), "TIMESTAMP": UTC,
    "TIMESTAMP_LTZ": UTC, "TIMESTAMP_NTZ": NAIVE,
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
        f"{name}{between}{type_ddl(field.type)}",
        "" if field.nullable else " NOT NULL",
        "" if comment is None else f" COMMENT '{escaped}'",
    ))  # fmt: skip


def type_ddl(type_: pa.DataType) -> str:
    if type_ in _WRITTEN:
        return _WRITTEN[type_]
    if pt.is_decimal128(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pt.is_list(type_):
        return f"ARRAY<{type_ddl(type_.value_type)}>"
    if pt.is_map(type_):
        return f"MAP<{type_ddl(type_.key_type)}, {type_ddl(type_.item_type)}>"
    if pt.is_struct(type_):
        return f"STRUCT<{', '.join(_field_ddl(field, ': ') for field in type_)}>"
    raise SchemaError(f"no Spark DDL for the Arrow type {type_}", hint="cast the column first")
