"""Writers: which of two copies writes, when the other one only holds what it is shipped.

    node-1  writes ───▶ ships ─▶ ships ─▶ ×  gone
    node-2  holds what was shipped ───────●  takes over: writes ───▶ ships ─▶
    node-3                                        coming, then holds what node-2 ships

* Both copies are expected, and each acks for itself what it holds.  So producers keep what the
  backup would have to replay, and any copy that is live can take over.
* A silent writer is not replaced before it is declared dead: a take-over pauses the fragment, and
  a short silence costs less.  Nor is one that is still starting.
* Whoever is live and holds the newest epoch takes over; a newcomer that is still coming does not,
  because it may hold half a shipment.
* If no backup serves, nothing is decided: any copy that comes back will do, also a writer that was
  replaced (scenario 16).
* A take-over is a record with a term of its own, made before anybody is told (scenarios 3 and 15).

This module only decides.  It does no I/O and reads no clock.

>>> from unbroken.control.intentions import Placed
>>> live = [Placed("node-1", 1, Standing.LIVE), Placed("node-2", 2, Standing.LIVE)]
>>> replicas = Replicas({"alerts": ["clicks"]}, {"alerts": live}, ["node-1", "node-2"])
>>> writers = Writers({"alerts": ["node-1", "node-2"]}, replicas)
>>> replicas.suspected("node-1"); writers.decide({}), writers.of("alerts")
([], 'node-1')
>>> replicas.put("alerts", "node-1", Standing.GONE)
>>> [takeover] = writers.decide({("alerts", "node-2"): 412}); takeover.under(3).sentence
'alerts: node-2 takes over from node-1 at epoch 412 (term 3): node-1 is gone'
>>> writers.recorded(takeover.under(3)); writers.of("alerts")
'node-2'
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from unbroken.control.intentions import Standing
from unbroken.control.replicas import Replicas

#: A writer that stands so is left alone.
_WRITES = (Standing.LIVE, Standing.STARTING, Standing.COMING)


class Takeover(NamedTuple):
    """From now on `node` writes `fragment`.

    >>> Takeover("alerts", "node-2", "node-1", 412, "node-1 is gone").term
    0
    """

    fragment: str
    node: str
    from_node: str
    #: The newest epoch that `node` holds; -1 if it did not say.
    epoch: int
    reason: str
    #: 0 until it is recorded: the record gives it one.
    term: int = 0

    def under(self, term: int) -> Takeover:
        """The same under `term`.

        >>> Takeover("alerts", "node-2", "node-1", 412, "node-1 is gone").under(5).term
        5
        """
        return self._replace(term=term)

    @property
    def sentence(self) -> str:
        """For log and `status`."""
        at = f" at epoch {self.epoch}" if self.epoch >= 0 else ""
        return (
            f"{self.fragment}: {self.node} takes over from {self.from_node}{at} "
            f"(term {self.term}): {self.reason}"
        )


class Writers:
    """Who writes each of the fragments that have one writer and a backup.

    `fragments` gives the first placement, the writer first; `known` what the records say since.

    >>> writers = Writers({"alerts": ["node-1", "node-2"]}, Replicas({}, {}, []),
    ...                   {"alerts": "node-2"})
    >>> writers.of("alerts")
    'node-2'
    """

    def __init__(
        self,
        fragments: Mapping[str, Sequence[str]],
        replicas: Replicas,
        known: Mapping[str, str] | None = None,
    ) -> None:
        self._replicas = replicas
        #: Invariant: recorded, or placed first and never replaced.
        self._of = {
            fragment: (known or {}).get(fragment, nodes[0]) for fragment, nodes in fragments.items()
        }
        #: Fragments that nobody writes, and what they wait for, in a sentence.
        self.waiting: dict[str, str] = {}

    def of(self, fragment: str) -> str:
        """The node that writes `fragment`, or did when it was last there."""
        return self._of[fragment]

    def get(self, fragment: str) -> str | None:
        """The same; None for a fragment that has no single writer, or no backup.

        >>> Writers({}, Replicas({}, {}, [])).get("alerts") is None
        True
        """
        return self._of.get(fragment)

    def decide(
        self, epochs: Mapping[tuple[str, str], int], overtaken: Collection[tuple[str, str]] = ()
    ) -> list[Takeover]:
        """Who is to take over now; `epochs` is what each fragment's copy on each node holds.

        Those that are `overtaken` cannot, also if they come back.  Asked again without recording,
        it says the same again.
        """
        self.waiting = {}
        takeovers = []
        for fragment, writer in self._of.items():
            standing = self._replicas.of(fragment).get(writer)
            if standing in _WRITES:
                continue
            reason = f"{writer} is {standing or 'released'}"
            held = {n: epochs.get((fragment, n), -1) for n in self._replicas.serving(fragment)}
            if not held:
                left = [n for n in self._replicas.of(fragment) if (fragment, n) in overtaken]
                but = f", but not {', '.join(left)}, in whose place a hole was recorded"
                self.waiting[fragment] = (
                    f"{fragment} is not written: {reason}, and no backup can take over; "
                    f"one that is gone has to come back{but if left else ''}"
                )
                continue
            node = max(held, key=held.__getitem__)
            takeovers.append(Takeover(fragment, node, writer, held[node], reason))
        return takeovers

    def recorded(self, takeover: Takeover) -> None:
        """`takeover` is on disk, under its term: now its node is the writer."""
        assert takeover.term > 0, "the record gives the term"
        self._of[takeover.fragment] = takeover.node
        self.waiting.pop(takeover.fragment, None)

    @property
    def sentences(self) -> list[str]:
        """What waits, for `status`."""
        return list(self.waiting.values())
