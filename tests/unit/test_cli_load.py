"""Loading a query from a user's file: the one query, or an error that names file and line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unbroken import demo
from unbroken.cli.load import load
from unbroken.errors import DefinitionError

QUERY = """
import unbroken as ub
query = ub.Query("shop", epoch="1s")
clicks = query.source("clicks", "ts TIMESTAMP, page STRING", event_time="ts")
query.sink(clicks)
"""


@pytest.fixture(autouse=True)
def _modules_and_path_stay_as_they_were() -> Iterator[None]:
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith(("unbroken", "pyspark", "py4j")):
            del sys.modules[name]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def told(path: Path) -> DefinitionError:
    with pytest.raises(DefinitionError) as raised:
        load(path)
    return raised.value


def test_the_query_is_found_and_its_file_is_a_module_of_its_own_name(tmp_path: Path):
    query = load(write(tmp_path / "my_shop.py", QUERY))
    assert query.name == "shop"
    assert query.where == "my_shop.py:3"
    assert "my_shop" in sys.modules


def test_a_file_may_import_its_neighbours(tmp_path: Path):
    write(tmp_path / "my_names.py", "NAME = 'shop'")
    text = "from my_names import NAME\n" + QUERY.replace('"shop"', "NAME")
    assert load(write(tmp_path / "neighbour.py", text)).name == "shop"


def test_the_variable_may_have_any_name_if_it_is_the_only_query(tmp_path: Path):
    text = QUERY.replace("query", "shop")
    assert load(write(tmp_path / "any_name.py", text + "\nsame = shop\n")).name == "shop"


def test_of_several_queries_the_one_called_query_is_meant(tmp_path: Path):
    text = QUERY + '\nother = ub.Query("other")\n'
    assert load(write(tmp_path / "preferred.py", text)).name == "shop"
    text = QUERY.replace("query", "shop") + '\nother = ub.Query("other")\n'
    error = told(write(tmp_path / "several.py", text))
    assert "2 queries: shop (several.py:3), other (several.py:7)" in error.what


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("empty.py", "", "empty.py: no query in this file"),
        ("broken.py", "x = 1\ny = = 2\n", "broken.py:2: SyntaxError"),
        ("missing.py", "import no_such_module_at_all\n", "missing.py:1: ModuleNotFoundError"),
        ("raising.py", "def f():\n    return 1 / 0\nf()\n", "raising.py:2: ZeroDivisionError"),
        ("leaving.py", "import sys\nsys.exit(3)\n", "leaving.py:2: SystemExit"),
        ("defined.py", "import unbroken as ub\nub.Query('a b')\n", "defined.py:2: 'a b'"),
        ("sinkless.py", QUERY.replace("query.sink(clicks)", ""), "sinkless.py:3: query 'shop'"),
        ("not-a-name.py", QUERY, "cannot be imported"),
        ("query.txt", QUERY, "cannot be imported"),
        ("json.py", QUERY, "a module called 'json' is loaded already"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(tmp_path: Path, name: str, text: str, what: str):
    error = told(write(tmp_path / name, text))
    assert what in error.what
    assert error.hint


def test_a_missing_file_and_a_directory_are_told(tmp_path: Path):
    assert "no such file" in told(tmp_path / "nowhere.py").what
    (tmp_path / "folder.py").mkdir()
    assert "a directory" in told(tmp_path / "folder.py").what


@pytest.mark.parametrize("name", ["intrusion", "wordcount"])
def test_the_examples_are_loaded_like_a_users_file(name: str):
    query = load(Path(demo.__file__).parent / "queries" / f"{name}.py")
    assert query.name == name
    assert query.where.startswith(f"{name}.py:")
