"""A policy says how one fragment is protected: how many nodes, what is kept, what a failure costs.

    policy    copies  producers keep what              after a failure
    restart   1       it has not committed             its own node starts it again
    gap       1       it has not read                  another node, empty; what was missed is lost
    upstream  1       can still be in its state        another node computes the state again
    passive   2       its backup has not confirmed     the backup goes on from what was shipped
    active    n       its slowest copy has not read    nothing: consumers have the other copy

* A copy is a running replica, or a backup that holds what a replica shipped.
* `survives` counts nodes that can be lost *at once* without any stable epoch being lost or
  changed.  Gap survives none in that sense, although it goes on: it loses epochs and says so.
* Policies only answer.  They do no I/O, and know neither Spark nor a clock.

>>> Restart().copies, Restart().survives(1)
(1, 0)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar


class Policy(ABC):
    """How a fragment is protected; the answers that all policies give.

    >>> isinstance(Restart(), Policy)
    True
    """

    #: One word for logs, `status` and JSON.
    name: ClassVar[str]

    @property
    def text(self) -> str:
        """The policy as its name and what was chosen."""
        return self.name

    @property
    @abstractmethod
    def copies(self) -> int:
        """How many nodes must each hold a copy."""

    @abstractmethod
    def survives(self, live: int) -> int:
        """How many nodes can be lost at once, with `live` copies in place."""

    @property
    @abstractmethod
    def needs(self) -> str:
        """Which nodes it needs, and for what."""

    @property
    @abstractmethod
    def keeps(self) -> str:
        """Which epochs its producers must keep for it."""


@dataclass(frozen=True)
class Restart(Policy):
    """What applies when no policy is given: one copy, started again on its own node.

    This is no take-over: while the node is away nobody computes the fragment, and a node that
    never comes back takes the state with it.

    >>> Restart().text
    'restart'
    """

    name: ClassVar[str] = "restart"

    @property
    def copies(self) -> int:
        """The one that runs."""
        return 1

    def survives(self, live: int) -> int:
        """None: its node must come back.

        >>> Restart().survives(1)
        0
        """
        return 0

    @property
    def needs(self) -> str:
        """Which nodes it needs, and for what."""
        return "1 node: one copy, started again on that node from its own checkpoint"

    @property
    def keeps(self) -> str:
        """Which epochs its producers must keep for it."""
        return "from p + 1: what it has not committed"
