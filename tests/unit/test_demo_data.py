"""The demo data is what its docstrings promise: the same for a seed, and with known answers."""

import ast
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from unbroken import demo
from unbroken.demo import intrusion_trace, words_text
from unbroken.demo.intrusion_trace import T0, Attacker, attackers, trace
from unbroken.demo.words_text import VOCABULARY, lines

EXAMPLE = Path(demo.__file__).parent / "queries" / "intrusion.py"
SEEDS = [0, 1, 7, 2026]


def thresholds() -> dict[str, int]:
    """The constants of the example query, read without importing it (that would need Spark)."""
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(EXAMPLE.read_text()).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id.endswith("_MAX")
    }


def windows(seed: int, seconds: int, rows_per_s: int) -> pd.DataFrame:
    """Attempts, services and ports of each source in each aligned ten-second window."""
    table = pa.concat_tables(trace(seed, seconds, rows_per_s))
    start_s = pc.seconds_between(pa.scalar(T0, table["ts"].type), table["ts"]).to_numpy() // 10 * 10
    rows: pd.DataFrame = table.drop_columns(["ts"]).to_pandas().assign(start_s=start_s)
    return (
        rows.groupby(["src", "start_s"])
        .agg(attempts=("port", "size"), services=("service", "nunique"), ports=("port", "nunique"))
        .reset_index()
    )


def planted_windows(seed: int, seconds: int) -> set[tuple[str, int, str]]:
    return {
        (attacker.src, start_s, attacker.kind)
        for attacker in attackers(seed, seconds)
        for start_s in range(attacker.start_s // 10 * 10, min(attacker.end_s, seconds), 10)
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rows_per_s", [20, 400, 3000])
def test_the_example_query_finds_exactly_the_planted_attackers(seed: int, rows_per_s: int) -> None:
    """In every window: each active attacker, with its kind, and nobody else."""
    seen = windows(seed, 120, rows_per_s)
    attempts_max, ports_max = thresholds()["ATTEMPTS_MAX"], thresholds()["PORTS_MAX"]
    one_service = (seen.services == 1) & (seen.ports == 1)
    brute_forces = seen[(seen.attempts > attempts_max) & one_service].assign(kind="brute force")
    scans = seen[seen.ports > ports_max].assign(kind="scan")
    found = pd.concat([brute_forces, scans])[["src", "start_s", "kind"]]
    assert set(found.itertuples(index=False, name=None)) == planted_windows(seed, 120)
    assert len(found) == len(set(found.itertuples(index=False, name=None)))


@pytest.mark.parametrize("seed", SEEDS)
def test_attackers_are_clearly_above_the_thresholds_and_the_background_clearly_below(
    seed: int,
) -> None:
    seen = windows(seed, 120, 3000)
    planted = seen.src.isin([attacker.src for attacker in attackers(seed, 120)])
    background, attacks = seen[~planted], seen[planted]
    attempts_max, ports_max = thresholds()["ATTEMPTS_MAX"], thresholds()["PORTS_MAX"]
    assert background.attempts.max() < 0.85 * attempts_max
    assert background.ports.max() <= len(intrusion_trace.SERVICES) < 0.5 * ports_max
    assert attacks.attempts.min() > 1.5 * attempts_max
    assert attacks[attacks.ports > 1].ports.min() > 4 * ports_max


def test_the_background_is_heavy_tailed() -> None:
    """A tenth of the hosts makes more than a quarter of the connections; most are quiet."""
    background = windows(seed=3, seconds=10, rows_per_s=2000)
    per_host = np.sort(background.attempts.to_numpy())[::-1]
    assert per_host[: len(per_host) // 10].sum() > 0.25 * per_host.sum()
    assert np.median(per_host) < 0.75 * per_host.mean()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_window_that_an_attacker_touches_sees_at_least_five_seconds_of_it(seed: int) -> None:
    for attacker in attackers(seed, seconds=2000):
        assert attacker.start_s % 10 <= 5
        assert attacker.end_s % 10 == 0 or attacker.end_s % 10 >= 5
        assert 10 <= attacker.end_s - attacker.start_s <= 60


def test_a_table_is_one_second_in_time_order() -> None:
    for second, table in enumerate(trace(seed=5, seconds=15, rows_per_s=100)):
        assert table.schema == intrusion_trace.SCHEMA
        us = table["ts"].cast(pa.int64()).to_numpy() - int(T0.timestamp()) * 1_000_000
        assert (np.diff(us) >= 0).all()
        assert second * 1_000_000 <= us[0] <= us[-1] < (second + 1) * 1_000_000


def test_a_trace_follows_from_its_seed_and_a_longer_one_begins_with_a_shorter() -> None:
    short, again, long = (list(trace(9, seconds, 50)) for seconds in (40, 40, 70))
    assert short == again == long[:40]
    assert short != list(trace(10, 40, 50))


def test_more_background_leaves_the_attackers_rows_as_they_were() -> None:
    scanner = attackers(9)[0].src
    few, many = (
        pa.concat_tables(trace(9, 30, rows_per_s)).filter(pc.field("src") == scanner)
        for rows_per_s in (50, 500)
    )
    assert few.num_rows > 0
    assert few.combine_chunks() == many.combine_chunks()


def test_a_trace_without_background_is_the_attacks_alone() -> None:
    tables = list(trace(9, 60, rows_per_s=0))
    assert tables[0].num_rows == 0
    assert tables[0].schema == intrusion_trace.SCHEMA
    assert {src for table in tables for src in table["src"].to_pylist()} == {
        attacker.src for attacker in attackers(9, 60)
    }


def test_an_attacker_sends_its_rate_in_each_of_its_seconds_and_nothing_outside() -> None:
    attacker: Attacker = attackers(4)[1]
    for second, table in enumerate(trace(4, attacker.end_s + 3, 50)):
        rows = table.filter(pc.field("src") == attacker.src)
        active = attacker.start_s <= second < attacker.end_s
        assert rows.num_rows == (attacker.rows_per_s if active else 0)


def test_lines_are_numbered_and_made_of_the_vocabulary() -> None:
    text = pa.concat_tables(lines(seed=2, count=1500))
    assert text.schema == words_text.SCHEMA
    assert text["number"].to_pylist() == list(range(1500))
    for line in text["line"].to_pylist():
        assert re.fullmatch(r"[A-Z][a-z]+( [a-z]+){3,11}\.", line)
        assert set(re.findall("[a-z]+", line.lower())) <= set(VOCABULARY)
    assert len(set(VOCABULARY)) == len(VOCABULARY) == 2000


def test_words_follow_zipfs_law() -> None:
    """Ranks 1, 2 and 10 occur about in the proportion 1 : 1/2 : 1/10."""
    text = " ".join(
        line for table in lines(seed=2, count=20_000) for line in table["line"].to_pylist()
    )
    counted = Counter(re.findall("[a-z]+", text.lower()))
    top = counted[VOCABULARY[0]]
    assert counted[VOCABULARY[1]] / top == pytest.approx(1 / 2, rel=0.1)
    assert counted[VOCABULARY[9]] / top == pytest.approx(1 / 10, rel=0.15)


def test_text_follows_from_its_seed() -> None:
    assert list(lines(1, 2500)) == list(lines(1, 2500))
    assert list(lines(1, 2500)) != list(lines(2, 2500))
    assert list(lines(1, 0)) == []
