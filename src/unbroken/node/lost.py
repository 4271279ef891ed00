"""What is lost with a hole: the rows that its epochs had on the inputs, and the gaps that say so.

    input    … 50 (3 rows)  51 (0)  52 (7)        headers are enough, also of what was trimmed since
    gaps       50: lost 3   51: 0   52: 7         and, of all up to there: 3, 3, 10

* Every gap says what it cost, and all that was lost up to it: on the inputs, and here, in earlier
  holes too.  Consumers that take one epoch after the other hear of all of it in this way, however
  often copies of them were lost meanwhile (`epochs.lost_since`).
* An input of which nothing is known any more counts as none.  If more was counted before, by one
  who began to do the same and died, that stays: consumers may have heard of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from unbroken.engine.plan import Plan
from unbroken.epochs import Epoch, Header
from unbroken.errors import Unreachable
from unbroken.node.book import BookReader

#: How long to wait for an epoch that is part of the hole; whoever waits cannot be told anything.
QUIET_S_MAX = 10.0
LOOK_S = 0.05


class Lost:
    """The inputs of the epochs of one hole, as far as they are known."""

    def __init__(self, known: Mapping[int, Mapping[str, Header | None]]) -> None:
        """By epoch, in order, none skipped: what is known of every input."""
        self._known = known

    @classmethod
    def asked(cls, inputs: Sequence[str], book: BookReader, numbers: range) -> Lost:
        """What the producers know of these epochs."""
        return cls({
            number: {stream: _header(stream, book, number) for stream in inputs}
            for number in numbers
        })  # fmt: skip

    @property
    def rows(self) -> int:
        """All rows that are known to be lost."""
        return sum(self._rows(number) for number in self._known)

    def _rows(self, number: int) -> int:
        return sum(header.rows for header in self._known[number].values() if header is not None)

    def epochs(
        self, stream: str, plan: Plan, before: tuple[int, int], *, at_least: int
    ) -> list[Epoch]:  # fmt: skip
        """The gaps of `stream`; `before` are the epochs and rows that it gave up in other holes."""
        gaps, rows = before[0], before[1] + max(0, at_least - self.rows)
        made: list[Epoch] = []
        totals: dict[str, tuple[int, int]] = {}
        for number in self._known:
            known = [header for header in self._known[number].values() if header is not None]
            # What lies between two that are known is at least what the earlier one says.
            totals |= {header.stream: (header.gaps_total, header.lost_total) for header in known}
            gaps, rows = gaps + 1, rows + self._rows(number)
            cost = sum(header.rows + header.lost for header in known)
            losses = {
                "gaps_total": gaps + sum(total[0] for total in totals.values()),
                "lost_total": rows + sum(total[1] for total in totals.values()),
                "gaps_here": gaps, "lost_here": rows,
            }  # fmt: skip
            told: dict[str, Any] = {
                "fingerprint": plan.fingerprint,
                "sealed_us": time.time_ns() // 1000,
            }
            made.append(Epoch.gap(stream, number, plan.schema, lost=cost, **losses, **told))
        return made


def _header(stream: str, book: BookReader, number: int) -> Header | None:
    """What `stream` had in an epoch; one that has not come yet is waited for."""
    deadline_s = time.monotonic() + QUIET_S_MAX
    while book.ask(stream, {"do": "extent"})["next"] <= number:
        if time.monotonic() > deadline_s:
            raise Unreachable(
                f"epoch {number} of {stream!r} has not come yet",
                hint="asked again: the hole is on record, and stays the same",
            )
        time.sleep(LOOK_S)
    told = book.ask(stream, {"do": "header", "number": number})
    return None if told is None else Header.from_json(told)
