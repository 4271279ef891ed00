"""Repairs driven by hand, one decision at a time."""

from __future__ import annotations

from unbroken.control.intentions import Intention, Placed, Producer, Standing, Step
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas
from unbroken.control.work import MADE_EPOCHS_MIN
from unbroken.control.writers import Takeover, Writers

LIVE, GONE, LEAVING = Standing.LIVE, Standing.GONE, Standing.LEAVING
COMING = Standing.COMING
CLICKS = Producer("clicks", "keeper")


class Hand:
    """Repairs driven by hand; terms count up from 10, the clock by a tenth of a second."""

    def __init__(
        self,
        placed: dict[str, str],
        nodes: str,
        wanted: int = 2,
        *,
        rebuilt: str = "",
        passive: str = "",
        **inputs: list[str],
    ) -> None:
        inputs = inputs or {fragment: ["clicks"] for fragment in placed}
        placement = {f: [Placed(n, 1, LIVE) for n in held] for f, held in placed.items()}
        self.now_s, self.term = 0.0, 9
        self.replicas = Replicas(inputs, placement, nodes)
        self.writers = Writers({f: list(placed[f]) for f in passive}, self.replicas)
        self.repairs = Repairs(
            {f: 1 if f in rebuilt else wanted for f in placed},
            self.replicas, rebuilt=rebuilt, writers=self.writers,
        )  # fmt: skip

    def decide(self) -> list[Intention]:
        """One round; everything is recorded."""
        self.now_s += 0.1
        recorded = []
        for intention in self.repairs.decide(self.now_s):
            if not intention.term:
                self.term += 1
                intention = intention.under(self.term)
            self.repairs.recorded(intention)
            recorded.append(intention)
        return recorded

    def take_over(self, **epochs: int) -> list[Takeover]:
        """One round of take-overs in `a`, given the epochs of its copies as n1=…; all recorded."""
        held = {("a", node.removeprefix("n")): epoch for node, epoch in epochs.items()}
        recorded = []
        for takeover in self.writers.decide(held):
            self.term += 1
            self.writers.recorded(takeover.under(self.term))
            recorded.append(takeover.under(self.term))
        return recorded

    def step(self) -> Intention:
        """One round in which exactly one thing is decided."""
        [intention] = self.decide()
        return intention

    def to(self, step: Step, fragment: str = "a") -> Intention:
        """Takes the repair of `fragment` as far as `step`; nothing is in its way."""
        for _ in range(20):
            for intention in self.decide():
                if (intention.fragment, intention.step) == (fragment, step):
                    return intention
            self.act()
        raise AssertionError(f"never came to {step}: {self.repairs.sentences}")

    def act(self) -> None:
        for action in self.repairs.actions:
            i = action.intention
            for producer in action.producers:
                self.repairs.confirmed(i.fragment, i.term, producer)
            if i.step is Step.SHIP:
                self.repairs.shipped(i.fragment, i.term)
            if i.step is Step.CATCH_UP:
                for epoch in (9, 9 + MADE_EPOCHS_MIN):
                    self.repairs.progress(i.fragment, i.term, newcomer=epoch, others=epoch)

    def standing(self, fragment: str = "a") -> dict[str, str]:
        return {node: str(standing) for node, standing in self.replicas.of(fragment).items()}
