"""Schemas are read as Spark reads them; rows fit or are set aside, each judged alone."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.errors import RowError, SchemaError
from unbroken.schemas import BadRow, fit, fit_or_set_aside, parse, to_ddl

EVERYTHING = """
    ts TIMESTAMP, src STRING, port INT NOT NULL COMMENT 'it''s', tags ARRAY<STRING>,
    m MAP<STRING, INT>, s STRUCT<a: INT NOT NULL COMMENT "x\\n", b STRING>, d DECIMAL(10,2),
    d0 decimal, d5 Dec(5), n NUMERIC( 38 , 18 ), `a ``b` BIGINT, i Integer, l LONG, t TINYINT,
    b BYTE, sm SMALLINT, sh short, f FLOAT, r REAL, dbl double, bo BOOLEAN, bin BINARY, day DATE,
    ltz TIMESTAMP_LTZ, ntz TIMESTAMP_NTZ, deep ARRAY<MAP<INT, STRUCT<x: ARRAY<TIMESTAMP>>>>,
    comment STRING, `select` INT, timestamp: STRING
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark's own parser needs Java")
def test_a_schema_is_the_one_that_spark_makes_of_the_same_text():
    """Goal: data goes to Spark without a cast.  Method: let Spark read the same DDL, and ours."""
    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    shared = SparkSession.getActiveSession()  # Another test's, which is not ours to stop.
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = shared or builder.getOrCreate()
    try:
        of_spark = to_arrow_schema(StructType.fromDDL(EVERYTHING), timezone="UTC")
        back = to_arrow_schema(StructType.fromDDL(to_ddl(parse(EVERYTHING))), timezone="UTC")
    finally:
        if shared is None:
            spark.stop()
    ours = parse(EVERYTHING)
    assert ours.equals(of_spark, check_metadata=True)
    assert ours.equals(back, check_metadata=True)
    # Arrow calls lists equal whatever their element is called; the text of the type does not.
    assert ours.to_string() == of_spark.to_string()


@pytest.mark.parametrize(
    ("ddl", "error"),
    [
        ("", "schema, position 1: expected a column name"),
        ("a INT,", "schema, position 7: expected a column name"),
        ("a INT, b INTT", "column 'b', position 10: unknown type 'INTT'"),
        ("a INT b INT", "column 'a', position 7: expected ',', found 'b'"),
        ("a INT, A STRING", "column 'A', position 8: this name is there twice"),
        ("s STRUCT<x: INT, X: INT>", "column 's.X', position 18: this name is there twice"),
        ("s STRUCT<x: ARRAY<FOO>>", "column 's.x', position 19: unknown type 'FOO'"),
        ("s STRUCT<>", "column 's', position 10: expected a column name"),
        ("a VARCHAR(5)", "column 'a', position 3: VARCHAR is not supported"),
        ("a CHAR(5)", "CHAR is not supported"),
        ("a INTERVAL DAY TO SECOND", "INTERVAL is not supported"),
        ("a VARIANT", "VARIANT is not supported"),
        ("a DECIMAL(39)", "no DECIMAL has 39 digits"),
        ("a DECIMAL(5,6)", "no DECIMAL has 5 digits, 6 of them"),
        ("a ARRAY<INT", "column 'a', position 12: expected '>', found the end"),
        ("a INT NOT", "expected 'NULL', found the end"),
        ("a INT COMMENT x", "expected a text after COMMENT"),
        ("a-b INT", "position 2: cannot read '-b INT'"),
        ("`` INT", "expected a column name"),
        ("a", "column 'a', position 2: expected a type"),
    ],
)
def test_a_schema_that_cannot_be_read_says_where_and_shows_the_way_out(ddl: str, error: str):
    with pytest.raises(SchemaError) as raised:
        parse(ddl)
    assert error in raised.value.what
    assert raised.value.hint


_flat = st.sampled_from(
    [f.type for f in parse("a INT, b LONG, c SHORT, d BYTE, e FLOAT, f DOUBLE, g BOOLEAN")]
    + [f.type for f in parse("a STRING, b BINARY, c DATE, d TIMESTAMP, e TIMESTAMP_NTZ")]
) | st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))


def _fields(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    def field(name: str, type_: pa.DataType, nullable: bool, comment: str | None) -> pa.Field:
        about = {b"SPARK::metadata::json": json.dumps({"comment": comment}).encode()}
        return pa.field(name, type_, nullable, None if comment is None else about)

    names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
    text = st.none() | st.text(st.characters(codec="utf-8"), max_size=8)
    one = st.builds(field, names, types, st.booleans(), text)
    return st.lists(one, min_size=1, max_size=4, unique_by=lambda f: f.name.lower())


_types = st.recursive(
    _flat,
    lambda t: st.one_of(
        t.map(lambda e: pa.list_(pa.field("element", e))),
        st.builds(
            lambda k, v: pa.map_(pa.field("key", k, nullable=False), pa.field("value", v)), t, t
        ),
        _fields(t).map(pa.struct),
    ),
    max_leaves=4,
)


@given(_fields(_types))
def test_every_schema_can_be_written_and_read_again(fields: list[pa.Field]):
    schema = pa.schema(fields)
    again = parse(to_ddl(schema))
    assert again.equals(schema, check_metadata=True)
    assert again.to_string() == schema.to_string()


def test_an_arrow_type_that_spark_ddl_lacks_is_refused():
    with pytest.raises(SchemaError, match="uint64"):
        to_ddl(pa.schema([("a", pa.uint64())]))


AT = datetime(2024, 1, 31, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ddl", "value", "expected"),
    [
        ("INT", "7", 7),
        ("INT", " 7 ", 7),
        ("INT", 7.0, 7),
        ("DOUBLE", "1e3", 1000.0),
        ("DECIMAL(10,2)", 5, Decimal("5.00")),
        ("DECIMAL(38,0)", 2**70, Decimal(2**70)),
        ("DECIMAL(10,2)", "1.5", Decimal("1.50")),
        ("BOOLEAN", "true", True),
        ("STRING", 42, "42"),
        ("STRING", b"caf\xc3\xa9", "café"),
        ("DATE", "2024-01-31", date(2024, 1, 31)),
        ("DATE", datetime(2024, 1, 31), date(2024, 1, 31)),
        ("TIMESTAMP", "2024-01-31T10:00:00", AT),
        ("TIMESTAMP", "2024-01-31 10:00", AT),
        ("TIMESTAMP", "2024-01-31T10:00:00Z", AT),
        ("TIMESTAMP", "2024-01-31T12:00:00+02:00", AT),
        ("TIMESTAMP", "2024-01-31T10:00:00.000000999Z", AT),
        ("TIMESTAMP", datetime(2024, 1, 31, 10), AT),
        ("TIMESTAMP", datetime(2024, 1, 31, 12, tzinfo=timezone(timedelta(hours=2))), AT),
        ("TIMESTAMP", date(2024, 1, 31), AT.replace(hour=0)),
        ("TIMESTAMP", 1706695200, AT),
        ("TIMESTAMP", 1706695200.0000004, AT),
        ("TIMESTAMP", 1521911720.600843, datetime(2018, 3, 24, 17, 15, 20, 600843, UTC)),
        ("TIMESTAMP", "1706695200.5", AT.replace(microsecond=500000)),
        ("TIMESTAMP_NTZ", "2024-01-31T12:00:00+02:00", AT.replace(tzinfo=None)),
        ("ARRAY<TIMESTAMP>", [1706695200, None, "2024-01-31T10:00"], [AT, None, AT]),
        ("ARRAY<TIMESTAMP>", ["1706695200", "2024-01-31T10:00", "2024-01-31T10Z"], [AT, AT, AT]),
        ("MAP<STRING, INT>", {"a": "1"}, [("a", 1)]),
        ("MAP<STRING, INT>", [("a", 1)], [("a", 1)]),
        ("STRUCT<a: INT NOT NULL, b: STRING>", {"a": "1"}, {"a": 1, "b": None}),
    ],
)
def test_a_value_that_loses_nothing_is_taken(ddl: str, value: object, expected: object):
    schema = parse(f"v {ddl}")
    table = fit([{"v": value}, {"v": None}], schema)
    assert table.to_pylist() == [{"v": expected}, {"v": None}]
    assert table.schema.equals(schema, check_metadata=True)
    table.validate(full=True)


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("INT", 2**31),
        ("INT", 1.5),
        ("INT", "1.0"),
        ("INT", ""),
        ("INT", True),
        ("INT", float("nan")),
        ("INT", [1]),
        ("DOUBLE", 2**53 + 1),
        ("FLOAT", 1e300),
        ("BOOLEAN", 1),
        ("STRING", 1.5),
        ("STRING", b"\xff"),
        ("STRING", "\ud800"),
        ("DECIMAL(4,2)", "1.239"),
        ("DECIMAL(4,2)", 100),
        ("DATE", datetime(2024, 1, 31, 10)),
        ("DATE", 5),
        ("TIMESTAMP", "noon"),
        ("TIMESTAMP", True),
        ("TIMESTAMP", float("nan")),
        ("TIMESTAMP", 1706695200_000),
        ("ARRAY<INT>", "12"),
        ("ARRAY<INT>", [1, "x"]),
        ("MAP<STRING, INT>", {None: 1}),
        ("STRUCT<a: INT NOT NULL>", {}),
        ("STRUCT<a: INT>", {"b": 1}),
    ],
)
def test_a_value_that_would_change_is_not_taken(ddl: str, value: object):
    schema = parse(f"k INT, v {ddl}")
    table, bad = fit_or_set_aside([{"k": 0}, {"k": 1, "v": value}, {"k": 2}], schema)
    assert table["k"].to_pylist() == [0, 2]
    assert [b.row for b in bad] == [1]
    assert bad[0].why.startswith("column 'v': ")
    assert ddl in bad[0].why


def test_an_error_names_the_first_bad_row_the_column_the_value_and_the_type():
    rows = [{"a": 1, "b": 1}, {"a": 2, "b": "y"}, {"a": "x", "b": 3}]
    with pytest.raises(RowError) as raised:
        fit(rows, parse("a INT, b INT"))
    assert raised.value.what == "row 1: column 'b': 'y' is not INT"


def test_columns_are_matched_by_name_and_a_missing_one_is_null():
    schema = parse("a INT, b STRING, c DATE")
    expected = [{"a": 1, "b": "x", "c": None}]
    batch = pa.RecordBatch.from_pydict({"b": ["x"], "a": [1]})
    for rows in ([{"b": "x", "a": 1}], batch, pa.Table.from_batches([batch])):
        assert fit(rows, schema).to_pylist() == expected


def test_an_unknown_column_is_an_error_and_sets_aside_only_its_own_row():
    schema = parse("a INT")
    with pytest.raises(RowError, match="unknown column 'b'; the schema is: a INT"):
        fit([{"a": 1}, {"a": 1, "b": 2}], schema)
    table, bad = fit_or_set_aside([{"a": 1}, {"a": 1, "b": 2}, {"a": 3}, 4], schema)
    assert table["a"].to_pylist() == [1, 3]
    assert [(b.row, b.text) for b in bad] == [(1, '{"a": 1, "b": 2}'), (3, "4")]
    with pytest.raises(RowError, match=r"unknown or double: \['b'\]"):
        fit_or_set_aside(pa.table({"a": [1], "b": [2]}), schema)


def test_a_null_in_a_not_null_column_is_a_bad_row():
    schema = parse("a INT NOT NULL, b INT")
    table, bad = fit_or_set_aside([{"a": 1}, {"b": 1}], schema)
    assert table.num_rows == 1
    assert bad == [BadRow(1, "column 'a': null, but the column is NOT NULL", '{"b": 1}')]
    with pytest.raises(RowError, match=r"missing, but NOT NULL: \['a'\]"):
        fit(pa.table({"b": [1]}), schema)


def test_what_is_not_rows_is_refused_with_a_hint():
    with pytest.raises(RowError, match="not DataFrame") as raised:
        fit(pa.table({"a": [1]}).to_pandas(), parse("a INT"))
    assert "from_pandas" in raised.value.hint


def test_arrow_tables_of_other_types_and_chunks_come_out_as_the_schema_in_one_chunk():
    schema = parse("i INT, s STRING, t TIMESTAMP, a ARRAY<INT>, n TIMESTAMP")
    one = pa.table({
        "i": pa.array([1], pa.int64()),
        "s": pa.array(["x"]).dictionary_encode(),
        "t": pa.array([1_500], pa.timestamp("ns", "Europe/Paris")),
        "a": pa.array([[1]], pa.list_(pa.int64())),
        "n": pa.array([None]),
    })  # fmt: skip
    table = fit(pa.concat_tables([one, one]), schema)
    assert table.schema.to_string() == schema.to_string()
    assert [column.num_chunks for column in table.columns] == [1] * 5
    at = datetime(1970, 1, 1, 0, 0, 0, 1, UTC)
    assert table.to_pylist() == [{"i": 1, "s": "x", "t": at, "a": [1], "n": None}] * 2


def test_an_empty_table_of_a_wrong_type_fits_because_it_has_no_rows():
    table = fit(pa.table({"a": pa.array([], pa.list_(pa.int8()))}), parse("a INT"))
    assert table.num_rows == 0
    assert fit([], parse("a INT NOT NULL")).num_rows == 0


def test_first_only_gives_the_rows_before_the_first_bad_one():
    rows = [{"a": i, "b": "x" if i == 3 else i} for i in range(10)] + [{"a": "y", "b": 1}]
    table, bad = fit_or_set_aside(rows, parse("b INT, a INT"), first_only=True)
    assert table["a"].to_pylist() == [0, 1, 2]
    assert [b.row for b in bad] == [3]


_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(),
    st.sampled_from(["7", "x", "", "2024-01-31", "2024-01-31T10:00Z", "1.5", "true"]),
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    st.decimals(-1000, 1000, places=2),
    st.binary(max_size=2),
)
_ddls = st.sampled_from(
    ["INT", "DOUBLE", "DECIMAL(6,2)", "BOOLEAN", "STRING", "BINARY", "DATE", "TIMESTAMP"]
)


@given(st.lists(_values, max_size=12), _ddls, st.sampled_from(["", " NOT NULL"]))
def test_a_row_is_judged_by_itself_whatever_stands_beside_it(
    values: list[object], ddl: str, null: str
):
    """Goal: a row sent again in another batch has the same fate and value."""
    schema = parse(f"v {ddl}{null}")
    together, bad = fit_or_set_aside([{"v": value} for value in values], schema)
    alone = [fit_or_set_aside([{"v": value}], schema) for value in values]
    assert [b.row for b in bad] == [row for row, (_, failed) in enumerate(alone) if failed]
    expected = pa.concat_tables([schema.empty_table(), *(table for table, _ in alone)])
    assert repr(together.to_pylist()) == repr(expected.to_pylist())
    together.validate(full=True)
