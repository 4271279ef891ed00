"""Network connections, with attackers planted in them.

    window      0 s        10 s       20 s       30 s       40 s       50 s
    background  ··:··.:·:···::··.··:··:··.··:·:···:··.·:··:···:··:·.··:··   up to 5 rows/s per host
    scan                      ████████████████████████                      40 to 80 rows/s
    brute force                                    ████████████████████     40 to 80 rows/s

* *Background* hosts call a few well-known services.  Their rates are heavy-tailed (Pareto), but
  capped, so that even the busiest host makes about 50 connections in ten seconds.  Rates are the
  quantiles of the distribution and not draws from it: no unlucky seed has a busier host.
* A *scan* walks from port to port over all servers; a *brute force* hammers at one service of one
  server.  A row is in an attack or in the background, never in both: attackers do nothing else.
* An attacker is active for at least five seconds of every aligned ten-second window that it
  touches: so 200 connections or more, against the 120 that `queries/intrusion.py` tolerates.
  (A trace that is cut inside a window may cut the attack too.)

So one knows what a detector has to find: `attackers` says it.

>>> first, second, *_ = attackers(seed=7)
>>> first.kind, second.kind
('scan', 'brute force')
>>> tables = list(trace(seed=7, seconds=20, rows_per_s=100))
>>> tables[0].num_rows, tables[19].num_rows == 100 + first.rows_per_s
(100, True)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

T0 = datetime(2026, 1, 1, tzinfo=UTC)
"""Event time of second 0 of every trace."""

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("src", pa.string()),
        ("dst", pa.string()),
        ("port", pa.int32()),
        ("service", pa.string()),
    ]
)

WINDOW_S = 10
ATTACK_EVERY_S = 20

# The cap is relative to the quietest host.  Together with the exponent it gives the busiest one
# about five times the mean rate, which is one row per second.
PARETO_EXPONENT = 1.2
PARETO_CAP = 16.0
HOSTS_MIN = 50

SERVERS = [f"192.168.0.{n}" for n in range(1, 65)]
SERVICES = {"https": 443, "dns": 53, "http": 80, "ssh": 22, "smtp": 25, "imap": 143, "ldap": 389}
BACKGROUND_SHARES = [0.45, 0.25, 0.15, 0.05, 0.04, 0.03, 0.03]
BRUTE_FORCED = ["ssh", "imap", "ldap"]
SCANNED_PORTS = 1024

# Each use of randomness has its own branch of the seed, so that a longer trace, or one with more
# background, leaves the attackers and their rows as they were.
_HOSTS, _ATTACKER, _BACKGROUND, _ATTACK = range(4)

# The service of every port below 1024.
_SERVICE_OF_PORT = np.full(SCANNED_PORTS, "unknown", dtype=object)
_SERVICE_OF_PORT[list(SERVICES.values())] = list(SERVICES)

Kind = Literal["scan", "brute force"]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Strings = npt.NDArray[Any]


@dataclass(frozen=True)
class Attacker:
    """A planted source: active in the seconds start_s <= s < end_s of the trace.

    >>> Attacker("203.0.113.1", "scan", start_s=12, end_s=38, rows_per_s=60).start_s
    12
    """

    src: str
    kind: Kind
    start_s: int
    end_s: int
    rows_per_s: int


@dataclass(frozen=True)
class _Rows:
    """Some rows of one second, column by column; `us` counts from the start of that second."""

    us: Ints
    src: Strings
    dst: Strings
    port: Ints


def attackers(seed: int, seconds: int = 300) -> list[Attacker]:
    """The attackers that start within the first `seconds`, in order of their start.

    One starts about every 20 seconds, scans and brute forces in turn, and stays for 10 to 60.

    >>> [a.kind for a in attackers(seed=1, seconds=60)]
    ['scan', 'brute force', 'scan']
    >>> attackers(seed=1)[:3] == attackers(seed=1, seconds=60)
    True
    """
    slots = range(WINDOW_S, seconds, ATTACK_EVERY_S)
    planted = (_attacker(seed, number, slot_s) for number, slot_s in enumerate(slots))
    return [attacker for attacker in planted if attacker.start_s < seconds]


def trace(seed: int, seconds: int, rows_per_s: int) -> Iterator[pa.Table]:
    """One table of `SCHEMA` per second of event time, its rows in time order.

    There are `rows_per_s` background rows in every second, from as many hosts (at least 50); the
    rows of the attackers come on top.

    >>> [second.num_rows for second in trace(seed=1, seconds=3, rows_per_s=500)]
    [500, 500, 500]
    >>> table = next(trace(seed=1, seconds=1, rows_per_s=500))
    >>> table.column_names
    ['ts', 'src', 'dst', 'port', 'service']
    >>> T0 <= table["ts"][0].as_py() <= table["ts"][499].as_py()
    True
    """
    hosts = _host_names(max(rows_per_s, HOSTS_MIN))
    shares = _host_shares(seed, len(hosts))
    planted = list(enumerate(attackers(seed, seconds)))
    for second in range(seconds):
        rows = [_background(seed, second, rows_per_s, hosts, shares)]
        rows += [
            _attack(seed, second, number, attacker)
            for number, attacker in planted
            if attacker.start_s <= second < attacker.end_s
        ]
        yield _table(second, rows)


def _attacker(seed: int, number: int, slot_s: int) -> Attacker:
    rng = np.random.default_rng([seed, _ATTACKER, number])
    # Starts in the first half of a window and ends in the second half of a later one: no window
    # sees less than five seconds of the attack.
    start_s = slot_s + int(rng.integers(0, 6))
    end_s = slot_s + WINDOW_S * int(rng.integers(1, 6)) + int(rng.integers(5, 11))
    return Attacker(
        src=f"203.0.113.{number % 254 + 1}",
        kind="brute force" if number % 2 else "scan",
        start_s=start_s,
        end_s=end_s,
        rows_per_s=int(rng.integers(40, 81)),
    )


def _host_names(count: int) -> Strings:
    return np.array([f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(count)], dtype=object)


def _host_shares(seed: int, count: int) -> Floats:
    """Cumulative shares of the traffic by host; the seed says which host is a busy one."""
    quantiles = (np.arange(count) + 0.5) / count
    rates = np.minimum((1 - quantiles) ** (-1 / PARETO_EXPONENT), PARETO_CAP)
    rates = np.random.default_rng([seed, _HOSTS]).permutation(rates)
    return _cumulative(rates)


def _cumulative(weights: Floats) -> Floats:
    sums = np.cumsum(weights)
    return np.asarray(sums / sums[-1])


def _background(seed: int, second: int, count: int, hosts: Strings, shares: Floats) -> _Rows:
    rng = np.random.default_rng([seed, _BACKGROUND, second])
    ports = np.array(list(SERVICES.values()))
    return _Rows(
        us=rng.integers(0, 1_000_000, count),
        src=hosts[np.searchsorted(shares, rng.random(count), side="right")],
        dst=np.array(SERVERS, dtype=object)[rng.integers(0, len(SERVERS), count)],
        port=rng.choice(ports, count, p=BACKGROUND_SHARES),
    )


def _attack(seed: int, second: int, number: int, attacker: Attacker) -> _Rows:
    count = attacker.rows_per_s
    rng = np.random.default_rng([seed, _ATTACK, number, second])
    us = np.sort(rng.integers(0, 1_000_000, count))
    src = np.full(count, attacker.src, dtype=object)
    servers = np.array(SERVERS, dtype=object)
    if attacker.kind == "scan":
        tried_before = (second - attacker.start_s) * count
        port = 1 + (tried_before + np.arange(count)) % (SCANNED_PORTS - 1)
        return _Rows(us, src, servers[rng.integers(0, len(SERVERS), count)], port)
    victim = servers[number % len(SERVERS)]
    target = SERVICES[BRUTE_FORCED[number // 2 % len(BRUTE_FORCED)]]
    return _Rows(us, src, np.full(count, victim, dtype=object), np.full(count, target))


def _table(second: int, parts: list[_Rows]) -> pa.Table:
    us = np.concatenate([rows.us for rows in parts])
    # Stable, so that rows of the same microsecond have one order on every machine.
    order = np.argsort(us, kind="stable")
    port = np.concatenate([rows.port for rows in parts])[order]
    start_us = (int(T0.timestamp()) + second) * 1_000_000
    columns = [
        pa.array(start_us + us[order]).cast(SCHEMA.field("ts").type),
        pa.array(np.concatenate([rows.src for rows in parts])[order], pa.string()),
        pa.array(np.concatenate([rows.dst for rows in parts])[order], pa.string()),
        pa.array(port.astype(np.int32)),
        pa.array(_SERVICE_OF_PORT[port], pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
