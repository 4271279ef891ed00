"""Upstream backup: producers keep the epochs from which the state can be computed again.

    producer, keeps  f  in(s) ........ s | D ........ newest
                     └── replayed mute ──┘ └── replayed, and sealed again
                       on another node, from empty state and the watermarks of that point

Nothing is shipped and nothing runs twice, so it is the cheapest policy that loses nothing.  Its
price is the pause: all of the state's history is computed again.  So the history must end: every
operator's state must be bounded by a watermark.  Session windows can be of any age; where they are
the only state, it is asked now and then for the oldest of them (`sessions.py`).

>>> Upstream().copies
1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unbroken.policies.policy import Policy


@dataclass(frozen=True)
class Upstream(Policy):
    """One copy; after a failure another node computes its state again from what producers kept.

    >>> Upstream().text
    'upstream'
    """

    name: ClassVar[str] = "upstream"

    @property
    def copies(self) -> int:
        """The one that runs."""
        return 1

    def survives(self, live: int) -> int:
        """One, while it runs: its producers have what the state was made from.

        >>> Upstream().survives(1), Upstream().survives(0)
        (1, 0)
        """
        return 1 if live >= 1 else 0

    @property
    def needs(self) -> str:
        """Which nodes it needs, and for what."""
        return "1 node, and another one that is free when it fails"

    @property
    def keeps(self) -> str:
        """Which epochs its producers must keep for it."""
        return (
            "from in(D - 1) - 1: what can still be in the state before what consumers need, and "
            "an epoch for late rows"
        )
