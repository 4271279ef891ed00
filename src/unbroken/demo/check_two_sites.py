"""The intrusion example at two sites, with its known answer: every alert of every epoch.

    trace ─┬─ to servers of the east ─▶ east        a brute force tries one server: one site sees it
           └─ to servers of the west ─▶ west        a scan tries all of them: each site sees half

`answer` computes what an undisturbed run says, epoch by epoch, in a plain loop.

>>> check = TwoSites(seed=3, seconds=20)
>>> east, west = (next(check.tables(site)) for site in SITES)
>>> east.num_rows + west.num_rows == ROWS_PER_S
True
>>> [table.num_rows for table in check.answer()][14:18]     # a scan begins in second 15
[0, 1, 1, 1]
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from unbroken.client.replay import Pace
from unbroken.demo.intrusion_trace import SERVERS, T0, WINDOW_S, trace

SITES = ("east", "west")
ROWS_PER_S = 400
#: As in `queries/two_sites.py`.
ATTEMPTS_MAX, PORTS_MAX = 120, 25
#: Every second pair of servers: then attackers, who take the servers in turn, reach both sites.
_EASTERN = pa.array([server for place, server in enumerate(SERVERS) if place // 2 % 2 == 0])
_ALERTS = pa.schema(
    [
        ("src", pa.string()),
        ("start", pa.timestamp("us", tz="UTC")),
        ("kind", pa.string()),
        ("score", pa.int64()),
    ]
)


class TwoSites:
    """Feeds `queries/two_sites.py` and knows what it has to say."""

    result = "alerts"
    pace = Pace(epoch_s=1.0, speed=1.0)

    def __init__(self, seed: int, seconds: int) -> None:
        self._seed, self._seconds = seed, seconds

    def tables(self, site: str) -> Iterator[pa.Table]:
        """The connections to the servers of one site, a table per second."""
        for table in trace(self._seed, self._seconds, ROWS_PER_S):
            eastern = pc.is_in(table["dst"], _EASTERN)
            yield table.filter(eastern if site == "east" else pc.invert(eastern))

    def answer(self) -> list[pa.Table]:
        """The alerts of every epoch, as an undisturbed run gives them."""
        did: dict[tuple[str, int], _Did] = {}
        found: list[list[tuple[str, datetime, str, int]]] = []
        for epoch, rows in enumerate(self._epochs()):
            found.append([])
            for key in sorted({_tell(did, row) for row in rows}):
                judged = did[key].judged()
                if judged is not None:
                    start = datetime.fromtimestamp(key[1], UTC)
                    found[epoch].append((key[0], start, *judged))
        return [_table(rows) for rows in found]

    def _epochs(self) -> Iterator[list[dict[str, object]]]:
        """The rows of both sites; an epoch begins when the first row of all was sent."""
        first: datetime | None = None
        number, rows = 0, list[dict[str, object]]()
        for table in trace(self._seed, self._seconds, ROWS_PER_S):
            for row in table.to_pylist():
                first = first or row["ts"]
                while row["ts"] >= first + timedelta(seconds=number + 1):
                    yield rows
                    number, rows = number + 1, []
                rows.append(row)
        yield rows


class _Did:
    """What one source did in one window."""

    def __init__(self) -> None:
        self.attempts = 0
        self.services: set[object] = set()
        self.ports: set[object] = set()

    def judged(self) -> tuple[str, int] | None:
        """Kind and score; None for no suspicion."""
        one_service = len(self.services) == 1 and len(self.ports) == 1
        if self.attempts > ATTEMPTS_MAX and one_service:
            return "brute force", self.attempts
        return ("scan", len(self.ports)) if len(self.ports) > PORTS_MAX else None


def _tell(did: dict[tuple[str, int], _Did], row: dict[str, object]) -> tuple[str, int]:
    when = row["ts"]
    assert isinstance(when, datetime)
    second = int(when.timestamp())
    key = str(row["src"]), second - (second - int(T0.timestamp())) % WINDOW_S
    known = did.setdefault(key, _Did())
    known.attempts += 1
    known.services.add(row["service"])
    known.ports.add(row["port"])
    return key


def _table(rows: list[tuple[str, datetime, str, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(_ALERTS)
    return pa.table([list(column) for column in columns], schema=_ALERTS)
