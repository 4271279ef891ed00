"""A delay bound as a user writes it: what may be said together, and what may not.

    max_delay="3s"  when_cut="process" | "delay" | "suspend"  when_healed="correct" | "converge"

Refused, with the line of the user's file: words that are unknown, bounds that change nothing, and
policies under which a branch could not be given up by one copy alone.

This module only decides.
"""

from __future__ import annotations

from unbroken.definitions import seconds
from unbroken.errors import DefinitionError
from unbroken.policies import Policy, Restart
from unbroken.tentative.branch import (
    CONVERGE,
    CORRECT,
    PROCESS,
    SUSPEND,
    WHEN_CUT,
    WHEN_HEALED,
    Bound,
)

#: What `max_delay` may be.
DELAY_S_MIN, DELAY_S_MAX = 0.1, 86_400.0


def bound_of(
    max_delay: str | None, when_cut: str | None, when_healed: str | None, policy: Policy | None,
    where: str,
) -> Bound | None:  # fmt: skip
    """The delay bound of a fragment, checked; None if it waits for missing input, however long.

    >>> bound_of("3s", None, None, None, "line 7")
    Bound(delay_s_max=3.0, when_cut='process', when_healed='correct')
    >>> bound_of("3s", "suspend", None, None, "line 7") is None
    True
    """
    if when_healed not in (None, *WHEN_HEALED):
        raise DefinitionError(
            f"{where}: when_healed={when_healed!r} is unknown",
            hint=f"one of {', '.join(WHEN_HEALED)}",
        )
    if when_healed == CONVERGE and (max_delay is None or when_cut == SUSPEND):
        way = (
            "leave out when_cut='suspend', which waits for the input, however long"
            if when_cut == SUSPEND
            else 'say how long a result may wait for missing input: max_delay="3s"'
        )
        raise DefinitionError(
            f"{where}: when_healed='converge', but nothing is ever tentative",
            hint=f"{way}; or leave out when_healed",
        )
    if when_healed == CONVERGE and not isinstance(policy, Restart | None):
        raise DefinitionError(
            f"{where}: when_healed='converge' with the policy {policy.text!r}: another copy may "
            "have, or make again, what this one gives up, and consumers would disagree for ever",
            hint="leave out the policy, or take when_healed='correct'",
        )
    if when_cut not in (None, *WHEN_CUT):
        raise DefinitionError(
            f"{where}: when_cut={when_cut!r} is unknown", hint=f"one of {', '.join(WHEN_CUT)}"
        )
    if max_delay is None:
        if when_cut in (None, SUSPEND):
            return None
        raise DefinitionError(
            f"{where}: when_cut={when_cut!r} without max_delay",
            hint='say how long a result may wait for missing input: max_delay="3s"',
        )
    delay_s = seconds(max_delay)
    if delay_s is None or not DELAY_S_MIN <= delay_s <= DELAY_S_MAX:
        raise DefinitionError(
            f"{where}: {max_delay!r} is not a delay",
            hint='write it like "3s" or "500ms" (100 ms to 24 h)',
        )
    if when_cut == SUSPEND:
        return None
    return Bound(delay_s, when_cut or PROCESS, when_healed or CORRECT)
