"""Refusing: what came from another process and cannot be used is refused in a sentence.

    answer ─▶ with refusing("its manifest cannot be read"): … ─▶ used, or UnbrokenError

Nothing from outside is believed: an answer of another shape is not a mistake of ours, and must
neither end this process nor be taken for an outage.

>>> with refusing("its size cannot be read"):
...     int({"size": "many"}["size"])
Traceback (most recent call last):
...
unbroken.errors.UnbrokenError: shipment refused: its size cannot be read: invalid literal for \
int() with base 10: 'many'
  → all processes of a cluster must run one version of Unbroken; take from another replica
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from unbroken.errors import UnbrokenError


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """What goes wrong inside because of an answer's shape is told as `what`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise refused(f"{what}: {error}") from error


def refused(why: str) -> UnbrokenError:
    """The error to raise.

    >>> refused("3 layers are missing").what
    'shipment refused: 3 layers are missing'
    """
    return UnbrokenError(
        f"shipment refused: {why}",
        hint="all processes of a cluster must run one version of Unbroken; "
        "take from another replica",
    )


def valid(table: pa.Table | None) -> pa.Table:
    """A table that came, checked; for use inside `refusing`.

    >>> valid(pa.table({"n": [1]})).num_rows
    1
    """
    if table is None:
        raise ValueError("nothing came")
    table.validate(full=True)  # Broken offsets would end this process.
    return table
