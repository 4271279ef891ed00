"""All of `kinds` in one session: each lives twice, and dies in between at the worst moment."""

from __future__ import annotations

import functools
from functools import partial
from pathlib import Path
from typing import Any

import kinds
from pyspark import cloudpickle
from spark_rig import SparkRig

from unbroken import schemas
from unbroken.engine import plan as plans
from unbroken.epochs import Epoch
from unbroken.testing.trial import SEALED, Feed


class KindsRig(SparkRig):
    """A rig for the fragments of `kinds`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # Spark's Python processes cannot import a test's modules.
        cloudpickle.register_pickle_by_value(kinds)
        self._schemas = {name: source.schema for name, source in kinds.query.sources.items()}
        #: By stream; whoever reads a fragment has it live first.
        self.epochs = functools.cache(self._epochs)
        self._fed = kinds.epochs(kinds.COUNT)

    def close(self) -> None:
        """Ends the session."""
        cloudpickle.unregister_pickle_by_value(kinds)
        super().close()

    def _define(self, operator: str, inputs: tuple[str, ...]) -> tuple[Any, Any, plans.Plan]:
        fragment = kinds.query.fragments[operator]
        analyze = partial(plans.analyze, self._spark, kinds.query, fragment, dict(self._schemas))
        known = analyze()
        self._schemas[operator] = known.schema
        return fragment, analyze, known

    def _epochs(self, stream: str, count: int, dies: int) -> list[Epoch]:
        """The first epochs of a source, or of a fragment that dies when it has sealed `dies`."""
        if stream in self._fed:
            return [
                Epoch.of(
                    stream, number, schemas.fit(rows, self._schemas[stream]), event_time="ts",
                    sealed_us=1,
                )
                for number, rows in enumerate(self._fed[stream][:count])
            ]  # fmt: skip
        inputs = kinds.query.fragments[stream].inputs
        feed = Feed(inputs)
        for name in inputs:
            for epoch in self.epochs(name, count, dies):
                feed.give(name, epoch)
        first = self.replica(stream, inputs, stream, feed, (SEALED, dies))
        self.start(first)
        self.wait(lambda: first.failed, f"{stream} dies")
        first.stop()
        sealed, committed = first.log.next - 1, self.commits(stream)[-1]
        assert (sealed, committed) == (dies, dies - 1), first.failed
        again = self.replica(stream, inputs, stream, feed, None)
        self.start(again)
        assert (again.first, again.term) == (dies, first.term + 1), "every start is a fork"
        self.wait(lambda: again.committed >= count - 1 or again.failed, f"{stream} ends")
        assert not again.failed, again.failed
        assert self.commits(stream)[-1] == count - 1, "one micro-batch per epoch, also after forks"
        again.stop()
        return [again.log.read(number) for number in range(again.log.first, again.log.next)]
