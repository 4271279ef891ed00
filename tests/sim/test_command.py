"""What `unbroken sim` prints: a violation as people need it, and which lives its options choose."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

import unbroken as ub
from unbroken.cli import sim as command
from unbroken.cli.main import main, parser
from unbroken.policies.traits import Traits
from unbroken.testing import Life, own_life, random_life
from unbroken.testing.life import GROUPS
from unbroken.testing.variants import VARIANTS

BROKEN = "trims at processed instead of needed"
AGAIN = "To see it again: unbroken "


@pytest.fixture(autouse=True)
def _signals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbroken.cli.main._end_on_sigterm", lambda: None)


def faults_of(life: str) -> list[str]:
    """The faults in the text of a life."""
    return re.findall(r"^  +\d+\.\d+ s: (.*)", life, re.MULTILINE)


def test_a_violation_is_told_with_its_smallest_life_and_can_be_seen_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this order: what was found, the smallest life, its story, the command."""
    options = ["--policy", "upstream", "--faults", "crash", "--epochs", "100"]
    assert main(["sim", "--variant", BROKEN, "--from", "1", *options]) == 1
    told = capsys.readouterr().out
    found, shrunk, rest = re.split(r"\n\n(?=The smallest)|\n\n(?=seed )", told, maxsplit=2)
    seed, _, what = found.removeprefix("seed ").partition(": ")
    assert what.startswith("invariant 3 (no producer trims what an expected consumer may")
    assert shrunk.startswith("The smallest life found that breaks it: invariant 3 (no producer")
    life, story, last = rest.split("\n\n")
    at_first = random_life(int(seed), faults=["crash"], policies=["upstream"], epochs=100)
    assert 1 <= len(faults_of(life)) < len(at_first.faults)
    lines = story.splitlines()
    for fault in faults_of(life):
        told_so = rf" +\d+\.\d+ s +fault +{re.escape(fault)}"
        assert any(re.fullmatch(told_so, line) for line in lines)
    assert any(re.search(r"control +\w: node-\d rebuilds what node-\d held", x) for x in lines)
    assert any("checker   VIOLATION of invariant 3" in line for line in lines)

    assert last.startswith(AGAIN)
    again = shlex.split(last.removeprefix(AGAIN))
    given = parser().parse_args(again)
    assert (given.seeds, given.first, given.variant) == (1, int(seed), BROKEN)
    assert main(again) == 1
    assert capsys.readouterr().out == told


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_printed_to_see_it_again_is_what_was_asked(variant: str) -> None:
    """Whatever is in the names."""
    asked = ["sim", "my shop's.py", "--variant", variant, "--faults", "crash,cut", "--cuts"]
    given = parser().parse_args([*asked, "--policy", "gap", "--epochs", "70"])
    again = parser().parse_args(shlex.split(command._again(given, 12))[1:])
    assert vars(again) == {**vars(given), "seeds": 1, "first": 12}


def lives(monkeypatch: pytest.MonkeyPatch, *options: str) -> list[int]:
    """The seeds that are lived under these options, five a minute."""
    seeds: list[int] = []

    def no_time(life: Life) -> Any:
        seeds.append(life.seed)
        return type("Good", (), dict.fromkeys(("epochs", "failures", "restarts"), 0) | {
            "violation": None, "reached": {}})  # fmt: skip

    monkeypatch.setattr(command, "_live", no_time)
    monkeypatch.setattr(command.time, "monotonic", lambda: 12.0 * len(seeds))
    assert main(["sim", *options]) == 0
    return seeds


def test_as_many_lives_as_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand; or for so long, however many that are; or what ends first of both."""
    assert lives(monkeypatch) == list(range(1000))
    assert len(lives(monkeypatch, "--minutes", "250")) == 1251
    assert lives(monkeypatch, "--minutes", "10", "--from", "5000", "--seeds", "7") == [
        *range(5000, 5007)
    ]
    assert len(lives(monkeypatch, "--minutes", "2", "--seeds", "100")) == 11


@pytest.mark.parametrize("option", [
    ("--minutes", "0"), ("--minutes", "nan"), ("--minutes", "-1"), ("--epochs", "0"),
    ("--epochs", "-5"), ("--from", "-1"), ("--seeds", "0"), ("--faults", ""), ("--policy", ""),
])  # fmt: skip
def test_numbers_and_words_without_a_meaning_are_refused(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["sim", *option])
    except SystemExit as ended:  # Of argparse.
        code = ended.code
    assert code == 2
    assert option[0] in capsys.readouterr().err


def test_who_breaks_off_is_told_what_was_lived_until_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Progress is told meanwhile, beside the result."""
    live = command._live

    def tired(life: Life) -> Any:
        if life.seed == 5:
            raise KeyboardInterrupt
        return live(life)

    monkeypatch.setattr(command, "_live", tired)
    monkeypatch.setattr(command, "SAY_S", 0.0)
    assert main(["sim", "--epochs", "20", "--from", "3"]) == 130
    told = capsys.readouterr()
    assert told.out.startswith("2 simulated clusters (seeds 3 to 4): ")
    assert [line.split(" ", 1)[1][:7] for line in told.err.splitlines()[:2]] == [
        "1 lives", "2 lives",
    ]  # fmt: skip


def test_options_that_would_be_ignored_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--faults", "crash"), ("--policy", "gap")):
        assert main(["sim", "--cuts", option, value]) == 2
        assert "--cuts have faults and policies of their own" in capsys.readouterr().err


@pytest.mark.parametrize("group", GROUPS)
def test_lives_have_the_faults_that_were_asked_for(group: str) -> None:
    """Also of a query with a delay bound, half of whose lives are about cuts."""
    query = ub.Query("shop")
    relays = [query.fragment(query.source(f"s{i}", "n INT"))(min, name=f"r{i}") for i in (1, 2)]
    query.sink(query.fragment(*relays, max_delay="2s")(min, name="both"))
    traits = {name: Traits() for name in ("r1", "r2", "both")}
    made = [own_life(query, traits, seed, faults=[group]) for seed in range(20)]
    made += [random_life(seed, faults=[group]) for seed in range(20)]
    assert all(life.faults for life in made)
    assert {fault.what for life in made for fault in life.faults} == set(GROUPS[group])
