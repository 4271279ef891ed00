"""Repairs, releases and take-overs in a world of deaths: nothing needed is trimmed, all heals."""

from __future__ import annotations

from pathlib import Path

import pytest
from repair_world import ACTIVE, MIXED, World

from unbroken.control.intentions import Standing, Step
from unbroken.control.repair import Repairs
from unbroken.control.writers import Writers

ROUNDS = 150
LIVE_OR_COMING = Standing.LIVE, Standing.COMING


@pytest.mark.parametrize("inputs", [ACTIVE, MIXED], ids=["active", "mixed"])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_dies_it_becomes_whole_and_nothing_needed_is_trimmed(
    tmp_path: Path, seed: int, inputs: dict[str, list[str]]
):
    """Invariants 3 and 5, scenarios 1, 2, 3, 15 and 16, with deaths, restarts and lost answers.

    Goal: no replica, old, new or revived, ever needs an epoch that all its producers trimmed; one
    writer per term, always expected; a rebuild finds all that the gone one needed; nobody goes on
    inside a hole.  In the end
    every fragment has its replicas, and producers hold for these and nobody else.
    """
    world = World(tmp_path / "control.db", seed, inputs)
    world.live_through(ROUNDS)
    world.settle()
    world.store.close()


class DoesNotWait(Repairs):
    """Forks before the producers have confirmed."""

    def _unconfirmed(self, work):
        return () if work.intention.step is Step.EXPECT else super()._unconfirmed(work)


class ReleasesTooEarly(Repairs):
    """Lets go of whoever is gone while others are missing too."""

    def __init__(self, wanted, replicas, unfinished, **others):
        super().__init__(wanted, replicas, unfinished, **others)
        self._releases.may_discard = lambda fragment: bool(replicas.serving(fragment))


class ForgetsWhatWasUnderWay(Repairs):
    """Starts from the placement alone: who was replaced by itself is released."""

    def __init__(self, wanted, replicas, unfinished, **others):
        super().__init__(wanted, replicas, [], **others)


class ForgetsTheNeed(Repairs):
    """Releases the last trace of a rebuilt replica when its rebuild on the same node fails."""

    def _gone(self, fragment, node, reason):
        coming = str(self.replicas.of(fragment)[node]) == "coming"
        super()._gone(fragment, node, reason)
        if coming:
            self._releases.leave(fragment, node, reason)


class KeepsTheOldLine(Repairs):
    """Leaves a rebuilt replica as it is when its successor is live: it may come back."""

    def recorded(self, intention):
        super().recorded(intention)
        if intention.step is Step.LIVE and intention.rebuilds:
            self._releases._drop.clear()
            self.replicas.put(intention.fragment, intention.replaces, Standing.GONE)


class ForgetsHoles(Repairs):
    """Whoever comes back goes on where it was."""

    def is_overtaken(self, fragment, node):
        return False


class ForgetsHolesWhenItStarts(Repairs):
    """Does not look whom the records call overtaken."""

    def __init__(self, wanted, replicas, unfinished, **others):
        super().__init__(wanted, replicas, unfinished, **{**others, "overtaken": ()})


class TakesOverFromTheSilent(Writers):
    """Does not wait until a writer is declared dead."""

    def decide(self, epochs):
        silent = {f: n for f, n in self._of.items() if self._replicas.silent(n)}
        standing = {f: self._replicas.of(f).get(n) for f, n in silent.items()}
        for fragment, node in silent.items():
            self._replicas.put(fragment, node, None)
        takeovers = super().decide(epochs)
        for fragment, node in silent.items():
            self._replicas.put(fragment, node, standing[fragment])
        return takeovers


class LetsNewcomersTakeOver(Writers):
    """Takes a newcomer for a backup."""

    def decide(self, epochs):
        replicas = self._replicas
        serving = replicas.serving
        replicas.serving = lambda fragment: replicas.having(fragment, *LIVE_OR_COMING)
        takeovers = super().decide(epochs)
        replicas.serving = serving
        return takeovers


class TrimsOnWaking(World):
    """Who was paused takes acks at once, and has not heard who was expected meanwhile."""

    waits_to_trim = False


@pytest.mark.parametrize(
    ("broken", "inputs"),
    [
        (DoesNotWait, ACTIVE),
        (DoesNotWait, MIXED),
        (ReleasesTooEarly, ACTIVE),
        (ForgetsWhatWasUnderWay, MIXED),
        (ForgetsTheNeed, MIXED),
        (KeepsTheOldLine, MIXED),
        (ForgetsHoles, MIXED),
        (ForgetsHolesWhenItStarts, MIXED),
        (TakesOverFromTheSilent, MIXED),
        (LetsNewcomersTakeOver, MIXED),
        (TrimsOnWaking, ACTIVE),
    ],
)
def test_the_world_catches_who_breaks_a_rule(
    tmp_path: Path, broken: type[Repairs | Writers | World], inputs: dict[str, list[str]]
):
    """Each rule was made for a bad day; without it the checker must see one."""

    def kind(sound):
        return broken if issubclass(broken, sound) else sound

    for seed in range(60):
        path = tmp_path / f"{seed}.db"
        world = kind(World)(path, seed, inputs, kind(Repairs), kind(Writers))
        try:
            world.live_through(ROUNDS)
            world.settle()
        except AssertionError:
            return
        finally:
            world.store.close()
    raise AssertionError("nobody noticed")
