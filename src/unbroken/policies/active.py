"""Active replicas: every copy computes every epoch, and consumers take whichever comes first.

    producer ─┬─▶ copy 1 ─┬─▶ consumer: the first copy of an epoch wins, later ones are dropped
              └─▶ copy 2 ─┘

Nothing is shipped, detected or switched: a lost copy is not noticed by consumers.  The price is
the work, once per copy, and that all copies must compute the same (no `rand`, no current time).

>>> Active(replicas=3).survives(live=3)
2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unbroken.definitions import line_of_user
from unbroken.errors import DefinitionError
from unbroken.policies.policy import Policy

REPLICAS_MIN, REPLICAS_MAX = 2, 16


@dataclass(frozen=True)
class Active(Policy):
    """`replicas` copies that all run; all but one of them may be lost at once.

    >>> Active().text
    'active, 2 copies'
    """

    name: ClassVar[str] = "active"
    replicas: int = 2

    def __post_init__(self) -> None:
        # True is an int, and would be one replica.
        whole = isinstance(self.replicas, int) and not isinstance(self.replicas, bool)
        if not whole or not REPLICAS_MIN <= self.replicas <= REPLICAS_MAX:
            raise DefinitionError(
                f"{line_of_user()}: Active(replicas={self.replicas!r}) is not a number of copies",
                hint=f"a whole number from {REPLICAS_MIN} to {REPLICAS_MAX}; to survive the loss "
                "of k nodes at once write k + 1.  One copy is what a fragment has without a policy",
            )

    @property
    def text(self) -> str:
        """The policy as its name and what was chosen."""
        return f"{self.name}, {self.replicas} copies"

    @property
    def copies(self) -> int:
        """All that run.

        >>> Active(replicas=3).copies
        3
        """
        return self.replicas

    def survives(self, live: int) -> int:
        """All live copies but one.

        >>> Active(replicas=3).survives(2), Active().survives(1), Active().survives(0)
        (1, 0, 0)
        """
        return max(0, live - 1)

    @property
    def needs(self) -> str:
        """Which nodes it needs, and for what."""
        return f"{self.replicas} nodes: each computes every epoch"

    @property
    def keeps(self) -> str:
        """Which epochs its producers must keep for it."""
        return "from the lowest p + 1 of its copies: what the slowest one has not committed"
