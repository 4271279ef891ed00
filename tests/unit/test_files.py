"""Trace files of every kind: order, row and line numbers, and bad rows in the middle."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.client import files
from unbroken.client.files import Chunk, read
from unbroken.errors import RowError, SchemaError, UnbrokenError
from unbroken.schemas import BadRow, parse

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
SCHEMA = parse("n INT, s STRING")


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def rows(chunks: list[Chunk]) -> list[dict[str, object]]:
    return [row for chunk in chunks for row in chunk.table.to_pylist()]


def until_error(chunks: Iterator[Chunk]) -> tuple[list[Chunk], RowError]:
    got = []
    try:
        for chunk in chunks:
            got.append(chunk)
    except RowError as error:
        return got, error
    pytest.fail("the bad row was not told")


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "s,extra,n\na,?,1\n\n,?,2\r\n\"\",?,3\n\"d,\"\"d\"\"\",?,"),
        ("t.tsv", 's\textra\tn\na\t?\t1\n\t?\t2\n"\t?\t3\n\t\t\n'),
        ("t.jsonl", '{"s":"a","n":1,"extra":0}\n\n{"n":"2"}\n{"n":3,"s":""}\n{"s":"d","n":null}'),
        ("t.ndjson", '\ufeff{"s":"a","n":1}\n{"n":2,"s":null}\r\n{"n":3,"s":""}\n{"s":"d"}\n'),
        ("T.JSON", '{"s":"a","n":1}\n{"n":2}\n{"n":3,"s":""}\n{"s":"d"}\n'),
    ],
)  # fmt: skip
def test_text_files_are_read_in_order(tmp_path: Path, name: str, text: str, zipped: str):
    path = write(tmp_path / (name + zipped), text)
    last = {"t.csv": 'd,"d"', "t.tsv": None}.get(name, "d")
    third = '"' if name == "t.tsv" else ""
    expected = [
        {"n": 1, "s": "a"},
        {"n": 2, "s": None},
        {"n": 3, "s": third},
        {"n": None, "s": last},
    ]
    for chunk_rows, firsts in ((100, [0]), (3, [0, 3]), (1, [0, 1, 2, 3])):
        chunks = list(read(path, SCHEMA, chunk_rows=chunk_rows))
        assert rows(chunks) == expected
        assert [chunk.first_row for chunk in chunks] == firsts
        assert all(c.table.schema == SCHEMA and c.table["n"].num_chunks == 1 for c in chunks)


def test_parquet_is_read_in_batches_and_cast(tmp_path: Path):
    table = pa.table({"extra": [0] * 7, "s": list("abcdefg"), "n": pa.array(range(7), pa.int64())})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=5)
    chunks = list(read(tmp_path / "t.parquet", SCHEMA, chunk_rows=3))
    assert rows(chunks) == [{"n": i, "s": "abcdefg"[i]} for i in range(7)]
    assert all(chunk.table.num_rows <= 3 for chunk in chunks)


def test_plain_text_has_a_line_and_its_number_and_keeps_empty_lines(tmp_path: Path):
    path = write(tmp_path / "t.txt.gz", "one\r\n\nthree")
    [chunk] = read(path, parse("number INT, line STRING"))
    expected = [(1, "one"), (2, ""), (3, "three")]
    assert [(r["number"], r["line"]) for r in chunk.table.to_pylist()] == expected
    [chunk] = read(path, parse("line STRING"))
    assert chunk.table["line"].to_pylist() == ["one", "", "three"]


@pytest.mark.parametrize("ddl", ["text STRING", "line INT", "line STRING, number STRING",
                                 "line STRING, x INT"])  # fmt: skip
def test_plain_text_needs_a_schema_with_a_line(tmp_path: Path, ddl: str):
    path = write(tmp_path / "t.txt", "one\n")
    with pytest.raises(SchemaError, match="plain text does not fit the schema") as raised:
        list(read(path, parse(ddl)))
    assert "line STRING" in raised.value.hint


# Each file has rows 0 to 5, of which 2 and 4 are bad, each for a reason of its own.
BAD_IN_THE_MIDDLE = {
    "value.csv": (b"n,s\n0,a\n1,a\nx,a\n3,a\n9999999999,a\n5,a\n", ["4: column 'n': 'x'", "6: "]),
    "fields.csv": (
        b"n,s\n0,a\n\n1,a\n2\n3,a\n4,a,4\n5,a\n",
        ["5: 1 values, the header has 2", "7: 3 values"],
    ),
    "both.csv": (b"n,s\n0,a\n1,a\n2\n3,a\nx,a\n5,a\n", ["4: 1 values", "6: column 'n': 'x'"]),
    "quotes.csv": (b'n,s\n0,a\n1,a\n2,"a\n3,a\n4,"a\n5,a\n', ["4: not one row", "6: not one row"]),
    "even.csv": (b'n,s\n0,a\n1,a\n2"2,"a\n3,a\n4,\ra\n5,a\n', ["4: not one", "6: not one"]),
    "utf8.csv": (b"n,s\n0,a\n1,a\n2,\xff\n3,a\n4,\xfe\n5,a\n", ["4: not UTF", "6: not UTF"]),
    "tabs.tsv.gz": (b"n\ts\n0\ta\n1\ta\n2\n3\ta\n\ta\ta\n5\ta\n", ["4: 1 values", "6: 3 values"]),
    "t.jsonl": (
        b'{"n":0,"s":"a"}\n{"n":1,"s":"a"}\n{"n":\n{"n":3,"s":"a"}\n\n{"n":true}\n{"n":5,"s":"a"}',
        ["3: not JSON", "6: column 'n': True is not INT"],
    ),
    "t.json.gz": (
        b'{"n":0,"s":"a"}\n{"n":1,"s":"a"}\n[1]\n{"n":3,"s":"a"}\n\xff\n{"n":5,"s":"a"}',
        ["3: not a JSON object", "5: not JSON"],
    ),
}


@pytest.mark.parametrize("name", BAD_IN_THE_MIDDLE)
@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 4, 50])
def test_bad_rows_in_the_middle_leave_the_good_ones(tmp_path: Path, name: str, chunk_rows: int):
    """Goal: the same rows are good, and the same lines told, however the file is cut."""
    data, why = BAD_IN_THE_MIDDLE[name]
    path = write(tmp_path / name, data)

    chunks = list(read(path, SCHEMA, bad_rows="skip", chunk_rows=chunk_rows))
    assert rows(chunks) == [{"n": n, "s": "a"} for n in (0, 1, 3, 5)]
    bad = [b for chunk in chunks for b in chunk.bad]
    assert [b.row for b in bad] == [2, 4]
    assert bad[0].why.startswith(f"line {why[0]}")
    assert bad[1].why.startswith(f"line {why[1]}")
    for chunk in chunks:
        if chunk.table.num_rows:
            assert chunk.table["n"][0].as_py() == chunk.first_row

    got, error = until_error(read(path, SCHEMA, chunk_rows=chunk_rows))
    assert rows(got) == [{"n": 0, "s": "a"}, {"n": 1, "s": "a"}]
    assert not any(chunk.bad for chunk in got)
    assert error.what.startswith(f"{path}: line {why[0]}")
    assert "--bad-rows skip" in error.hint


def test_a_bad_row_keeps_the_text_of_its_line(tmp_path: Path):
    path = write(tmp_path / "t.csv", "n,s\n\nx,hello\n" + "y" * 1000 + "\n")
    [chunk] = read(path, SCHEMA, bad_rows="skip")
    assert chunk.table.num_rows == 0
    assert chunk.bad[0] == BadRow(0, "line 3: column 'n': 'x' is not INT", "x,hello")
    assert chunk.bad[1].text == "y" * 500


def test_bad_bytes_in_plain_text_are_a_bad_row(tmp_path: Path):
    path = write(tmp_path / "t.txt", b"a\n\xff\nc\n")
    [chunk] = read(path, parse("line STRING"), bad_rows="skip")
    assert chunk.table["line"].to_pylist() == ["a", "c"]
    assert chunk.bad[0].why == "line 2: column 'line': b'\\xff' is not STRING"


def test_bad_values_in_parquet_are_named_by_row(tmp_path: Path):
    pq.write_table(pa.table({"n": ["0", "1", "x", "3"], "s": ["a"] * 4}), tmp_path / "t.parquet")
    [first, second] = read(tmp_path / "t.parquet", SCHEMA, bad_rows="skip", chunk_rows=2)
    assert (first.first_row, second.first_row) == (0, 3)
    assert second.table["n"].to_pylist() == [3]
    assert (second.bad[0].row, second.bad[0].why) == (2, "row 2: column 'n': 'x' is not INT")
    got, error = until_error(read(tmp_path / "t.parquet", SCHEMA))
    assert rows(got) == [{"n": 0, "s": "a"}, {"n": 1, "s": "a"}]
    assert "row 2: column 'n'" in error.what


@pytest.mark.parametrize("damage", ["cut", "crc"])
def test_a_damaged_gzip_gives_its_good_lines_first(tmp_path: Path, damage: str):
    lines = [f"{n},{json.dumps(str(n * 7919 % 10007))}\n" for n in range(20_000)]
    path = write(tmp_path / "t.csv.gz", "n,s\n" + "".join(lines))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if damage == "cut" else data[:-8] + bytes(8))

    chunks = list(read(path, SCHEMA, bad_rows="skip", chunk_rows=1000))
    good = [row["n"] for row in rows(chunks)]
    assert good == list(range(len(good)))
    assert len(good) == 20_000 if damage == "crc" else 5_000 < len(good) < 15_000
    [bad] = [b for chunk in chunks for b in chunk.bad]
    assert bad.row == len(good)
    assert bad.why.startswith(f"line {len(good) + 2}: the gzip file ")

    got, error = until_error(read(path, SCHEMA, chunk_rows=1000))
    assert [row["n"] for row in rows(got)] == good
    assert f"line {len(good) + 2}: the gzip file " in error.what


def test_a_file_that_is_no_gzip_or_no_parquet_is_told(tmp_path: Path):
    (tmp_path / "t.csv.gz").write_text("n,s\n1,a\n")
    with pytest.raises(RowError, match="the gzip file is damaged"):
        list(read(tmp_path / "t.csv.gz", SCHEMA))
    (tmp_path / "t.parquet").write_text("n,s\n1,a\n")
    with pytest.raises(RowError, match="not a whole Parquet file"):
        list(read(tmp_path / "t.parquet", SCHEMA, bad_rows="skip"))


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.parquet"])
@pytest.mark.parametrize("bad_rows", ["raise", "skip"])
def test_a_column_that_the_file_lacks_is_an_error_that_lists_its_columns(
    tmp_path: Path, name: str, bad_rows: str
):
    path = tmp_path / name
    if name == "t.parquet":
        pq.write_table(pa.table({"n": [1], "other": [1]}), path)
    else:
        text = {"t.csv": "n,other\n1,1\n", "t.tsv": "n\tother\n1\t1\n"}
        write(path, text.get(name, '{"n": 1, "other": 1}\n'))
    with pytest.raises(RowError, match="no column 's'") as raised:
        list(read(path, SCHEMA, bad_rows=bad_rows))  # type: ignore[arg-type]
    assert "n, other" in raised.value.hint


def test_a_wanted_column_that_is_there_twice_is_an_error_an_unwanted_one_is_not(tmp_path: Path):
    path = write(tmp_path / "t.csv", "n,x,s,x\n1,?,a,?\n")
    assert rows(list(read(path, SCHEMA))) == [{"n": 1, "s": "a"}]
    with pytest.raises(RowError, match="two columns 'x'"):
        list(read(path, parse("x STRING")))


def test_what_cannot_be_opened_is_told_at_once(tmp_path: Path):
    with pytest.raises(UnbrokenError, match="no such file"):
        read(tmp_path / "none.csv", SCHEMA)
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(UnbrokenError, match="this is a folder"):
        read(tmp_path / "d.csv", SCHEMA)
    for name in ("t.xls", "t", "t.parquet.gz", "gz"):
        with pytest.raises(UnbrokenError, match="unknown kind of file"):
            read(write(tmp_path / name, "x"), SCHEMA)
    with pytest.raises(RowError, match="the file is empty"):
        list(read(write(tmp_path / "t.csv", ""), SCHEMA))
    assert list(read(write(tmp_path / "t.jsonl", ""), SCHEMA)) == []


def test_long_lines_end_a_chunk_before_memory_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "BLOCK_BYTES_MAX", 100)
    path = write(tmp_path / "t.csv", "n,s\n" + "\n" * 300 + f"1,{'a' * 60}\n" * 4)
    chunks = list(read(path, SCHEMA))
    assert [(c.first_row, c.table.num_rows) for c in chunks] == [(0, 1), (1, 2), (3, 1)]


def test_under_a_wrong_schema_the_error_comes_at_the_first_row(tmp_path: Path):
    """Every row is bad; a reader that stops anyway must not search a whole block for them."""
    path = write(tmp_path / "t.csv", "n,s\n" + "x,y\n" * 50_000)
    got, error = until_error(read(path, SCHEMA))
    assert got == []
    assert "line 2: column 'n': 'x' is not INT" in error.what


_line = st.sampled_from(
    b'1,a|2,|x,a|3|4,a,b|5,"a|6,"a,"|7"7,"a||8,\xff|9,""|10,a\rb|"|11,a"b|\xff'.split(b"|")
)


@given(st.lists(_line, max_size=12), st.integers(1, 6))
def test_a_csv_line_is_judged_by_itself_whatever_stands_beside_it(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], chunk_rows: int
):
    """Goal: no quote, stray line end or ragged line changes what becomes of another line."""
    folder = tmp_path_factory.getbasetemp()

    def fates(block: list[bytes], chunk_rows: int) -> tuple[list[dict[str, object]], list[str]]:
        path = write(folder / "judged.csv", b"\n".join([b"n,s", *block, b""]))
        chunks = list(read(path, SCHEMA, bad_rows="skip", chunk_rows=chunk_rows))
        return rows(chunks), [b.text for chunk in chunks for b in chunk.bad]

    together, bad = fates(lines, chunk_rows)
    alone = [fates([line], 1) for line in lines]
    assert together == [row for good, _ in alone for row in good]
    assert bad == [text for _, texts in alone for text in texts]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not beside the project")
def test_the_network_trace_is_read_whole():
    schema = parse(
        "ts TIMESTAMP, uid STRING, orig_h STRING, orig_p INT, resp_h STRING, resp_p INT,"
        "service STRING"
    )
    chunks = list(read(SHARED / "net" / "wrccdc2018_events.csv.gz", schema))
    assert sum(chunk.table.num_rows for chunk in chunks) == 137_237
    assert [chunk.first_row for chunk in chunks] == [0, 50_000, 100_000]
    first = chunks[0].table.slice(0, 1).to_pylist()[0]
    assert first["ts"] == datetime(2018, 3, 24, 17, 15, 20, 600843, UTC)
    assert (first["orig_p"], first["service"]) == (49562, "weird")
