"""Every cell of class x policy: what is seen after a failure, what is refused and warned of."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import unbroken as ub
from unbroken.cli.explain import protect
from unbroken.errors import DefinitionError
from unbroken.policies import Policy, Restart
from unbroken.policies.guarantee import (
    Guarantee,
    Recovery,
    along,
    check,
    guarantee,
    holds_output,
    refusal,
    warnings,
)
from unbroken.policies.traits import Endless, Operator, OperatorClass, Traits

POLICIES: dict[str, Policy] = {
    "restart": Restart(),
    "active": ub.Active(),
    "passive": ub.Passive(),
    "upstream": ub.Upstream(),
    "gap": ub.Gap(),
}
#: What consumers of ours see / what a plain one would see, by class.
CELLS = {
    ("repeatable", "restart"): "precise/repeating",
    ("repeatable", "active"): "precise/repeating",
    ("repeatable", "passive"): "precise/repeating",
    ("repeatable", "upstream"): "precise/repeating",
    ("repeatable", "gap"): "gap/gap",
    ("convergent-capable", "restart"): "precise/repeating",
    ("convergent-capable", "active"): "precise/repeating",
    ("convergent-capable", "passive"): "precise/repeating",
    ("convergent-capable", "upstream"): "precise/convergent",
    ("convergent-capable", "gap"): "gap/gap",
    ("deterministic", "restart"): "precise/repeating",
    ("deterministic", "active"): "precise/repeating",
    ("deterministic", "passive"): "precise/repeating",
    ("deterministic", "upstream"): "refused",
    ("deterministic", "gap"): "gap/gap",
    ("arbitrary", "restart"): "divergent/divergent",
    ("arbitrary", "active"): "refused",
    ("arbitrary", "passive"): "precise/repeating",
    ("arbitrary", "upstream"): "refused",
    ("arbitrary", "gap"): "gap/gap",
}
COUNT = Operator("aggregate by k", "shop.py:8")
RAND = Operator("rand()", "shop.py:9")
NEVER = Endless(COUNT, "nothing is ever removed", "add a watermark")
LIKE = {
    "repeatable": Traits(),
    "convergent-capable": Traits(OperatorClass.CONVERGENT, COUNT, True, (), 10.0, 5.0),
    "deterministic": Traits(OperatorClass.DETERMINISTIC, COUNT, True, (NEVER,), 0.0, None),
    "arbitrary": Traits(OperatorClass.ARBITRARY, RAND),
}


def test_the_table_is_whole():
    assert set(CELLS) == {(c.value, p) for c in OperatorClass for p in POLICIES}


@pytest.mark.parametrize(("operators", "policy"), CELLS)
def test_what_a_class_gives_under_a_policy(operators: str, policy: str):
    """A cell is refused for the table and for the check alike, or for neither."""
    made = guarantee(POLICIES[policy], OperatorClass(operators))
    said = f"{made.merging.value}/{made.plain.value}" if made else "refused"
    assert said == CELLS[operators, policy]
    assert bool(refusal(POLICIES[policy], LIKE[operators])) == (said == "refused")


def refused(policy: Policy, traits: Traits) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        check("made", "shop.py:1", policy, traits)
    return caught.value


def test_unbounded_state_cannot_be_computed_again_from_kept_epochs():
    """The operator, its line, why, and what to add."""
    error = refused(ub.Upstream(), LIKE["deterministic"])
    assert error.what == (
        "shop.py:8: fragment 'made' cannot be upstream: aggregate by k cannot be computed again "
        "from kept epochs: nothing is ever removed"
    )
    assert error.hint == "add a watermark, or protect it with Passive() or Active()"


def test_bounded_state_of_any_age_cannot_either():
    """Timers are convergent-capable, but no number of kept epochs is enough for all."""
    timers = Endless(COUNT, "a timer may never fire", "use windows", bounded=True)
    traits = Traits(OperatorClass.CONVERGENT, COUNT, True, (timers,), 10.0, None)
    assert "a timer may never fire" in refused(ub.Upstream(), traits).what
    assert traits.unbounded == ()
    assert refusal(ub.Passive(), traits) is None


def test_state_that_tells_how_old_it_is_can_and_is_warned_of():
    """Session windows: what is kept follows the oldest of them."""
    sessions = Endless(COUNT, "a session may never close", "use windows", True, readable=True)
    traits = Traits(OperatorClass.CONVERGENT, COUNT, True, (sessions,), 10.0, None)
    assert refusal(ub.Upstream(), traits) is None
    assert "never falls quiet" in warnings(ub.Upstream(), traits)[0]
    assert warnings(ub.Passive(), traits) == ()
    both = replace(traits, endless=(sessions, NEVER))
    assert "nothing is ever removed" in refused(ub.Upstream(), both).what


@pytest.mark.parametrize("policy", [ub.Active(), ub.Upstream()])
def test_arbitrary_state_is_sent_in_front(policy: Policy):
    """Scenario 6: "suggest a stateless arbitrary fragment in front"."""
    error = refused(policy, Traits(OperatorClass.ARBITRARY, RAND, stateful=True))
    assert error.what.startswith(f"shop.py:9: fragment 'made' cannot be {policy.name}: rand()")
    assert "put rand() into a stateless fragment of its own in front" in error.hint
    assert f"this one may stay {policy.name}" in error.hint


@pytest.mark.parametrize("policy", [ub.Active(), ub.Upstream()])
def test_arbitrary_and_stateless_needs_one_writer(policy: Policy):
    """Scenario 6: two copies of rand() differ; nothing is gained by a fragment in front."""
    error = refused(policy, LIKE["arbitrary"])
    assert error.hint == "protect it with Passive(), which has one writer"


def test_without_a_line_of_its_own_the_fragments_line_is_named():
    error = refused(ub.Active(), Traits(OperatorClass.ARBITRARY, Operator("rand()")))
    assert error.what.startswith("shop.py:1: ")


def test_arbitrary_fragments_are_warned_of_and_no_others():
    for operators, traits in LIKE.items():
        for policy in POLICIES.values():
            warned = warnings(policy, traits)
            assert bool(warned) == (operators == "arbitrary")
            if warned:
                assert warned[0].startswith("rand() (shop.py:9): ")
    assert "up to 3s later" in warnings(ub.Passive("3s"), LIKE["arbitrary"])[1]
    assert "the fragment stops" in warnings(Restart(), LIKE["arbitrary"])[1]


def test_only_what_cannot_be_computed_again_is_held_back():
    """Releasing late costs delay, so nobody else pays for it."""
    held = {
        (each.value, name)
        for each in OperatorClass
        for name, policy in POLICIES.items()
        if holds_output(policy, each)
    }
    assert held == {("arbitrary", "passive")}


def test_the_weakest_on_the_way_counts_for_each_consumer_apart():
    strong = Guarantee(Recovery.PRECISE, Recovery.REPEATING)
    odd = Guarantee(Recovery.PRECISE, Recovery.CONVERGENT)
    assert along([strong, odd, strong]) == odd
    lossy = Guarantee(Recovery.GAP, Recovery.GAP)
    assert along([lossy, strong]) == lossy
    assert along([]) == Guarantee(Recovery.PRECISE, Recovery.PRECISE)


def protected(**policies: Policy) -> dict[str, dict[str, object]]:
    """left ─▶ middle ─▶ last, and right ─▶ last; all have windows."""
    query = ub.Query("q", epoch="1s")
    rows = query.source("rows", "k INT")
    for name, inputs in {
        "left": [rows], "middle": ["left"], "right": [rows], "last": ["middle", "right"]
    }.items():  # fmt: skip
        query.fragment(*inputs, policy=policies.get(name))(lambda *frames: frames[0], name=name)
    query.sink("last")
    plan = SimpleNamespace(traits=LIKE["convergent-capable"])
    return protect(query, dict.fromkeys(query.fragments, plan))  # type: ignore[arg-type]


def test_a_gap_on_one_way_is_a_gap_at_the_end_and_not_beside_it():
    made = protected(left=ub.Gap(), middle=ub.Active(), right=ub.Active(), last=ub.Active(3))
    assert {name: each["merging"] for name, each in made.items()} == {
        "left": "gap", "middle": "gap", "right": "precise", "last": "gap",
    }  # fmt: skip
    assert {name: each["survives"] for name, each in made.items()} == {
        "left": 0, "middle": 1, "right": 1, "last": 2,
    }  # fmt: skip


def test_explain_adds_up_what_producers_keep_from_the_end_of_the_chain():
    up = ub.Upstream()
    made = protected(left=up, middle=up, right=ub.Passive("5s"), last=up)
    assert {name: each["keeps_epochs"] for name, each in made.items()} == {
        "left": 67, "middle": 50, "right": 6, "last": 33,
    }  # fmt: skip
    assert made["left"]["plain"] == "convergent"


def test_upstream_backup_behind_a_gap_is_refused():
    """What it would be rebuilt from is gone with the gap fragment, also two streams further."""
    up = ub.Upstream()
    with pytest.raises(DefinitionError, match="'last' cannot be upstream: it is behind 'left'"):
        protected(left=ub.Gap(), middle=ub.Active(), right=up, last=up)
    with pytest.raises(DefinitionError, match="'middle' cannot be upstream"):
        protected(left=ub.Gap(), middle=up, right=up, last=ub.Active())
    assert protected(left=ub.Gap(), middle=ub.Active(), right=up, last=ub.Passive())


def test_no_policy_behind_a_gap_is_warned_of():
    made = protected(left=ub.Gap(), middle=ub.Active(), right=ub.Active())
    behind = {name: [t for t in each["warnings"] if "behind" in t] for name, each in made.items()}  # type: ignore[attr-defined]
    assert {name for name, told in behind.items() if told} == {"last"}
    assert "'left', whose policy is gap" in behind["last"][0]
