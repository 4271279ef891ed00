"""How fast files are replayed, and who cuts the epochs: decided from query and options.

--speed 10            epochs pass in wall time; rows are sent when they are due
--speed max           epochs are cut by event time, one after the other
--rows-per-epoch N    epochs are cut by row numbers, one after the other
neither               max if every file has an event time, else 10,000 rows per epoch; real time
                      if a source waits for rows from elsewhere
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from unbroken.client.replay import Pace, Trace
from unbroken.errors import DefinitionError
from unbroken.query import Query

ROWS_PER_EPOCH = 10_000


def choose(
    query: Query, traces: Sequence[Trace], *, speed: str | None, rows_per_epoch: int | None
) -> Pace:
    """The pace that the options ask for, or why it cannot be.

    >>> query = Query("q"); clicks = query.source("clicks", "page STRING")
    >>> choose(query, [], speed=None, rows_per_epoch=None).clock
    True
    """
    named = {trace.source.name for trace in traces}
    waiting = [name for name in query.sources if name not in named]
    factor = _factor(speed)
    if waiting and (factor == math.inf or rows_per_epoch) and traces:
        raise DefinitionError(
            f"source {waiting[0]!r} has no file, so its rows come in real time",
            hint=f"give it one, --source {waiting[0]}=FILE, or replay by the clock: --speed 1",
        )
    if query.epoch_s is None and not rows_per_epoch:
        if waiting and not traces:
            return Pace(rows=ROWS_PER_EPOCH)  # Producers close the epochs.
        raise DefinitionError(
            f"{query.where}: the epochs of query {query.name!r} have no length",
            hint='replay by rows, --rows-per-epoch 10000, or write Query(..., epoch="1s")',
        )
    if rows_per_epoch:
        return Pace(rows=rows_per_epoch)
    if factor is None:
        if waiting:
            factor = 1.0
        elif any(trace.source.event_time is None for trace in traces):
            return Pace(rows=ROWS_PER_EPOCH)
        else:
            factor = math.inf
    # Rows that come from elsewhere come by the clock, and then it cuts the epochs of all sources.
    pace = Pace(
        epoch_s=None if waiting else query.epoch_s, speed=None if factor == math.inf else factor
    )
    for trace in traces:
        pace.cut(trace.source, 0)  # Raises where a source has no event time.
    return pace


def _factor(speed: str | None) -> float | None:
    if speed is None:
        return None
    if speed == "max":
        return math.inf
    try:
        factor = float(speed)
    except ValueError:
        factor = 0.0
    if not 0 < factor <= 1e6:
        raise DefinitionError(f"--speed {speed}", hint="a factor like 1, 10 or 0.5, or max")
    return factor
