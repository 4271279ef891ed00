"""The course of a measurement: warm up, look at the undisturbed system, then kill, again and again.

    start ─▶ warm ─▶ undisturbed (CPU, bytes) ─▶ ┌ steady ─▶ random phase ─▶ kill ─▶ noticed ┐
                                                 └─ mended ◀─ in time again ◀─ whole again ◀─┘
          ─▶ the load ends ─▶ all rows compared

What is known is in `Found` at every moment, so that a run that is broken off tells what it has.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from unbroken.errors import DefinitionError, UnbrokenError
from unbroken.measure.compare import Difference
from unbroken.measure.contender import Contender, Kill, until
from unbroken.measure.course import MEASURED, STALE_S_MAX, UNDER_WAY, Course
from unbroken.measure.offer import Offer
from unbroken.measure.watch import USUAL_OUTPUTS, Effect, worst
from unbroken.measure.workload import Workload

#: Spark is warm after so many outputs, and ready to be measured when they are this late at most.
WARM_OUTPUTS, WARM_LATENCY_S_MAX = 40, 3.0
#: Kills come at any phase of an epoch, and of a shipping interval of 2 s.
PHASE_S_MAX = 2.0
#: Some contenders do not say that they have noticed.
NOTICE_S_MAX = 10.0
#: Shorter than this, the end of a silence may not be seen yet.
LOOK_S_MIN = 3.0
#: A contender that is not in time again after so long is left as it is, and told so.
BACK_S_MAX = 120.0


@dataclass
class Found:
    """What is known about one contender.

    >>> found = Found("active", "counts"); found.median("gap_s") is None
    True
    >>> found.effects += [Effect(0.1, 1.0, None), Effect(0.3, 1.0, 2.0), Effect(0.2, 1.0, None)]
    >>> found.median("gap_s"), found.median("back_s")
    (0.2, 2.0)
    """

    name: str
    workload: str
    outcome: str = UNDER_WAY
    effects: list[Effect] = field(default_factory=list)
    #: Undisturbed, per second.
    cpu_s_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    kept_bytes: int | None = None
    latency_s: float | None = None
    #: The longest silence, less the usual one, when nobody was killed: what a gap is compared with.
    silence_s: float | None = None
    rows: int = 0
    difference: Difference | None = None

    @property
    def ran(self) -> bool:
        """Whether there is anything to show."""
        return self.cpu_s_per_s is not None

    def values(self, figure: str) -> list[float]:
        """One figure of all kills, as far as it is known."""
        told: Iterable[float | None] = (getattr(effect, figure) for effect in self.effects)
        return [value for value in told if value is not None]

    def median(self, figure: str) -> float | None:
        """The median of one figure over all kills."""
        values = self.values(figure)
        return statistics.median(values) if values else None

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs.

        >>> Found("gap", "counts", outcome="not run: no").to_json()["outcome"]
        'not run: no'
        """
        return asdict(self)


def measure(
    found: Found,
    workload: Workload,
    make: Callable[[], Contender],
    *,
    kills: int,
    undisturbed_s: float,
    say: Callable[[str], None],
) -> None:
    """Runs one contender through all kills; whatever goes wrong with it is its outcome."""
    try:
        contender = make()
    except DefinitionError as error:
        found.outcome = f"not run: {error.what}"
        return
    with contextlib.closing(contender):
        say(f"{found.name}: starting; {found.workload}")
        try:
            contender.start()
        except DefinitionError as error:
            found.outcome = f"refused: {error.what}"
            return
        except UnbrokenError as error:
            found.outcome = f"failed: {error.what}"
            return
        offer = Offer(workload, contender.send)
        try:
            _Course(contender, offer, found, say).run(kills, undisturbed_s)
        except UnbrokenError as error:
            found.outcome = f"failed: {error.what}"
        finally:
            offer.stop()


class _Course(Course):
    def __init__(
        self, contender: Contender, offer: Offer, found: Found, say: Callable[[str], None]
    ) -> None:
        super().__init__(contender, offer)
        self._contender, self._found, self._say = contender, found, say

    def run(self, kills: int, undisturbed_s: float) -> None:
        self._offer.start()
        self.until(self._warm, "results to come in time")
        self._undisturbed(undisturbed_s)
        for number in range(kills):
            if number:
                self._steady()
            self.until(self._contender.whole, "all copies to be in place")
            self.sleep(random.uniform(0.0, PHASE_S_MAX))
            self._found.effects.append(self._one_kill())
            self._tell(number + 1, kills)
        self._offer.stop()
        self._found.rows = self._offer.rows
        self._say(f"{self._found.name}: comparing {self._offer.rows:,} rows with the answer")
        self._found.difference = self._contender.finish()
        self._found.outcome = MEASURED

    def _warm(self) -> bool:
        return all(
            watch.outputs >= WARM_OUTPUTS
            and (watch.latency_s is None or watch.latency_s < WARM_LATENCY_S_MAX)
            for watch in self._contender.watches
        )

    def _undisturbed(self, length_s: float) -> None:
        contender, found = self._contender, self._found
        watched_s = time.time()
        began_s, cpu_s, sent = time.monotonic(), contender.cpu_s(), contender.sent_bytes()
        self.sleep(length_s)
        took_s = time.monotonic() - began_s
        found.cpu_s_per_s = round((contender.cpu_s() - cpu_s) / took_s, 3)
        sent_now = contender.sent_bytes()
        if sent is not None and sent_now is not None:
            found.sent_bytes_per_s = round((sent_now - sent) / took_s)
        found.kept_bytes = contender.kept_bytes()
        usual = [watch.usual(time.time())[1] for watch in contender.watches]
        late = [each for each in usual if each is not None]
        found.latency_s = round(max(late), 3) if late else None
        found.silence_s = max(watch.silence(watched_s) for watch in contender.watches)
        self._say(f"{found.name}: undisturbed, {found.cpu_s_per_s:.2f} CPU s per second")

    def _steady(self) -> None:
        """Waits for as many outputs as say what is usual."""
        seen = [watch.outputs for watch in self._contender.watches]
        self.until(
            lambda: all(
                watch.outputs >= before + USUAL_OUTPUTS
                for watch, before in zip(self._contender.watches, seen, strict=True)
            ),
            "results to come steadily",
        )

    def _one_kill(self) -> Effect:
        kill = self._contender.kill()
        # Before it is noticed, what status says is still that all are well.
        with contextlib.suppress(UnbrokenError):
            until(lambda: kill.noticed_s, "notice", check=self.check, limit_s=NOTICE_S_MAX)
        self.sleep(STALE_S_MAX)
        self.until(self._contender.whole, "what was lost to be replaced")
        whole_s = time.time()
        end_s = time.monotonic() + BACK_S_MAX
        self.until(
            lambda: (
                time.monotonic() > end_s
                or (
                    time.time() > max(whole_s + 1.0, kill.at_s + LOOK_S_MIN)
                    and self._effect(kill).back_s is not None
                )
            ),
            "latency to be as before", limit_s=BACK_S_MAX + 60.0,
        )  # fmt: skip
        effect = self._effect(kill)
        self._contender.mend()
        return effect

    def _effect(self, kill: Kill) -> Effect:
        seen = worst(watch.effect(kill.at_s) for watch in self._contender.watches)
        return replace(seen, detect_s=kill.detect_s, killed=kill.process)

    def _tell(self, number: int, kills: int) -> None:
        effect = self._found.effects[-1]
        back = "not yet" if effect.back_s is None else f"after {effect.back_s:.1f} s"
        self._say(
            f"{self._found.name}: kill {number} of {kills}, {effect.killed}: output gap "
            f"{effect.gap_s:.2f} s, in time again {back}"
        )
