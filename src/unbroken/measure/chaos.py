"""Chaos: a real cluster that works while its processes are killed and paused, again and again.

    load ────────────────────────────────────────────────────▶ ends ─▶ all rows compared
    fire    x kill node-2 ─ restart     x pause node-1 ─ resume
            ◀─ until every fragment ──▶ and a moment by chance
               can lose a node again

* A process is hit only when every fragment survives it: what goes wrong then is ours.  It is away
  for a while by chance, and the next one is hit as soon as that is so again, whether or not the
  last one is back.
* Nodes are hit, and the control plane.  Not the keeper: it is where the load goes in, there is one
  of it, and no policy stands for it.
* *Availability* is the share of the epochs with new rows that a client had within the bound,
  counted from when the newest row was due.  One that was due longer ago and has not come counts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from unbroken.measure import compare
from unbroken.measure.clustered import Clustered
from unbroken.measure.compare import Difference
from unbroken.measure.contender import until
from unbroken.measure.offer import Offer
from unbroken.measure.watch import Watch, worst
from unbroken.measure.workload import Workload

KILL, PAUSE = "kill", "pause"
FAULTS = (KILL, PAUSE)
#: How long a process is away, and how long after all is whole the next one is hit.
AWAY_S, PHASE_S_MAX = (0.5, 12.0), 3.0
#: What a status says may be so old.
STALE_S = 2.0
WARM_OUTPUTS = 10


@dataclass
class Hit:
    """A process that was hit, and what clients noticed of it.

    >>> Hit("kill", "node-2", at_s=12.5, away_s=4.0).text
    '+12.5 s  kill node-2, away for 4.0 s'
    """

    kind: str
    process: str
    #: Since the fire began.
    at_s: float
    away_s: float
    #: Until every fragment survived a failure again; None: the fire ended before.
    whole_after_s: float | None = None
    #: The longest silence around it, less the usual one.
    gap_s: float | None = None

    @property
    def text(self) -> str:
        """What happened, in a line."""
        line = f"+{self.at_s:.1f} s  {self.kind} {self.process}, away for {self.away_s:.1f} s"
        if self.gap_s is not None:
            line += f"; output gap {self.gap_s:.2f} s"
        if self.whole_after_s is not None:
            line += f", whole after {self.whole_after_s:.1f} s"
        elif self.gap_s is not None:
            line += ", not whole again before the end"
        return line


@dataclass
class Outcome:
    """What came of it.

    >>> Outcome(bound_s=3.0, within=199, epochs=200).availability
    0.995
    >>> outcome = Outcome(bound_s=3.0)
    >>> outcome.count([Watch([(5.0, 0.5)])], since_s=2.0, open_s=[4.0, 8.0], now_s=10.0)
    >>> outcome.within, outcome.missing, outcome.epochs    # The other one still has a second.
    (1, 1, 2)
    """

    bound_s: float
    hits: list[Hit] = field(default_factory=list)
    #: Epochs with new rows that came since the fire began or should have, those of them that came
    #: within the bound, and those that have not come.
    epochs: int = 0
    within: int = 0
    missing: int = 0
    longest_s: float = 0.0
    rows: int = 0
    #: By sink: rows that are not as in the undisturbed run; None until they are compared.
    differences: dict[str, Difference] | None = None
    #: By sink: those of them that no gap tells of.
    untold: dict[str, Difference] = field(default_factory=dict)

    @property
    def availability(self) -> float | None:
        """The share of epochs within the bound; None if there was none."""
        return self.within / self.epochs if self.epochs else None

    def count(
        self, watches: Sequence[Watch], since_s: float, open_s: Iterable[float] = (),
        now_s: float = 0.0,
    ) -> None:  # fmt: skip
        """Counts what clients saw since then; what is open now was due at these times."""
        late = [
            latency
            for watch in watches
            for at, latency in list(watch.came)
            if latency is not None and at >= since_s
        ]
        missing = [now_s - due_s for due_s in open_s if now_s - due_s > self.bound_s]
        self.missing, self.epochs = len(missing), len(late) + len(missing)
        self.longest_s = round(max([*late, *missing], default=0.0), 3)
        self.within = sum(latency <= self.bound_s for latency in late)

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs.

        >>> Outcome(bound_s=3.0).to_json()["availability"] is None
        True
        """
        return {**asdict(self), "availability": self.availability}


class UnderFire(Clustered):
    """A cluster whose processes are hit."""

    @property
    def victims(self) -> list[str]:
        """Who may be hit now."""
        return [*self._cluster.nodes, "control"]

    @property
    def open_s(self) -> list[float]:
        """When the epochs were due that a sink has not had yet; for each sink."""
        due = list(self._due_s.items())
        following = self._sinks.values()
        return [due_s for each in following for number, due_s in due if number >= each.next]

    def _whole(self, status: Mapping[str, Any], fragment: str) -> bool:
        # A copy that is slow at first is as good as any: under fire nothing is measured but truth.
        return self._protected(status, fragment)

    def hit(self, kind: str, process: str) -> None:
        """SIGKILL or SIGSTOP to all processes of a node."""
        (self._cluster.kill if kind == KILL else self._cluster.pause)(process)

    def bring_back(self, kind: str, process: str) -> None:
        """A killed process is started again, as a supervisor does; a paused one goes on."""
        if kind == KILL:
            self._cluster.restart(process, wait=False)
        else:
            self._cluster.resume(process)


class Chaos:
    """Sets a cluster under fire for `length_s`, and tells in `outcome` what is known so far."""

    def __init__(
        self, cluster: UnderFire, workload: Workload, *, faults: Sequence[str], length_s: float,
        bound_s: float, seed: int, say: Callable[[str], None], forgetful: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Sinks that are `forgetful` have state behind a gap."""
        self._cluster, self._faults, self._length_s = cluster, faults, length_s
        self._offer = Offer(workload, cluster.send)
        self._chance = random.Random(seed)
        self._say, self._forgetful = say, forgetful
        #: Who is away: what was done to it, and when it comes back.
        self._away: dict[str, tuple[str, float]] = {}
        self._began_s = self._ends_s = 0.0
        self.outcome = Outcome(bound_s)

    def run(self) -> None:
        """Start, warm up, fire, and the comparison; however it ends, what came is counted."""
        try:
            self._run()
        finally:
            if self._began_s:
                watches, open_s = self._cluster.watches, self._cluster.open_s
                self.outcome.count(watches, self._began_s, open_s, time.time())

    def _run(self) -> None:
        self._cluster.start()
        try:
            self._offer.start()
            self._say(f"warming up, until results come within {self.outcome.bound_s:g} s")
            self._until(self._warm, "results to come in time")
            self._began_s = time.time()
            self._ends_s = self._began_s + self._length_s
            self._say(f"under fire for {self._length_s:.0f} s")
            while time.time() < self._ends_s:
                self._one_hit()
            self._ends_s = 0.0  # Whoever is away comes back now.
            self._until(lambda: not self._away, "all processes to be back")
        finally:
            self._offer.stop()
        self.outcome.rows = self._offer.rows
        self._say(f"comparing what came of {self._offer.rows:,} rows with an undisturbed run")
        came = self._cluster.outcome()
        self.outcome.untold = {
            sink: compare.untold(*both, forgets=sink in self._forgetful)
            for sink, both in came.items()
        }
        self.outcome.differences = {sink: compare.epochs(*both) for sink, both in came.items()}

    def _until(self, condition: Callable[[], object], what: str) -> None:
        until(condition, what, check=self._check)

    def _check(self) -> None:
        self._offer.check()
        now_s = time.time()
        for process, (kind, back_s) in list(self._away.items()):
            if now_s >= back_s or not self._ends_s:
                del self._away[process]
                self._cluster.bring_back(kind, process)
        self._cluster.check()

    def _warm(self) -> bool:
        bound_s = self.outcome.bound_s
        return self._cluster.whole() and all(
            watch.outputs >= WARM_OUTPUTS and (watch.latency_s or 0.0) < bound_s
            for watch in self._cluster.watches
        )

    def _one_hit(self) -> None:
        phase_s = time.time() + self._chance.uniform(0.0, PHASE_S_MAX)
        self._until(lambda: time.time() >= phase_s, "the right moment")
        victims = [each for each in self._cluster.victims if each not in self._away]
        kind, process = self._chance.choice(self._faults), self._chance.choice(victims)
        away_s = self._chance.uniform(*AWAY_S)
        hit_s = time.time()
        hit = Hit(kind, process, round(hit_s - self._began_s, 1), round(away_s, 1))
        self.outcome.hits.append(hit)
        self._say(f"+{hit.at_s:.1f} s  {kind} {process}")
        self._cluster.hit(kind, process)
        self._away[process] = (kind, hit_s + away_s)
        # Before it is noticed, what status says is still that all are well.
        stale_s = hit_s + max(STALE_S, away_s if kind == PAUSE else 0.0)
        self._until(
            lambda: (time.time() >= stale_s and self._cluster.whole()) or self._over(),
            "what was lost to be replaced",
        )
        if not self._over():
            hit.whole_after_s = round(time.time() - hit_s, 1)
        hit.gap_s = worst(watch.effect(hit_s) for watch in self._cluster.watches).gap_s
        self._say(hit.text)

    def _over(self) -> bool:
        return time.time() >= self._ends_s
