"""A query that somebody has written, under simulated faults: its own graph and policies."""

from __future__ import annotations

from typing import Any

import pytest

import unbroken as ub
from unbroken.cli.main import main
from unbroken.errors import DefinitionError
from unbroken.policies.traits import Endless, Operator, OperatorClass, Traits
from unbroken.testing import (
    CRASH,
    CUT,
    Fault,
    Life,
    Piece,
    own_life,
    pieces_of,
    simulate,
    variant,
)

BOUNDED = Traits(OperatorClass.CONVERGENT, stateful=True, delay_s=1.0, history_s=10.0)
ENDLESS = Traits(OperatorClass.DETERMINISTIC, stateful=True, history_s=None)


def first(*inputs: Any) -> Any:
    return inputs[0]


def shop() -> ub.Query:
    """Three shops, whose sales are put together under a bound; names with a dash in them."""
    query = ub.Query("shop", epoch="1s")
    for name in ("north-shop", "south-shop", "web"):
        query.source(name, "item STRING")
    sold = query.fragment(
        "north-shop", "south-shop", "web", policy=ub.Active(replicas=3), max_delay="3s"
    )(first, name="sold-items")
    totals = query.fragment(sold, policy=ub.Passive(interval="300ms"))(first, name="totals")
    query.sink(totals)
    query.sink(sold)
    return query


TRAITS = {"sold-items": BOUNDED, "totals": ENDLESS}


def test_pieces_are_as_the_query_says() -> None:
    assert [piece.text for piece in pieces_of(shop(), TRAITS)] == [
        "sold-items = union(north-shop, south-shop, web), active, 3 copies, within 3 s (process)",
        "totals = count(sold-items), passive, shipped every 300ms",
    ]


def test_every_class_has_an_operator_of_it() -> None:
    sessions = Endless(Operator("sessions"), "", "", bounded=True, readable=True)
    cases = [
        (Traits(), 3, None, "map"),
        (BOUNDED, 1, ub.Upstream(), "window"),
        (Traits(OperatorClass.CONVERGENT, endless=(sessions,)), 1, ub.Upstream(), "session"),
        (Traits(OperatorClass.CONVERGENT, Operator("join of streams on k")), 2, None, "join"),
        (Traits(OperatorClass.CONVERGENT, Operator("aggregate by k")), 2, None, "union"),
        (Traits(OperatorClass.CONVERGENT, Operator("join of streams on k")), 3, None, "union"),
        (ENDLESS, 2, None, "count"),
        (Traits(OperatorClass.ARBITRARY), 1, ub.Passive(), "draw"),
        (Traits(OperatorClass.ARBITRARY), 1, ub.Gap(), "count"),
        (Traits(OperatorClass.ARBITRARY), 1, None, "count"),
    ]
    for traits, inputs, policy, operator in cases:
        query = ub.Query("q")
        names = [f"s{i}" for i in range(inputs)]
        for name in names:
            query.source(name, "n INT")
        query.sink(query.fragment(*names, policy=policy)(first, name="a"))
        assert pieces_of(query, {"a": traits})[0].operator == operator


def test_its_lives_hold() -> None:
    kinds = set()
    for seed in range(12):
        life = own_life(shop(), TRAITS, seed, epochs=100)
        assert life == own_life(shop(), TRAITS, seed, epochs=100)
        kinds |= {fault.what for fault in life.faults}
        result = simulate(life)
        assert result.violation is None, f"seed {seed}: {result.violation}"
    assert {CRASH, CUT} <= kinds


def test_its_lives_find_a_broken_protocol() -> None:
    """Otherwise twelve good ones would prove nothing about this graph."""
    with variant("a restart that is no fork"):
        results = (simulate(own_life(shop(), TRAITS, seed)) for seed in range(12))
        assert any(result.violation is not None for result in results)


def test_a_query_whose_sinks_are_sources_has_nothing_to_simulate() -> None:
    query = ub.Query("q")
    query.sink(query.source("clicks", "n INT"))
    query.fragment("clicks")(first, name="copy")
    with pytest.raises(DefinitionError, match="no sink of query 'q' is a fragment's"):
        own_life(query, {"copy": Traits()}, 1)


def test_what_converges_is_taken_over() -> None:
    query = ub.Query("q")
    clicks = query.source("clicks", "n INT")
    joined = query.fragment(clicks, max_delay="3s", when_healed="converge")(first, name="joined")
    query.sink(joined)
    (piece,) = own_life(query, {"joined": BOUNDED}, 1).pieces
    assert piece.text == "joined = window(clicks), restart, within 3 s (process, converge)"


def test_what_converges_behind_a_gap_is_refused() -> None:
    """The checkers know no line with two kinds of gaps."""
    query = ub.Query("q")
    clicks = query.source("clicks", "n INT")
    copy = query.fragment(clicks, policy=ub.Gap())(first, name="copy")
    joined = query.fragment(copy, max_delay="3s", when_healed="converge")(first, name="joined")
    query.sink(joined)
    with pytest.raises(
        DefinitionError, match="'joined' has when_healed=\"converge\" behind 'copy'"
    ):
        own_life(query, {"copy": Traits(), "joined": BOUNDED}, 1)


def test_what_is_misspelt_is_said() -> None:
    with pytest.raises(DefinitionError, match="a fault is 'krash'"):
        Fault(3.0, "krash", "node-1")
    with pytest.raises(DefinitionError, match="the operator of 'a' is 'sum'"):
        Piece("a", "sum", ("s1",), "passive")
    with pytest.raises(DefinitionError, match="the protection of 'a' is 'none'"):
        Piece("a", "count", ("s1",), "none")
    cut = Fault(3.0, CUT, "node-1", 1.0, "node-7")
    life = Life(1, 3, ("s1",), (Piece("a", "count", ("s1",), "passive"),), 40, (cut,), ("a",))
    with pytest.raises(DefinitionError, match="cut 'node-7' at 3 s: there is nobody"):
        simulate(life)


def test_a_file_says_itself_what_is_protected_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "shop.py", "--policy", "gap"]) != 0
    assert "shop.py says itself what is protected how" in capsys.readouterr().err
