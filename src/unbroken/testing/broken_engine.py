"""How the engine and its checkpoints are used wrongly on purpose; as `broken`.

Most of these are what Spark would do by itself: what keeps it from that is left out.
"""

from __future__ import annotations

from typing import Any

from unbroken.gate import Gate
from unbroken.node.replica import Replica
from unbroken.testing import checkpoints, engine, epochs, shipments
from unbroken.testing.broken import Change
from unbroken.testing.checkpoints import Checkpoint, Fork
from unbroken.testing.follow import Follower
from unbroken.testing.operators import Batch, observe, step
from unbroken.testing.patches import patched


def wrong_epoch() -> list[Change]:
    """A fragment goes on one epoch after the one that it should."""
    begin = Gate.__init__

    def later(self: Gate, inputs: Any, *, committed: int) -> None:
        begin(self, inputs, committed=committed + (1 if committed > 0 else 0))

    return [(Gate, "__init__", later)]


def no_output_log() -> list[Change]:
    """A replica is taken for its checkpoint alone."""

    def take(peer: Any, fragment: str, folder: Any, **how: Any) -> Any:
        return before(peer, fragment, folder, **{**how, "before_seen": None})

    before = shipments.take
    return [(shipments, "take", take)]


def acks_before_commit() -> list[Change]:
    """An ack leaves when the output is sealed."""
    acks = Replica.acks

    def early(self: Replica, *told: Any) -> Any:
        gate = self._gate
        if gate is None:
            return []
        kept, gate.committed = gate.committed, gate.released
        try:
            return acks(self, *told)
        finally:
            gate.committed = kept

    return [(Replica, "acks", early)]


def first_input_only() -> list[Change]:
    """An epoch is complete when its first input is there."""

    def missing(self: Gate) -> list[str]:
        first = next(iter(self._offered))
        return [first] if self._offered[first] <= self.committed else []

    return [(Gate, "missing", property(missing))]


def no_fork() -> list[Change]:
    """A start takes the planned batch of its predecessor along."""
    fork = Checkpoint.fork

    def same(self: Checkpoint, at: Any) -> Checkpoint:
        made = fork(self, at)
        made.planned = self.planned
        return made

    return [(Checkpoint, "fork", same)]


def no_marks() -> list[Change]:
    """Each operator's watermark is forgotten with a restart."""
    return [(engine.Run, "restore_watermarks", lambda self: None)]


def oldest_fork() -> list[Change]:
    """A start goes on from the commit before the newest."""
    start = Fork.start

    def older(self: Fork, path: Any, **how: Any) -> Any:
        for checkpoint in checkpoints.folder_of(path).all():
            if len(checkpoint.commits) > 1:
                del checkpoint.commits[max(checkpoint.commits)]
        return start(self, path, **how)

    return [(Fork, "start", older)]


def answers_old_questions() -> list[Change]:
    """Whatever Spark asks after counts as committed."""

    def commit(self: Gate, after: int) -> None:
        if after in (self.released, self.committed):
            self.committed = after

    return [(Gate, "commit", commit)]


def extra_batches() -> list[Change]:
    """Whoever has nothing to do yet runs a batch without data, and closes windows with it."""
    compute = engine.Run._compute

    def eager(self: engine.Run, number: int, given: list[Any]) -> None:
        marks = observe(self._marks, self._plan.operator, [tuple(each.table) for each in given])

        def twice(operator: Any, state: Any, inputs: Any, batch: Batch, draw: Any) -> Any:
            state, rows = step(operator, state, inputs, batch, draw)
            empty = [() for _ in inputs]
            later = Batch(batch.evict_ms, marks.current_ms)
            state, more = step(operator, state, empty, later, draw)
            return state, rows + more

        has_time = any(newest <= number for newest in self.replica._gate._offered.values())
        with patched([(engine, "step", twice)] if has_time else []):
            compute(self, number, given)

    return [(engine.Run, "_compute", eager)]


def torn_is_served() -> list[Change]:
    """Nobody looks whether an epoch is whole after a power cut."""
    return [(epochs, "is_whole", lambda path, body=None: True)]


def living_folder() -> list[Change]:
    """What the giver works on is given, not a fork of it; what is committed is read last."""

    def layers(self: shipments.Giver, command: dict[str, Any]) -> list[Any]:
        living = self._open[command["shipment"]]
        newest = living.commits[max(living.commits)]
        return [newest if name[0] == "commits" else living.read(name) for name in command["names"]]

    def show(self: shipments.Attempt) -> None:
        taken = next(content for name, content in self._here.items() if name[0] == "commits")
        self._here["commits", taken.epoch] = taken
        before(self)

    before = shipments.Attempt.show
    return [(shipments.Giver, "_fork", lambda self, checkpoint, at: checkpoint),
            (shipments, "same", lambda layer, content: content is not None),
            (shipments.Giver, "_layers", layers), (shipments.Attempt, "show", show)]  # fmt: skip


def name_first() -> list[Change]:
    """A shipment has its name before its layers are here."""

    def steps(attempt: shipments.Attempt, before_seen: Any) -> None:
        if before_seen is not None:
            before_seen(attempt.epoch)
        attempt.show()
        attempt.bring()

    return [(shipments, "steps", steps)]


def fetched_is_had() -> list[Change]:
    """A consumer says what it has fetched, and keeps that: a restart would lose it."""

    def nothing_more(self: Follower, term: int) -> bool:
        return False

    return [(Follower, "_has_more", nothing_more)]


def says_what_it_works_on() -> list[Change]:
    """An epoch that is worked on counts as had."""

    def at_once(self: Gate, stream: str) -> int:
        self._offered[stream] = self.released
        return self.released + 1

    return [(Gate, "withdraw", at_once)]
