"""Loads the query out of a user's Python file.

The file is imported under its own name (`intrusion.py` as `intrusion`), with its folder on the
path, so that it can import its neighbours.  It must have one query at module level; if it has more,
the one in the variable `query` is meant.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from unbroken.errors import DefinitionError, UnbrokenError
from unbroken.query import Query


def load(path: Path | str) -> Query:
    """The query in the file, checked as far as it can be without Spark.

    >>> load("nowhere.py")                              # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    unbroken.errors.DefinitionError: nowhere.py: no such file
      → the path is relative to ...
    """
    path = Path(path)
    if not path.is_file():
        what = "this is a directory" if path.is_dir() else "no such file"
        raise DefinitionError(f"{path}: {what}", hint=f"the path is relative to {Path.cwd()}")
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise DefinitionError(
            f"{path}: this cannot be imported as a Python module",
            hint="name the file like my_query.py: letters, digits and _, ending in .py",
        )
    query = _find(path, vars(_module(path)))
    query.check()
    return query


def _module(path: Path) -> object:
    name = path.stem
    if name in sys.builtin_module_names or (
        name in sys.modules and getattr(sys.modules[name], "__file__", None) != str(path.absolute())
    ):
        raise DefinitionError(
            f"{path}: a module called {name!r} is loaded already",
            hint="give the file another name",
        )
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except UnbrokenError:
        sys.modules.pop(name, None)
        raise  # It names the line itself.
    except (Exception, SystemExit) as error:  # The user's file may raise anything.
        sys.modules.pop(name, None)
        raise DefinitionError(
            f"{_line(path, error)}: {type(error).__name__}: {error}",
            hint="correct the file; python FILE.py shows the whole traceback",
        ) from error
    return module


def _line(path: Path, error: BaseException) -> str:
    """`file:line` of the innermost line of the user's file."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path.absolute())
    ]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _find(path: Path, names: dict[str, object]) -> Query:
    preferred = names.get("query")
    if isinstance(preferred, Query):
        return preferred
    found = {id(value): (name, value) for name, value in names.items() if isinstance(value, Query)}
    if len(found) == 1:
        [(_, query)] = found.values()
        assert isinstance(query, Query)
        return query
    if not found:
        raise DefinitionError(
            f"{path}: no query in this file",
            hint='define one at module level: query = unbroken.Query("name", epoch="1s")',
        )
    where = ", ".join(f"{name} ({path.name}:{_number(q)})" for name, q in found.values())
    raise DefinitionError(
        f"{path}: {len(found)} queries: {where}",
        hint="call the one that is meant `query`, or put each into a file of its own",
    )


def _number(query: object) -> str:
    assert isinstance(query, Query)
    return query.where.rsplit(":", 1)[-1]
