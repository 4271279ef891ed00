"""A user's own query as a workload, and the answer that must come out.

* Only how its fragments are protected may be ours; without a policy they are as written.
* No row is set aside for an event time in the future: a load may well lead there.
* The undisturbed run is a real one: the same epochs through the same query, and nobody is killed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from unbroken.errors import DefinitionError
from unbroken.measure.workload import EPOCH_S
from unbroken.policies import Policy, Restart
from unbroken.query import FUTURE_S_MAX, Query
from unbroken.running import run


class Own:
    """`query`, given `rate` rows per second in all."""

    #: Results carry what the query makes of the rows; when they were due is known by epoch.
    due: str | None = None

    def __init__(self, query: Query, rate: int) -> None:
        if not query.fragments:
            raise DefinitionError(
                f"query {query.name!r} has no fragment, so there is no state to lose",
                hint="take a query that computes something",
            )
        self._query, self._rate = query, rate

    def query(self, policy: Policy | None) -> Query:
        """The user's query, every fragment under `policy` if there is one."""
        made = copy.copy(self._query)
        made.sources = {
            name: replace(source, future_s_max=FUTURE_S_MAX)
            for name, source in made.sources.items()
        }
        made.fragments = {
            name: replace(fragment, policy=policy or fragment.policy)
            for name, fragment in made.fragments.items()
        }
        # A query whose producers close its epochs is given a clock: the load does not wait.
        made.epoch_s = made.epoch_s or EPOCH_S
        return made

    def answers(
        self, policy: Policy | None, sent: Mapping[str, Sequence[pa.Table]]
    ) -> Mapping[str, Sequence[pa.Table]]:
        """Runs the same epochs once more, undisturbed."""
        came = run(self.query(Restart()), sent)
        return {name: [epoch.table for epoch in epochs] for name, epochs in came.items()}
