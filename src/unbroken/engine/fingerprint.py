"""The fingerprint of a fragment: names its code and settings (scenario 26).

    code of the function, and of what it calls in the user's module   (not lines, names of files,
    the analyzed plan without expression ids                           docstrings or comments)
    schemas of the inputs, output mode
    settings that rows depend on, versions of Spark and Python
                             └─▶ 128 bits, equal in every process that runs the same thing

Constants of the user's module show in the plan; bodies of Python functions do not, so these are
followed from the fragment's function through the names that it uses.
"""

from __future__ import annotations

import hashlib
import inspect
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from unbroken import schemas
from unbroken.query import Fragment

#: Settings on which the content of epochs depends.
SETTINGS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.multipleWatermarkPolicy",
    "spark.sql.streaming.noDataMicroBatches.enabled",
)
_CHANGING = re.compile(
    r"#\d+L?|[0-9a-f]{8}-[0-9a-f-]{27}|@[0-9a-f]+\b|0x[0-9a-f]+"
    # The seeds that Spark draws for rand, randn, uuid, shuffle, uniform and randstr.
    r"|(?<=\brand\()-?\d+|(?<=\brandn\()-?\d+|Some\(-?\d+\)|(?<=, )-?\d{10,}(?=\)|, true\))"
)


def fingerprint(
    spark: SparkSession,
    fragment: Fragment,
    inputs: Mapping[str, pa.Schema],
    operators: Iterable[str],
) -> str:
    """Equal for equal code and settings, whichever process computes it."""
    version = f"{pyspark.__version__} {platform.python_version_tuple()[:2]}"
    parts = [version, fragment.name, fragment.output_mode]
    parts += [f"{key}={spark.conf.get(key)}" for key in SETTINGS]
    parts += [f"{name}: {schemas.to_ddl(inputs[name])}" for name in fragment.inputs]
    parts += list(operators)
    parts += list(code_of(fragment.function))
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def tidy(text: str) -> str:
    """Without what changes from run to run: expression ids, uuids, addresses of objects, seeds.

    >>> tidy("~Filter (k#7 > 1)"), tidy("Project [k#7, rand(-51) AS r#9, uuid(Some(7)) AS id#10]")
    ('Filter (k > 1)', 'Project [k, rand() AS r, uuid() AS id]')
    """
    return _CHANGING.sub("", text).strip().removeprefix("~")


def code_of(thing: Any, seen: set[int] | None = None) -> Iterator[str]:
    """The code behind a function or class, and behind what it names in its own module.

    >>> def f(x): return g(x)
    >>> list(code_of(lambda x: x + 1)) == list(code_of(lambda x: x + 2))
    False
    """
    seen = set() if seen is None else seen
    thing = getattr(thing, "func", thing)  # A UDF keeps its function there.
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if inspect.isclass(thing):
        for name, member in sorted(vars(thing).items()):
            if inspect.isfunction(member):
                yield name
                yield from code_of(member, seen)
        return
    if not inspect.isfunction(thing):
        return
    yield from _text(thing.__code__)
    yield tidy(repr(thing.__defaults__))
    for cell in thing.__closure__ or ():
        yield from code_of(cell.cell_contents, seen)
    for name in sorted(_names(thing.__code__)):
        named = thing.__globals__.get(name)
        if getattr(getattr(named, "func", named), "__module__", None) == thing.__module__:
            yield from code_of(named, seen)


def _text(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    # The first constant of a function is its docstring: it changes nothing.
    for position, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType):
            yield from _text(constant)
        elif position or not isinstance(constant, str):
            yield repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant)


def _names(code: CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return set(code.co_names).union(*(_names(c) for c in inner))
