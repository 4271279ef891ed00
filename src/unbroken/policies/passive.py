"""Passive standby: one copy runs, and ships what a backup needs to go on in its place.

    producer ──▶ primary ──▶ consumer
                    │ new layers and output, every interval
                    ▼
                  backup: goes on from the last shipment that it confirmed

Epochs that the primary wrote after its last confirmed shipment are computed again by the backup;
consumers drop them by number.  A longer interval ships less, and computes more again.

>>> Passive(interval="500ms").interval_s
0.5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unbroken.definitions import line_of_user, seconds
from unbroken.errors import DefinitionError
from unbroken.policies.policy import Policy

INTERVAL_S_MIN, INTERVAL_S_MAX = 0.01, 86_400.0


@dataclass(frozen=True)
class Passive(Policy):
    """A primary that runs and a backup that holds what was shipped every `interval`.

    >>> Passive().text
    'passive, shipped every 2s'
    """

    name: ClassVar[str] = "passive"
    interval: str = "2s"

    def __post_init__(self) -> None:
        length = seconds(self.interval)
        if length is None or not INTERVAL_S_MIN <= length <= INTERVAL_S_MAX:
            raise DefinitionError(
                f"{line_of_user()}: Passive(interval={self.interval!r}) is not a length of time",
                hint='how often to ship, like "2s", "500ms" or "1min" (10 ms to 24 h)',
            )

    @property
    def interval_s(self) -> float:
        """The interval in seconds.

        >>> Passive().interval_s
        2.0
        """
        length = seconds(self.interval)
        assert length is not None, "checked when it was made"
        return length

    @property
    def text(self) -> str:
        """The policy as its name and what was chosen."""
        return f"{self.name}, shipped every {self.interval.strip()}"

    @property
    def copies(self) -> int:
        """The primary and its backup.

        >>> Passive().copies
        2
        """
        return 2

    def survives(self, live: int) -> int:
        """One, while both are there.

        >>> Passive().survives(2), Passive().survives(1)
        (1, 0)
        """
        return 1 if live >= 2 else 0

    @property
    def needs(self) -> str:
        """Which nodes it needs, and for what."""
        return "2 nodes: a primary that computes, a backup that holds what was shipped"

    @property
    def keeps(self) -> str:
        """Which epochs its producers must keep for it."""
        return "from s + 1: what the backup has not confirmed"
