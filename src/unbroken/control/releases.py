"""Releases: whoever will not come back is let go, and producers may trim what it would have needed.

    gone ── the wanted number is live ──▶ leaving ── recorded ── all producers confirm ──▶ forgotten

* Who was removed is released only when the wanted number is live: until then producers hold what
  it would have to replay, and it may come back should all the others die (scenario 16).
* The writer of a passive fragment is never released: somebody has to take over from it first.
* A newcomer that was never live is released at once: nobody can go on from what it has.
* Releases do not wait for repairs, nor for one another.

This module only decides.  It does no I/O; the caller passes in monotonic time.

>>> from unbroken.control.intentions import Placed
>>> placed = {"alerts": [Placed("node-1", 1, Standing.GONE), Placed("node-2", 2, Standing.LIVE)]}
>>> replicas = Replicas({"alerts": ["clicks"]}, placed, ["node-2"])
>>> releases = Releases({"alerts": 1}, replicas, Writers({}, replicas))
>>> [release] = releases.decide()
>>> releases.recorded(release.under(4), now_s=0.0); releases.actions[0].sentence
'alerts: releasing node-1 (term 4): the wanted number is live, waiting for clicks@keeper'
>>> releases.confirmed("alerts", 4, Producer("clicks", "keeper"), now_s=0.1)
>>> [done] = releases.decide(); str(done.step), done.node
('released', 'node-1')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from unbroken.control.intentions import Action, Intention, Producer, Standing, Step
from unbroken.control.replicas import Replicas
from unbroken.control.work import Work
from unbroken.control.writers import Writers


class Releases:
    """The releases of all fragments, given the number of replicas `wanted` of each.

    >>> nobody = Replicas({}, {}, [])
    >>> Releases({}, nobody, Writers({}, nobody)).decide()
    []
    """

    def __init__(self, wanted: Mapping[str, int], replicas: Replicas, writers: Writers) -> None:
        self._wanted = dict(wanted)
        self._replicas = replicas
        self._writers = writers
        #: Invariant: recorded.
        self._work: dict[tuple[str, str], Work] = {}
        #: To be released, with the reason; not recorded yet.  Invariant: they stand as `leaving`.
        self._drop: dict[tuple[str, str], str] = {}

    def leave(self, fragment: str, node: str, reason: str) -> None:
        """This replica will not come back.

        >>> replicas = Replicas({"alerts": ["clicks"]}, {}, [])
        >>> releases = Releases({"alerts": 2}, replicas, Writers({}, replicas))
        >>> releases.leave("alerts", "node-3", "it died before it was live")
        >>> str(replicas.of("alerts")["node-3"])
        'leaving'
        """
        if (fragment, node) not in self._work:
            self._drop[fragment, node] = reason
        self._replicas.put(fragment, node, Standing.LEAVING)

    def leave_unknown(self) -> None:
        """After a restart: who stands as leaving, but without a release on record, goes too."""
        for fragment in self._replicas.inputs:
            for node in self._replicas.having(fragment, Standing.LEAVING):
                if (fragment, node) not in self._drop:
                    self.leave(fragment, node, "it was replaced")

    def confirmed(self, fragment: str, term: int, producer: Producer, *, now_s: float) -> None:
        """`producer` has let go of whom the release of this term names."""
        for work in self._work.values():
            if work.is_under(fragment, term):
                work.confirm(producer, now_s=now_s)

    def recorded(self, intention: Intention, *, now_s: float) -> None:
        """`intention`, a release or its end, is on disk."""
        key = fragment, node = intention.fragment, intention.node
        if intention.step is Step.RELEASE:
            self._drop.pop(key, None)
            self._work[key] = Work(intention, now_s)
            self._replicas.put(fragment, node, Standing.LEAVING)
        else:
            del self._work[key]
            self._replicas.put(fragment, node, None)

    def is_recorded(self, fragment: str, node: str) -> bool:
        """Whether the release of this replica is on disk.

        >>> nobody = Replicas({}, {}, [])
        >>> Releases({}, nobody, Writers({}, nobody)).is_recorded("alerts", "node-1")
        False
        """
        return (fragment, node) in self._work

    def may_discard(self, fragment: str) -> bool:
        """Whether the wanted number is live: nobody else is needed.

        Never of a fragment that nobody repairs: its one copy is all there is.

        >>> nobody = Replicas({"alerts": ["clicks"]}, {}, [])
        >>> Releases({}, nobody, Writers({}, nobody)).may_discard("alerts")
        False
        """
        wanted = self._wanted.get(fragment)
        return wanted is not None and len(self._replicas.serving(fragment)) >= wanted

    def decide(self) -> list[Intention]:
        """What is to be recorded now: the ends of releases, and new ones."""
        over = [w.intention for w in self._work.values() if not w.unconfirmed(self._replicas)]
        due = dict(self._drop)
        for fragment, wanted in self._wanted.items():
            if self.may_discard(fragment):
                due |= {(fragment, node): why for node, why in self._too_many(fragment, wanted)}
        return [intention.then(Step.RELEASED) for intention in over] + [
            Intention(fragment, Step.RELEASE, node, reason=why)
            for (fragment, node), why in due.items()
        ]

    def _too_many(self, fragment: str, wanted: int) -> Iterator[tuple[str, str]]:
        writer = self._writers.get(fragment)
        for node in self._replicas.having(fragment, Standing.GONE):
            if node != writer:
                yield node, "the wanted number is live"
        serving = self._replicas.serving(fragment)
        serving.sort(key=lambda node: node != writer)
        for node in serving[wanted:]:
            yield node, "more are live than wanted"

    @property
    def actions(self) -> list[Action]:
        """What is to be done for the releases on record."""
        return [work.action(self._replicas) for work in self._work.values()]
