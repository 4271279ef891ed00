"""What consumers may see after a failure: from the policy and the class of the operators.

    plain      repeatable  convergent-capable  deterministic  arbitrary
    restart    repeating   repeating           repeating      divergent
    active     repeating   repeating           repeating      refused
    passive    repeating   repeating           repeating      repeating (held back until shipped)
    upstream   repeating   convergent          refused        refused
    gap        gap         gap                 gap            gap

* *Plain* is a consumer that takes what comes.  Ours *merges*: it takes each epoch once, by number,
  so repeated epochs are never seen.  For it all of the above is precise, except that a gap stays
  a gap, and that an arbitrary fragment without a policy may draw an epoch again.
* Upstream replays from empty state; consumers of ours see none of it before the state is
  complete again, so what a plain consumer would see converge is precise for them.
* Refused is what would break "an epoch has one content" (scenario 6): two copies of `rand()`
  differ, and so does one that is computed again after its output was seen.
* The weakest fragment on the way from the sources counts.

>>> guarantee(Upstream(), OperatorClass.CONVERGENT)
Guarantee(merging=<Recovery.PRECISE: 'precise'>, plain=<Recovery.CONVERGENT: 'convergent'>)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from unbroken.errors import DefinitionError
from unbroken.policies.active import Active
from unbroken.policies.gap import Gap
from unbroken.policies.passive import Passive
from unbroken.policies.policy import Policy, Restart
from unbroken.policies.traits import OperatorClass, Traits
from unbroken.policies.upstream import Upstream


class Recovery(Enum):
    """What is seen after a failure, from the strongest to the weakest.

    >>> Recovery("gap").rank > Recovery.PRECISE.rank
    True
    """

    PRECISE = "precise"
    REPEATING = "repeating"
    CONVERGENT = "convergent"
    DIVERGENT = "divergent"
    GAP = "gap"

    @property
    def rank(self) -> int:
        """0 for the strongest."""
        return list(Recovery).index(self)

    @property
    def meaning(self) -> str:
        """The word in a sentence.

        >>> Recovery.REPEATING.meaning
        'nothing is lost; some epochs come twice, with the same rows'
        """
        return _MEANING[self]


_MEANING = {
    Recovery.PRECISE: "as if nothing had failed",
    Recovery.REPEATING: "nothing is lost; some epochs come twice, with the same rows",
    Recovery.CONVERGENT: "nothing is lost; some epochs come twice, with other rows at first",
    Recovery.DIVERGENT: "epochs that come again have other rows, and so may all that follow",
    Recovery.GAP: "epochs are missing, and the numbers that are missing are told",
}


@dataclass(frozen=True)
class Guarantee:
    """What a consumer of ours sees after a failure, and what a plain one would see.

    >>> Guarantee(Recovery.PRECISE, Recovery.REPEATING).plain.value
    'repeating'
    """

    merging: Recovery
    plain: Recovery


_P, _R, _C = Recovery.PRECISE, Recovery.REPEATING, Recovery.CONVERGENT
_D, _G = Recovery.DIVERGENT, Recovery.GAP
#: (merging, plain) for each class, in the order of the classes; None is refused.
_TABLE: dict[type[Policy], tuple[tuple[Recovery, Recovery] | None, ...]] = {
    Restart: ((_P, _R), (_P, _R), (_P, _R), (_D, _D)),
    Active: ((_P, _R), (_P, _R), (_P, _R), None),
    Passive: ((_P, _R), (_P, _R), (_P, _R), (_P, _R)),
    Upstream: ((_P, _R), (_P, _C), None, None),
    Gap: ((_G, _G), (_G, _G), (_G, _G), (_G, _G)),
}


def guarantee(policy: Policy, operator_class: OperatorClass) -> Guarantee | None:
    """What a fragment of this class gives under this policy; None if it is refused.

    >>> guarantee(Passive(), OperatorClass.DETERMINISTIC).merging.value
    'precise'
    >>> guarantee(Active(), OperatorClass.ARBITRARY) is None
    True
    """
    cell = _TABLE[type(policy)][operator_class.rank]
    return Guarantee(*cell) if cell else None


def along(way: Iterable[Guarantee]) -> Guarantee:
    """What is seen at the end of a way: the weakest on it counts, for either consumer.

    Sources lose and repeat nothing, so a way without fragments is precise.

    >>> one = guarantee(Gap(), OperatorClass.REPEATABLE)
    >>> along([one, guarantee(Active(), OperatorClass.REPEATABLE)]).merging.value
    'gap'
    """
    passed = list(way)
    return Guarantee(
        max((each.merging for each in passed), key=lambda r: r.rank, default=Recovery.PRECISE),
        max((each.plain for each in passed), key=lambda r: r.rank, default=Recovery.PRECISE),
    )


def holds_output(policy: Policy, operator_class: OperatorClass) -> bool:
    """Whether an epoch is released only when the backup has confirmed its output and layers.

    What was not released may be computed again with other rows, because nobody saw it.

    >>> holds_output(Passive(), OperatorClass.ARBITRARY)
    True
    >>> holds_output(Passive(), OperatorClass.DETERMINISTIC)
    False
    """
    return isinstance(policy, Passive) and operator_class is OperatorClass.ARBITRARY


@dataclass(frozen=True)
class Refusal:
    """Why a policy cannot protect a fragment, the line that decides it, and the way out.

    >>> Refusal("two copies would differ", "", "use Passive").way_out
    'use Passive'
    """

    why: str
    where: str
    way_out: str


def refusal(policy: Policy, traits: Traits) -> Refusal | None:
    """What is wrong with this policy for such a fragment, if anything.

    >>> refusal(Active(), Traits(OperatorClass.ARBITRARY)).way_out
    'protect it with Passive(), which has one writer'
    """
    if traits.operator_class is OperatorClass.ARBITRARY and isinstance(policy, Active | Upstream):
        return _arbitrary(policy, traits)
    hidden = [each for each in traits.endless if not each.readable]
    if isinstance(policy, Upstream) and hidden:
        endless = hidden[0]
        return Refusal(
            f"{endless.operator.name} cannot be computed again from kept epochs: {endless.why}",
            endless.operator.where,
            f"{endless.way_out}, or protect it with Passive() or Active()",
        )
    return None


def _arbitrary(policy: Policy, traits: Traits) -> Refusal:
    decider = traits.decided_by
    if isinstance(policy, Active):
        why = f"{decider.name} answers differently in each copy, so the copies would differ"
    else:
        why = f"{decider.name} answers differently when an epoch is computed again"
    passive = "protect it with Passive(), which has one writer"
    if not traits.stateful:
        return Refusal(why, decider.where, passive)
    return Refusal(
        f"{why}, and the state with them",
        decider.where,
        f"put {decider.name} into a stateless fragment of its own in front, protected with "
        f"Passive(), and this one may stay {policy.name}; or {passive}",
    )


def check(name: str, where: str, policy: Policy, traits: Traits) -> None:
    """Refuses what cannot be: an error that starts with the line of the user's file.

    >>> from unbroken.policies.traits import Operator
    >>> noise = Traits(OperatorClass.ARBITRARY, Operator("uuid()"))
    >>> check("ids", "shop.py:7", Upstream(), noise)
    Traceback (most recent call last):
    ...
    unbroken.errors.DefinitionError: shop.py:7: fragment 'ids' cannot be upstream: uuid() answers \
differently when an epoch is computed again
      → protect it with Passive(), which has one writer
    """
    wrong = refusal(policy, traits)
    if wrong:
        raise DefinitionError(
            f"{wrong.where or where}: fragment {name!r} cannot be {policy.name}: {wrong.why}",
            hint=wrong.way_out,
        )


def check_converges(name: str, where: str, traits: Traits) -> None:
    """Refuses to give up epochs of a fragment that would never come right by itself.

    >>> from unbroken.policies.traits import Operator
    >>> endless = Traits(OperatorClass.DETERMINISTIC, Operator("groupBy(k)", "shop.py:9"))
    >>> check_converges("totals", "shop.py:7", endless)
    Traceback (most recent call last):
    ...
    unbroken.errors.DefinitionError: shop.py:9: fragment 'totals' cannot converge: groupBy(k) \
keeps for ever what it has missed
      → bound its state with a watermark and windows, or take when_healed="correct"
    """
    if traits.operator_class.rank <= OperatorClass.CONVERGENT.rank:
        return
    decider = traits.decided_by
    why = "keeps for ever what it has missed"
    if traits.operator_class is OperatorClass.ARBITRARY:
        why = "gives other rows every time"
    raise DefinitionError(
        f"{decider.where or where}: fragment {name!r} cannot converge: {decider.name} {why}",
        hint='bound its state with a watermark and windows, or take when_healed="correct"',
    )


def warnings(policy: Policy, traits: Traits) -> tuple[str, ...]:
    """What the user should know although it is allowed.

    >>> warnings(Restart(), Traits())
    ()
    """
    if traits.operator_class is not OperatorClass.ARBITRARY:
        return _restless(traits) if isinstance(policy, Upstream) else ()
    differs = f"{traits.decided_by}: two runs over the same epochs give other rows"
    if isinstance(policy, Passive):
        held = f"an epoch is released only when the backup has it, up to {policy.interval} later"
        return (differs, held)
    if isinstance(policy, Restart):
        drawn = (
            "an epoch that was written but not committed before a crash is computed again; if its "
            "rows are others, that is an error and the fragment stops: Passive() prevents it"
        )
        return (differs, drawn)
    return (differs,)


class Protected(Protocol):
    """A fragment of a query, or of a simulated one: what it reads, and how it is protected."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The streams that it reads."""

    @property
    def policy(self) -> Policy:
        """How it is protected."""


def gaps_before(fragments: Iterable[Protected]) -> dict[str, set[str]]:
    """For each of these, in the order of the data, those before it whose policy is gap.

    >>> gaps_before([])
    {}
    """
    found: dict[str, set[str]] = {}
    under: set[str] = set()
    for fragment in fragments:
        made_of = [name for name in fragment.inputs if name in found]
        found[fragment.name] = under.intersection(made_of).union(*(found[n] for n in made_of))
        under |= {fragment.name} if isinstance(fragment.policy, Gap) else set()
    return found


def check_way(fragment: Protected, where: str, gaps: Collection[str]) -> None:
    """Refuses what its place in the graph forbids; `gaps` are those before it that are under gap.

    What an upstream backup is rebuilt from lies in the logs of those before it, and the log of a
    gap fragment goes with its node.  So one single failure would leave it unprotected, for as long
    as its state reaches back.
    """
    if gaps and isinstance(fragment.policy, Upstream):
        raise DefinitionError(
            f"{where}: fragment {fragment.name!r} cannot be upstream: it is behind "
            f"{', '.join(map(repr, sorted(gaps)))}, whose policy is gap, and what it would be "
            "rebuilt from is lost with that fragment's log",
            hint="protect it with Active() or Passive(), or those before it with something else",
        )


def behind_gaps(policy: Policy, gaps: Collection[str]) -> tuple[str, ...]:
    """What is to be known of a fragment that is made of streams under gap, by name.

    >>> behind_gaps(Passive(), ["spikes"]), behind_gaps(Restart(), [])
    ((), ())
    >>> behind_gaps(Restart(), ["spikes"])  # doctest: +ELLIPSIS
    ("it is behind 'spikes', whose policy is gap: should both fail, nobody goes on until ...
    """
    if not gaps or not isinstance(policy, Restart):
        return ()
    return (
        f"it is behind {', '.join(map(repr, sorted(gaps)))}, whose policy is gap: should both "
        "fail, nobody goes on until the node of this one is back, because it may be the furthest: "
        "use Active() or Passive() here",
    )


def _restless(traits: Traits) -> tuple[str, ...]:
    if not traits.sessions:
        return ()
    return (
        "a session that never falls quiet makes producers keep everything from its first row on; "
        "at their limit they take no more rows: then use Passive()",
    )
