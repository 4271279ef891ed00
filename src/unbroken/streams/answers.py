"""What a replica's door says of a stream: its headers, an epoch, the rows of a copy that differs.

    follower ─ headers from 7 ─▶ door ─▶ [header 7, header 8]        by `headers`
             ─ epoch 7 ───────▶ door ─▶ header and rows              by `epoch`

* An answer that cannot be read is the fault of whoever gave it, and says whose: a cluster whose
  processes run two versions.  It is never taken for one that did not come.
* None is an answer too: there is no news yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from unbroken.epochs import Epoch, Header
from unbroken.errors import DivergenceError, UnbrokenError
from unbroken.streams.differing import sample
from unbroken.streams.flight import Peer

BODY_S_MAX = 30.0


def headers(peer: Peer, replica: str, command: dict[str, Any]) -> list[Header]:
    """The headers that `replica` answers with."""
    answer = peer.act(command)
    with _reading(replica, command["stream"]):
        return [Header.from_json(text) for text in answer]


def epoch(peer: Peer, replica: str, number: int, asks: Mapping[str, Any]) -> Epoch | None:
    """One epoch of `replica`, header and rows; None if it has not come yet."""
    table = peer.get({"do": "epoch", "number": number, **asks}, timeout_s=BODY_S_MAX)
    with _reading(replica, asks["stream"]):
        return None if table is None else Epoch.from_stamped(table)


@contextlib.contextmanager
def _reading(replica: str, stream: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise UnbrokenError(
            f"what {replica} says of {stream!r} cannot be read: {error}",
            hint="all processes of a cluster must run one version of Unbroken",
        ) from error


def with_sample(
    error: DivergenceError, diverged: tuple[int, str, str] | None,
    body: Callable[[str, int], Epoch | None],
) -> DivergenceError:  # fmt: skip
    """The same, with some of the rows that differ, if both copies can still be had.

    >>> import pyarrow as pa
    >>> copies = {"r1": Epoch.of("a", 7, pa.table({"n": [1]}))}
    >>> copies["r2"] = Epoch.of("a", 7, pa.table({"n": [2]}))
    >>> found = DivergenceError("a: epoch 7 differs")
    >>> with_sample(found, (7, "r1", "r2"), lambda replica, number: copies[replica]).what
    "a: epoch 7 differs; only at r1: {'n': 1}; only at r2: {'n': 2}"
    >>> with_sample(found, (7, "r1", "r3"), lambda replica, number: copies[replica]) is found
    True
    """
    if diverged is None:
        return error
    number, *replicas = diverged
    copies = []
    for replica in replicas:
        with contextlib.suppress(UnbrokenError, KeyError):
            copies.append(body(replica, number))
    if len(copies) < 2 or copies[0] is None or copies[1] is None:
        return error
    shown = sample(replicas[0], copies[0].table, replicas[1], copies[1].table)
    return DivergenceError(f"{error.what}; {shown}", hint=error.hint)
