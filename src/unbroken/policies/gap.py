"""Gap: after a failure go on with what comes now; what was missed is lost, and said to be lost.

    epochs delivered   1 2 3 4 | 5 6 7 missing, as a recorded gap | 8 9 ...
                               ^ failure                            ^ another node, empty state

It costs nothing while all is well.  For results that nobody needs late: the hole is recorded once
and delivered number by number, so that no consumer takes it for an empty epoch.

>>> Gap().survives(1)       # It goes on, but not without loss.
0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unbroken.policies.policy import Policy


@dataclass(frozen=True)
class Gap(Policy):
    """One copy; after a failure another node starts empty at the newest complete epoch.

    >>> Gap().text
    'gap'
    """

    name: ClassVar[str] = "gap"

    @property
    def copies(self) -> int:
        """The one that runs."""
        return 1

    def survives(self, live: int) -> int:
        """None without loss.

        >>> Gap().survives(1)
        0
        """
        return 0

    @property
    def needs(self) -> str:
        """Which nodes it needs, and for what."""
        return "1 node, and another one that is free when it fails"

    @property
    def keeps(self) -> str:
        """Which epochs its producers must keep for it."""
        return "from p + 1: what it has not read"
