"""The detector: who is silent, and who is dead.

    reports   | | | | | |            . . . . . . . . . . .
                         ◀─ 2 s ─▶ suspected ◀─ 4 s ─▶ dead            (timing "local")
    refused              x dead at once

* A refused connection to a node's door is proof: the process that owned the door is gone.  Silence
  is none: it may be a pause, a cut or our own lateness.
* So silence leads to *suspicion* first.  It costs nothing and is taken back by the next report;
  consumers have the other copy anyway.  *Death* on silence costs a repair and comes later.
* A detector that was late itself (paused, starved) forgives everybody once: all silences start
  again.  A gap between two ticks counts for no more than `late_s` anyway, so that being late
  again and again removes nobody at a stroke, and does not blind the detector either (scenario 14).
* After its start, and for a node that is new, it waits a full timeout.
* On silence alone it never declares more than k replicas of a fragment dead.  Whoever is left over
  stays suspected, and `sentence` says why.

This module only decides.  It does no I/O; the caller passes in monotonic time.

>>> detector = Detector(TIMINGS["local"], now_s=0.0)
>>> detector.watch({"alerts": ["node-1", "node-2"]}, k={"alerts": 1})
>>> for i in range(1, 24):                             # node-2 never speaks
...     detector.heard("node-1", i / 4)
...     for decision in detector.tick(i / 4): print(decision.sentence)
suspected node-2: silent for 2.0 s
>>> detector.heard("node-1", 6.0); [d.sentence for d in detector.tick(6.0)]
['node-2 is dead: silent for 6.0 s']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Timing:
    """How often a node reports, and how long a silence means what.

    >>> Timing(period_s=1, suspect_s=5, remove_s=20, late_s=2).remove_s
    20
    """

    #: A node reports this often.
    period_s: float
    #: Silent for so long: not chosen for new work.  At least four periods.
    suspect_s: float
    #: Silent for so long: dead.  The price of a mistake is one repair.
    remove_s: float
    #: A tick that comes so long after the last one was late itself.  The caller should tick once
    #: per period.
    late_s: float

    @property
    def trust_s(self) -> float:
        """For so long a node believes what control answered: whoever is silent for longer may
        have been replaced, and others be expected whom it has not heard of.

        >>> TIMINGS["local"].trust_s
        1.5
        """
        return 0.75 * self.suspect_s

    def __post_init__(self) -> None:
        assert 4 * self.period_s <= self.suspect_s < self.remove_s, "a lost report is no silence"
        assert self.period_s < self.late_s <= self.suspect_s, "late before anybody is suspected"


#: Chosen from what such pauses usually take, not measured; a slower place wants a slower timing.
#:
#: * `local`: all on one machine, where processes are killed (refused, seen at once) or starved, so
#:   timeouts only serve for pauses.  Reports come from a node's Python process; a full collection
#:   of its JVM, or two Sparks that start on two cores, can keep the processor from it for a second
#:   or two.  So eight reports must be missing before anybody is suspected, and a pause may last
#:   6 s before it costs a repair.
#: * `lan`: machines fail as a whole and then refuse nothing, so timeouts are the usual case.  15 s
#:   outlast a switch that restarts a port; and a repair ships state for seconds, so waiting less
#:   would gain little.
#: * `wan`: routes change and queues fill for tens of seconds; shipping state is expensive.
TIMINGS: Mapping[str, Timing] = MappingProxyType(
    {
        "local": Timing(period_s=0.25, suspect_s=2.0, remove_s=6.0, late_s=1.0),
        "lan": Timing(period_s=0.5, suspect_s=4.0, remove_s=15.0, late_s=2.0),
        "wan": Timing(period_s=2.0, suspect_s=15.0, remove_s=60.0, late_s=6.0),
    }
)


@dataclass(frozen=True)
class Suspected:
    """`node` is silent: it gets no new work, and keeps what it has.

    >>> Suspected("node-1", "silent for 2.0 s").sentence
    'suspected node-1: silent for 2.0 s'
    """

    node: str
    reason: str

    @property
    def sentence(self) -> str:
        return f"suspected {self.node}: {self.reason}"


@dataclass(frozen=True)
class Trusted:
    """`node` is heard of again; after a death it comes as a spare.

    >>> Trusted("node-1", was_dead=True).sentence
    'node-1 is heard of again, after it was declared dead'
    """

    node: str
    was_dead: bool = False

    @property
    def sentence(self) -> str:
        after = ", after it was declared dead" if self.was_dead else ""
        return f"{self.node} is heard of again{after}"


@dataclass(frozen=True)
class Dead:
    """`node` will not come back as it was; what it held may be repaired elsewhere.

    >>> Dead("node-1", "it refuses connections", proven=True).sentence
    'node-1 is dead: it refuses connections'
    """

    node: str
    reason: str
    #: A refused connection, not silence.
    proven: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.node} is dead: {self.reason}"


Decision = Suspected | Trusted | Dead


@dataclass
class _Watched:
    #: In the detector's own time, which stands still while the detector is late.
    heard_s: float
    #: "", "suspected" or "dead": what was told last.
    told: str = ""
    #: Of the death.
    reason: str = ""
    refused: bool = False
    heard: bool = False
    #: Invariant: forgiven at most once per silence, or a detector that is always late is blind.
    forgiven: bool = False


class Detector:
    """Turns reports, refused connections and the passing of time into decisions.

    >>> Detector(TIMINGS["lan"], now_s=0.0).sentence("node-1", 0.5)
    'never heard of'
    """

    def __init__(self, timing: Timing, *, now_s: float) -> None:
        self.timing = timing
        self._ticked_s = now_s
        #: Time that passed while we looked: a gap between ticks counts for at most `late_s`.
        self._own_s = 0.0
        self._nodes: dict[str, _Watched] = {}
        self._placement: dict[str, tuple[str, ...]] = {}
        self._k: dict[str, int] = {}

    def watch(self, placement: Mapping[str, Sequence[str]], *, k: Mapping[str, int]) -> None:
        """The nodes of each fragment, the dead ones that are not replaced yet included, and how
        many of them may be declared dead on silence.

        >>> detector = Detector(TIMINGS["lan"], now_s=0.0)
        >>> detector.watch({"alerts": ["node-1"]}, k={"alerts": 0}); detector.nodes
        ['node-1']
        """
        self._placement = {fragment: tuple(nodes) for fragment, nodes in placement.items()}
        self._k = dict(k)
        for nodes in placement.values():
            for node in nodes:
                self._nodes.setdefault(node, _Watched(self._own_s))

    @property
    def nodes(self) -> list[str]:
        """Everybody who is watched, by name.

        >>> Detector(TIMINGS["lan"], now_s=0.0).nodes
        []
        """
        return sorted(self._nodes)

    def heard(self, node: str, now_s: float) -> None:
        """A report of `node` has arrived; one that nobody knew is watched from now on.

        >>> detector = Detector(TIMINGS["lan"], now_s=0.0)
        >>> detector.heard("spare-1", 0.5); detector.nodes
        ['spare-1']
        """
        watched = self._nodes.setdefault(node, _Watched(self._own_s))
        watched.heard_s = max(watched.heard_s, self._own(now_s))
        watched.heard, watched.refused, watched.forgiven = True, False, False

    def refused(self, node: str, now_s: float) -> None:
        """The door that `node` reported last refuses connections: its process is gone.

        >>> detector = Detector(TIMINGS["lan"], now_s=0.0)
        >>> detector.heard("node-1", 0.4); detector.refused("node-1", 0.5); detector.tick(0.5)
        [Dead(node='node-1', reason='it refuses connections', proven=True)]
        """
        watched = self._nodes.setdefault(node, _Watched(self._own(now_s)))
        watched.refused, watched.heard = True, False

    def forget(self, node: str) -> None:
        """`node` has left for good: no decisions about it any more.

        >>> detector = Detector(TIMINGS["lan"], now_s=0.0)
        >>> detector.heard("node-1", 0.5); detector.forget("node-1"); detector.nodes
        []
        """
        self._nodes.pop(node, None)

    def tick(self, now_s: float) -> list[Decision]:
        """What has changed since the last tick; call it once per period, after the events.

        >>> Detector(TIMINGS["lan"], now_s=0.0).tick(0.5)
        []
        """
        late = now_s - self._ticked_s >= self.timing.late_s
        self._own_s = self._own(now_s)
        self._ticked_s = max(self._ticked_s, now_s)
        if late:
            for watched in self._nodes.values():
                if not watched.forgiven:
                    watched.heard_s, watched.forgiven = self._own_s, not watched.heard
        decisions: list[Decision] = []
        for node, watched in sorted(self._nodes.items()):
            if watched.refused and watched.told != "dead":
                watched.told, watched.reason = "dead", "it refuses connections"
                decisions.append(Dead(node, watched.reason, proven=True))
            elif watched.heard and watched.told:
                decisions.append(Trusted(node, was_dead=watched.told == "dead"))
                watched.told = ""
            watched.heard = False
        return decisions + self._silent()

    def _silent(self) -> list[Decision]:
        decisions: list[Decision] = []
        # The longest silence first: if not all may be declared dead, it is the likeliest.
        for node, watched in sorted(self._nodes.items(), key=lambda x: (x[1].heard_s, x[0])):
            silent_s = self._own_s - watched.heard_s
            reason = f"silent for {silent_s:.1f} s"
            if watched.told == "" and silent_s >= self.timing.suspect_s:
                watched.told = "suspected"
                decisions.append(Suspected(node, reason))
            long = watched.told == "suspected" and silent_s >= self.timing.remove_s
            if long and not self._protected(node):
                watched.told, watched.reason = "dead", reason
                decisions.append(Dead(node, reason))
        return decisions

    def _protected(self, node: str) -> str:
        """The fragment that may not lose one more replica on silence; "" if none objects."""
        for fragment, nodes in sorted(self._placement.items()):
            # The proven dead count as well: what matters is how many are left.
            dead = sum(self._nodes[other].told == "dead" for other in nodes if other in self._nodes)
            if node in nodes and dead + 1 > self._k.get(fragment, 0):
                return fragment
        return ""

    def sentence(self, node: str, now_s: float) -> str:
        """What is known of `node`, for `status`.

        >>> detector = Detector(TIMINGS["lan"], now_s=0.0)
        >>> detector.heard("node-1", 0.25); detector.sentence("node-1", 0.5)
        'heard 0.2 s ago'
        """
        watched = self._nodes.get(node)
        if watched is None:
            return "never heard of"
        silent_s = max(0.0, self._own(now_s) - watched.heard_s)
        if watched.told == "dead":
            return f"dead: {watched.reason}"
        fragment = self._protected(node) if silent_s >= self.timing.remove_s else ""
        if fragment:
            k = self._k.get(fragment, 0)
            return (
                f"silent for {silent_s:.1f} s, not declared dead: {fragment} may lose no more than "
                f"{k} {'replica' if k == 1 else 'replicas'} on silence alone"
            )
        if watched.told == "suspected":
            return f"suspected: silent for {silent_s:.1f} s"
        return f"heard {silent_s:.1f} s ago"

    def _own(self, now_s: float) -> float:
        return self._own_s + min(max(0.0, now_s - self._ticked_s), self.timing.late_s)
