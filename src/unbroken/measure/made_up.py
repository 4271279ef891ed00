"""Rows made up from the schemas of a query's sources, for those who have no file at hand.

    STRING   one of a few words      TIMESTAMP   when the row is due, or a little earlier
    INT      0 to 99, small ones more often      BOOLEAN, DOUBLE, DATE, ...   by chance

* A few values come often and many rarely, so that keys repeat and groups grow.
* Tick and seed decide all of it but the time: the same load every time.
* What has parts (arrays, structs, maps) is made of such values; what we do not know is null.

>>> import unbroken as ub
>>> query = ub.Query("shop", epoch="1s")
>>> sales = query.source("sales", "ts TIMESTAMP, item STRING, price INT", event_time="ts")
>>> query.sink(query.fragment(sales)(lambda sales: sales, name="copy"))
>>> rows = MadeUp(query, rate=30).tables(tick=0, due_s=5.0)["sales"]
>>> rows.num_rows, rows["item"][0].as_py()[:4], str(rows["ts"][0])[:17]
(3, 'item', '1970-01-01 00:00:')
"""

from __future__ import annotations

import decimal
import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from unbroken.measure.own import Own
from unbroken.measure.workload import TICK_S
from unbroken.policies import Policy
from unbroken.query import Query

#: How many values a column has, and how early a row's event time may be.
VALUES, EARLY_S_MAX = 100, 2.0


class MadeUp(Own):
    """`query` with rows by chance, `rate` per second in all."""

    def __init__(self, query: Query, rate: int, seed: int = 0) -> None:
        super().__init__(query, rate)
        self._seed = seed

    def text(self, policy: Policy | None) -> str:
        """The workload in words."""
        return f"{self._query.name} with rows by chance, {self._rate:,} rows/s"

    def tables(self, tick: int, due_s: float) -> Mapping[str, pa.Table]:
        """The rows of a tick, the same number for every source."""
        count = int(self._rate * (tick + 1) * TICK_S) - int(self._rate * tick * TICK_S)
        made = {}
        for i, (name, source) in enumerate(self._query.sources.items()):
            share = (count + i) // len(self._query.sources)
            chance = random.Random(f"{self._seed} {tick} {name}")
            columns = [
                pa.array([_value(chance, field, due_s) for _ in range(share)], field.type)
                for field in source.schema
            ]
            if share:
                made[name] = pa.table(columns, schema=source.schema)
        return made


def _value(chance: random.Random, field: pa.Field, due_s: float) -> Any:
    kind = field.type
    rank = int(VALUES ** chance.random()) - 1  # As often as its inverse: a few come all the time.
    if pa.types.is_string(kind):
        return f"{field.name}{rank}"
    if pa.types.is_integer(kind):
        return rank
    if pa.types.is_floating(kind):
        # Quarters add up without rounding, in any order.
        return rank / 4
    if pa.types.is_decimal(kind):
        return decimal.Decimal(rank % 10)
    if pa.types.is_boolean(kind):
        return rank % 2 == 0
    if pa.types.is_timestamp(kind):
        early = timedelta(seconds=due_s - EARLY_S_MAX * chance.random() ** 4)
        at = datetime(1970, 1, 1, tzinfo=UTC) + early
        return at if kind.tz else at.replace(tzinfo=None)
    if pa.types.is_date(kind):
        return date(2026, 1, 1) + timedelta(days=rank)
    if pa.types.is_binary(kind):
        return f"{field.name}{rank}".encode()
    return _nested(chance, kind, due_s)


def _nested(chance: random.Random, kind: pa.DataType, due_s: float) -> Any:
    if pa.types.is_list(kind):
        return [_value(chance, kind.value_field, due_s) for _ in range(chance.randrange(3))]
    if pa.types.is_struct(kind):
        return {field.name: _value(chance, field, due_s) for field in kind}
    if pa.types.is_map(kind):
        return [(_value(chance, kind.key_field, due_s), _value(chance, kind.item_field, due_s))]
    return None
