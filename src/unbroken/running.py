"""`run`: a whole query over given tables, for notebooks and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from unbroken.epochs import Epoch
from unbroken.errors import DefinitionError
from unbroken.local import LocalCluster
from unbroken.query import Query

#: A pyarrow Table or RecordBatch, or a list of dicts.
Rows = Any


def run(
    query: Query, tables: Mapping[str, Sequence[Rows]], nodes: int = 1, **options: Any
) -> dict[str, list[Epoch]]:
    """Feeds one table per epoch and source; gives, per sink, the epochs that came out.

    Sources with fewer tables than others get empty epochs at the end.  `options` go to
    `LocalCluster`.
    """
    unknown = sorted(set(tables) - set(query.sources))
    if unknown:
        raise DefinitionError(
            f"query {query.name!r} has no source {unknown[0]!r}",
            hint=f"its sources are: {', '.join(query.sources)}",
        )
    count = max((len(given) for given in tables.values()), default=0)
    with LocalCluster(query, nodes, manual=True, **options) as cluster:
        results = {
            name: cluster.follow(name, consumer="run", tentative=False) for name in query.sinks
        }
        producers = {name: cluster.producer(name) for name in query.sources}
        for number in range(count):
            for name, producer in producers.items():
                given = tables.get(name, [])
                if number < len(given):
                    producer.send(given[number])
                producer.close_epoch()
        try:
            return {name: list(islice(epochs, count)) for name, epochs in results.items()}
        finally:
            for epochs in results.values():
                epochs.close()
