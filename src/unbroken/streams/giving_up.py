"""What a full source does: it pushes back, or gives up the oldest epochs that somebody still lacks.

    log    412 413 414 ······ 497 498 499 │ limit
           gap gap gap                      a tenth of the limit is free again
           ▲ who was cut off takes these; who has 412 already keeps what it has

* *wait*: senders wait, and are told who holds the log.  Nothing is lost; the sources stand still.
* *give up*: the newest rows are worth more than the oldest.  Senders wait once, for as long as one
  send may: whoever lags behind another copy of itself is removed meanwhile, and repaired.  Then the
  oldest epochs become gaps, number by number, each with the rows that it cost.  Until somebody who
  lagged has got on, nobody waits again.
* Fragments behind such sources do the same (`node.room`).
* A gap of a source stands for itself: it is not counted up in the headers that follow, because
  these are whole for everybody who was not cut off.  Whoever takes it counts it (`is_given_up`).
* The newest epoch stays: its header says where a source goes on that is started again.

This module only decides.  It does no I/O and reads no clock.

>>> sizes = {412: 40, 413: 0, 414: 40, 415: 40}
>>> too_old(sizes, held=120, limit=100)          # an empty epoch frees nothing, and stays
[412]
>>> too_old(sizes, held=120, limit=50)
[412, 414]
"""

from __future__ import annotations

from collections.abc import Mapping

from unbroken.epochs import GAP, Header

WAIT, GIVE_UP = WHEN_FULL = ("wait", "give_up")
#: So much of the limit is free again after something was given up.
FREE_PART = 0.1


def too_old(sizes: Mapping[int, int], *, held: int, limit: int) -> list[int]:
    """The epochs to give up, oldest first; `sizes` are the bytes of each that is in the log.

    `held` are all bytes that count, also those of the open epoch.
    """
    found: list[int] = []
    wanted = held - limit * (1.0 - FREE_PART)
    for number in sorted(sizes)[:-1]:
        if wanted <= 0:
            break
        if sizes[number]:
            found.append(number)
            wanted -= sizes[number]
    return found


def gap_fields(header: Header) -> dict[str, int]:
    """What the gap says that takes the place of the epoch of `header`.

    >>> gap_fields(Header("clicks", 412, rows=30))["lost"]
    30
    """
    lost = header.rows + header.lost
    return {
        "lost": lost, "gaps_total": header.gaps_total + 1,
        "lost_total": header.lost_total + header.rows, "gaps_here": 1, "lost_here": lost,
    }  # fmt: skip


def is_given_up(header: Header) -> bool:
    """Whether a full log has given it up: nobody but its consumer counts that.

    >>> gap = Header("clicks", 412, GAP, **gap_fields(Header("clicks", 412, rows=30)))
    >>> is_given_up(gap), is_given_up(Header("counts", 412, GAP, fingerprint="made by code"))
    (True, False)
    """
    return header.kind == GAP and not header.fingerprint


def consumed(before: tuple[int, int], inputs: list[Header]) -> tuple[int, int]:
    """Epochs and rows that a fragment has lost, after it has taken these `inputs`.

    >>> gap = Header("clicks", 412, GAP, **gap_fields(Header("clicks", 412, rows=30)))
    >>> consumed((2, 5), [gap, Header("orders", 412, rows=3)])
    (3, 35)
    """
    gaps = [header for header in inputs if is_given_up(header)]
    return before[0] + len(gaps), before[1] + sum(header.lost for header in gaps)
