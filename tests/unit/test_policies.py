"""Policies answer, and a wrong one is told at the line where it was written."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable

import pytest

import unbroken as ub
from unbroken.errors import DefinitionError
from unbroken.policies import Policy, Restart
from unbroken.policies.costs import Measured, failure_costs
from unbroken.policies.reach import epochs_kept, keeps
from unbroken.policies.traits import Operator, OperatorClass, Traits, weakest

ALL: list[Policy] = [Restart(), ub.Gap(), ub.Upstream(), ub.Passive(), ub.Active()]
WINDOWS = Traits(OperatorClass.CONVERGENT, Operator("aggregate"), True, (), 10.0, 5.0)


def given(policy: object) -> ub.Fragment:
    query = ub.Query("q")
    rows = query.source("rows", "k INT")
    return query.fragment(rows, policy=policy)(lambda rows: rows, name="made")


@pytest.mark.parametrize(
    ("policy", "copies", "survived"),
    [
        (Restart(), 1, {0: 0, 1: 0, 2: 0}),
        (ub.Gap(), 1, {0: 0, 1: 0, 2: 0}),
        (ub.Upstream(), 1, {0: 0, 1: 1, 2: 1}),
        (ub.Passive(), 2, {0: 0, 1: 0, 2: 1, 3: 1}),
        (ub.Active(), 2, {0: 0, 1: 0, 2: 1}),
        (ub.Active(replicas=4), 4, {0: 0, 1: 0, 3: 2, 4: 3}),
    ],
)
def test_how_many_nodes_it_needs_and_how_many_may_be_lost(
    policy: Policy, copies: int, survived: dict[int, int]
):
    """With fewer live copies than wanted, it survives less, never less than none."""
    assert policy.copies == copies
    assert {live: policy.survives(live) for live in survived} == survived
    assert policy.needs.startswith(f"{copies} node")


def test_policies_are_values():
    """They travel to nodes and are compared there; nobody changes them on the way."""
    assert ub.Active() == ub.Active(replicas=2) != ub.Active(replicas=3)
    assert len({*ALL, *ALL}) == len(ALL)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ub.Active().replicas = 3  # type: ignore[misc]


def test_every_policy_explains_itself_in_its_own_words():
    costs = [failure_costs(policy, 5, Measured()).text for policy in ALL]
    for said in ([p.text for p in ALL], [p.keeps for p in ALL], costs):
        assert all(said)
        assert len(set(said)) == len(said)


def test_what_a_failure_costs_is_a_sum_once_all_of_it_is_measured():
    """Method: each policy with nothing measured, and with numbers that add up in the head."""
    unknown, seen = Measured(), Measured(start_s=2.0, work_s=0.5, frozen_s=15.0)
    expected = {"active": 0.0, "passive": 0.3 + 4 * 0.5, "upstream": 2.1 + 4 * 0.5, "gap": 2.1}
    for policy in ALL:
        cost = failure_costs(policy, 4, seen)
        assert cost.seconds == pytest.approx(expected.get(policy.name)), policy
        if policy.name in ("passive", "upstream"):
            assert failure_costs(policy, 4, unknown).seconds is None
            assert failure_costs(policy, None, seen).seconds is None
            assert "of a frozen node 15 s" in cost.text
            assert "4 epochs × 0.5 s" in cost.text
    assert failure_costs(ub.Gap(), 1, unknown).seconds is None


WRONG: dict[str, tuple[Callable[[], object], str, str]] = {
    "one active copy": (
        lambda: ub.Active(replicas=1), "Active(replicas=1) is not a number", "from 2 to 16"),
    "too many copies": (
        lambda: ub.Active(replicas=17), "Active(replicas=17) is not a number", "from 2 to 16"),
    "half a copy": (lambda: ub.Active(replicas=2.5), "Active(replicas=2.5)", "whole number"),
    "copies as text": (lambda: ub.Active(replicas="2"), "Active(replicas='2')", "whole number"),
    "copies as yes": (lambda: ub.Active(replicas=True), "Active(replicas=True)", "whole number"),
    "an interval without a unit": (
        lambda: ub.Passive(interval="2"), "Passive(interval='2') is not a length", '"500ms"'),
    "an interval that is a number": (
        lambda: ub.Passive(interval=2), "Passive(interval=2) is not a length", '"2s"'),
    "no interval": (lambda: ub.Passive(interval="0s"), "Passive(interval='0s')", "10 ms to 24 h"),
    "an interval of days": (lambda: ub.Passive(interval="25h"), "'25h'", "10 ms to 24 h"),
    "the name of a policy": (lambda: given("active"), "'active' is not a policy", "ub.Active("),
    "a policy that was not made": (lambda: given(ub.Active), "is not a policy", "ub.Active("),
    "a number of copies": (lambda: given(2), "2 is not a policy", "ub.Passive("),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_policy_names_its_line_and_the_way_out(mistake: str):
    define, what, hint = WRONG[mistake]
    with pytest.raises(DefinitionError) as caught:
        define()
    assert caught.value.what.startswith("test_policies.py:")
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_the_line_is_where_the_policy_was_written():
    """Not a line of ours, and not the constructor that Python makes for a dataclass."""
    frame = inspect.currentframe()
    assert frame is not None
    with pytest.raises(DefinitionError) as caught:
        ub.Active(replicas=0)
    assert caught.value.what.startswith(f"test_policies.py:{frame.f_lineno - 1}: ")


def test_a_fragment_keeps_its_policy_and_has_one_without():
    assert given(ub.Passive(interval="1s")).policy == ub.Passive(interval="1s")
    assert given(None).policy == Restart()
    assert given(Restart()).policy == Restart()


@pytest.mark.parametrize("text", ["10ms", "24h", " 0.5 min "])
def test_intervals_are_written_like_epochs(text: str):
    assert ub.Passive(interval=text).interval_s == ub.Query("q", epoch=text).epoch_s


def test_the_weakest_operator_gives_its_class():
    classes = list(OperatorClass)
    for index, each in enumerate(classes):
        assert weakest(classes[: index + 1]) is each
        assert weakest(reversed(classes[: index + 1])) is each


@pytest.mark.parametrize("policy", [Restart(), ub.Gap(), ub.Active()])
def test_most_policies_ask_for_one_epoch(policy: Policy):
    """What they have processed they never ask for again, whatever is in their state."""
    assert epochs_kept(policy, WINDOWS, epoch_s=1, consumers=[40]) == 1
    assert epochs_kept(policy, WINDOWS, epoch_s=None) == 1


def test_passive_asks_for_one_interval():
    """Its own output is shipped too, so what its consumers ask for does not reach through."""
    assert epochs_kept(ub.Passive("2s"), WINDOWS, epoch_s=1, consumers=[40]) == 3
    assert epochs_kept(ub.Passive("300ms"), WINDOWS, epoch_s=0.1) == 4
    assert epochs_kept(ub.Passive("1s"), WINDOWS, epoch_s=60) == 2
    assert epochs_kept(ub.Passive("2s"), WINDOWS, epoch_s=None) is None


def test_needs_add_up_along_a_chain_of_upstream_fragments():
    """DESIGN: "Needs add up along a chain of upstream-backup fragments, and explain says so"."""
    last = epochs_kept(ub.Upstream(), WINDOWS, epoch_s=1)
    assert last == 18
    middle = epochs_kept(ub.Upstream(), WINDOWS, epoch_s=1, consumers=[last, 1])
    assert middle == 35
    stateless = Traits(delay_s=10.0)
    assert epochs_kept(ub.Upstream(), stateless, epoch_s=1, consumers=[middle]) == 36
    assert "about 35 epochs" in keeps(ub.Upstream(), WINDOWS, middle)
    assert "15 s of event time" in keeps(ub.Upstream(), WINDOWS, middle)


def test_what_cannot_be_told_in_epochs_is_told_in_event_time():
    """With epochs that producers close, a second is no number of epochs."""
    assert epochs_kept(ub.Upstream(), WINDOWS, epoch_s=None) is None
    assert epochs_kept(ub.Upstream(), WINDOWS, epoch_s=1, consumers=[None]) is None
    endless = dataclasses.replace(WINDOWS, history_s=None)
    assert epochs_kept(ub.Upstream(), endless, epoch_s=1) is None
    said = keeps(ub.Upstream(), WINDOWS, None)
    assert "15 s of event time" in said
    assert "about" not in said


def test_fewer_nodes_than_copies_is_a_warning_or_refused():
    query = ub.Query("q")
    rows = query.source("rows", "n INT")
    query.sink(query.fragment(rows, policy=ub.Active())(lambda rows: rows, name="copy"))
    for nodes, warned in ((1, 1), (2, 0)):
        with contextlib.closing(ub.LocalCluster(query, nodes=nodes)) as cluster:
            assert len(cluster.warnings) == warned
    with pytest.raises(DefinitionError, match="copy has 1 of 2 copies"):
        ub.LocalCluster(query, nodes=1, strict=True)
