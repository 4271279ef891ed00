"""What every definition of a user needs: the line of his file, and lengths of time as text.

>>> seconds("500ms"), seconds("2min"), seconds("soon")
(0.5, 120.0, None)
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)\s*")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

_OURS = str(Path(__file__).resolve().parent / "_")[:-1]
#: Queries that come with Unbroken and are read like a user's own.
_EXAMPLES = str(Path(__file__).resolve().parent / "demo" / "queries")


def seconds(text: object) -> float | None:
    """A length of time in seconds, or None if it is not written like "1s" or "500ms".

    >>> seconds("0.5h"), seconds(5)
    (1800.0, None)
    """
    found = _LENGTH.fullmatch(text) if isinstance(text, str) else None
    return float(found[1]) * _UNITS[found[2]] if found else None


def line_of_user() -> str:
    """`file:line` of the first frame outside this package.

    >>> line_of_user().startswith("<doctest")
    True
    """
    frame = inspect.currentframe()
    while frame is not None and (
        (
            frame.f_code.co_filename.startswith(_OURS)
            and not frame.f_code.co_filename.startswith(_EXAMPLES)
            and "doctest" not in frame.f_code.co_filename
        )
        # The constructor of a dataclass is made from a string.
        or (frame.f_code.co_name == "__init__" and frame.f_code.co_filename == "<string>")
    ):
        frame = frame.f_back
    if frame is None:
        return "?"
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
