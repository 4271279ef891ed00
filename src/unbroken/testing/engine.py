"""The engine: a fragment that runs as Spark runs it, with Spark's ways of going wrong.

    held? ─▶ read the checkpoint ─▶ ask every input after n ─▶ plan n + 1 ─▶ seal ─▶ commit
                                        ▲ not yet: plans, waits                        │
                                        └────────────── "after n + 1?" ◀──────────────┘

* `Run` has the methods of `engine.run.Run` and asks the node's door, as Spark's sources do.
* Planning, sealing and committing are separate events: a process can die between any two of them.
* A batch that was planned and not committed is run again when a query starts on the same folder,
  before anybody is asked: only a fork avoids that.
* The checkpoint keeps the query's watermark and nothing of each operator's.
* It asks again for what it was given, and for what it has had: Spark plans a batch once more.
* A batch writes its changelog before it is committed, now and then twice: a task was run again.
  Snapshots of the state follow some time after.
* It can *stumble*: a worker process dies, the query ends, and a new start mends it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from unbroken.checkpoints.fork import Start
from unbroken.engine.source import AHEAD
from unbroken.errors import (
    DiskError,
    DivergenceError,
    FenceError,
    FragmentFailed,
    MisalignedBatch,
    UnbrokenError,
)
from unbroken.policies.past import Marks
from unbroken.testing.checkpoints import Checkpoint, Commit
from unbroken.testing.epochs import digest_of
from unbroken.testing.operators import Batch, Operator, observe, step
from unbroken.testing.pasts import Past
from unbroken.testing.world import World

START_S = 0.1, 0.6
BATCH_S = 0.004, 0.03
COMMIT_S = 0.001, 0.006
#: Every so many epochs a batch is run twice; every so many a snapshot of the state follows.
RERUN, SNAPSHOT = 3, 6
#: Every so many epochs Spark asks for one once more, and for one that it has had.
AGAIN = 5


#: Of every stream.
_SCHEMA = SimpleNamespace(empty_table=lambda: ())


class Plan:
    """What is known of a fragment's plan; as `engine.plan.Plan`."""

    def __init__(self, name: str, operator: Operator, inputs: tuple[str, ...]) -> None:
        self.name, self.operator = name, operator
        self.inputs = dict.fromkeys(inputs, _SCHEMA)
        self.traits = operator.traits
        self.schema = _SCHEMA
        self.fingerprint = f"{operator.name}-1"
        self.event_time = None
        self.notes_watermarks = operator.watermarks > 0


class Run:
    """One query of one term."""

    #: Who takes its epochs, if it is a tentative branch (see `branches`).
    branch: Any = None

    def __init__(
        self, world: World, watch: Any, plan: Plan, start: Start, seal: Callable[..., None],
    ) -> None:  # fmt: skip
        process = world.current
        assert process is not None
        self._world, self._process, self._watch = world, process, watch
        self._plan, self._seal = plan, seal
        self._checkpoint: Checkpoint = start.checkpoint  # type: ignore[assignment]
        self._term = start.term
        self._after = -1
        self._state: dict[Any, Any] = {}
        self._marks = Marks(0, (None,) * plan.operator.watermarks)
        self._late_ms = 0
        #: All inputs that its state was made of (see `pasts`).
        self._past: Past | None = None
        self._busy = self._stopped = False
        #: Whether it may plan ahead, by input; asked once.
        self._ahead: dict[str, bool] = {}
        #: Whether its last question was answered with "not yet".
        self._asking = False
        self._failure, self._stumbled = "", False
        #: The replica that it works for: Spark's sources find it behind the node's door.
        self.replica: Any = seal.__self__  # type: ignore[attr-defined]
        self.replica._changed.watchers.append(self._news)
        self._step: Callable[[], None] = self._begin
        watch.runs.append(self)
        world.at(world.random.uniform(*START_S), process, self._go)

    # What the replica asks of it.

    def go_on_from(self, epoch: int | None) -> None:
        """Its checkpoint is there."""

    def restore_watermarks(self) -> None:
        """Puts back every operator's watermark."""
        if self._plan.notes_watermarks and self._after in self._checkpoint.notes:
            self._marks = Marks(self._marks.current_ms, self._checkpoint.notes[self._after])

    def save_watermarks(self, epoch: int) -> None:
        """Notes every operator's watermark."""
        if self._plan.notes_watermarks:
            self._checkpoint.note(epoch, self._marks.operators)

    def marks(self) -> Marks:
        """The watermarks after the newest committed epoch."""
        return self._marks

    def put_marks(self, marks: Marks) -> None:
        """The watermarks of a seed."""
        self._marks = marks

    def stop(self) -> None:
        """Ends it."""
        self._stopped = True

    def failure(self) -> FragmentFailed | None:
        """Why it stopped, if it did by itself."""
        if not self._failure or self._stopped:
            return None
        failed = FragmentFailed(self._failure)
        failed.passing = self._stumbled
        return failed

    def stumble(self) -> None:
        """A worker process of its dies."""
        if not self._stopped and not self._failure:
            self._failure, self._stumbled = "Python worker exited unexpectedly", True

    @property
    def waits_for_nothing(self) -> bool:
        """Whether it heard "not yet" although its inputs are there: a log was full, say."""
        gate = self.replica._gate
        return self._asking and gate is not None and not gate.missing

    @property
    def ended(self) -> bool:
        """Whether it does nothing any more."""
        return self._stopped or bool(self._failure)

    # What it does.

    def _news(self) -> None:
        if self._busy or self.ended:
            return
        gate = self.replica._gate
        if self._asking and gate is not None and gate.missing:
            return  # It would only hear "not yet" once more.
        self.poke()

    def poke(self) -> None:
        """Asks again, if it waits: a source that heard "not yet" does so every few seconds."""
        if not self._busy and not self.ended:
            self._busy = True
            self._world.at(0.0, self._process, self._go)

    def _later(self, between: tuple[float, float], what: Callable[[], None]) -> None:
        self._busy, self._step = True, what
        delay_s = self._world.random.uniform(*between) * self._watch.slowness(self._process.name)
        self._world.at(delay_s, self._process, self._go)

    def _go(self) -> None:
        self._busy = False
        if not self.ended:
            self._guarded(self._step)

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except FenceError:
            self._stopped = True  # It asks under a term that is over: an orphan ends.
        except (DivergenceError, MisalignedBatch) as error:
            self._watch.went_astray(self._plan.name, error)
            self._failure = error.what
        except UnbrokenError as error:
            self._failure, self._stumbled = error.what, isinstance(error, DiskError)
            self._world.say(f"{self._plan.name} stopped: {error.what}")

    def _begin(self) -> None:
        door = self._process.door
        first = door.acts["held"]({"fragment": self._plan.name, "term": self._term})
        if first is None:
            return  # Asked again with the next news.
        commits = self._checkpoint.commits
        if commits:
            newest = commits[max(commits)]
            self._watch.goes_on(self._plan.name, self._checkpoint, newest)
            self._after, self._state = newest.epoch, newest.state
            self._marks = Marks(newest.mark_ms, (None,) * self._plan.operator.watermarks)
            self._late_ms, self._past = newest.late_ms, newest.past
        else:
            self._after = first - 1
        planned = self._checkpoint.planned
        if planned is not None and planned > self._after:
            # Before anybody is asked: Spark's own way of going on.
            if self.replica._gate.complete < planned:
                raise MisalignedBatch(f"{self._plan.name}: epoch {planned} is repeated unasked")
            self._work(planned)
            return
        self._step = self._ask
        self._ask()

    def _ask(self) -> None:
        gate = self._process.door.gets["gate"]
        number = None
        self._busy = True  # What its own question brings about is no news to it.
        for stream in self._plan.inputs:
            command = {
                "input": stream, "after": self._after, "term": self._term,
                "fragment": self._plan.name, "rows": False,
            }  # fmt: skip
            if stream not in self._ahead:
                self._ahead[stream] = gate({**command, "ahead": True}) is AHEAD
            if self._ahead[stream]:
                self._checkpoint.planned = self._after + 1
            epoch = gate(command)
            if epoch is None:
                self._busy, self._asking = False, True
                return
            number = epoch.number
        assert number is not None
        if number % AGAIN == 0:
            self._ask_again(gate, command, number)
        self._work(number)

    def _ask_again(self, gate: Callable[..., Any], command: dict[str, Any], number: int) -> None:
        """As Spark does when it plans once more: the same is the same, and the old is refused."""
        again = gate(command)
        if again is None or again.number != number:
            raise MisalignedBatch(f"{self._plan.name}: epoch {number} is another one now")
        try:
            gate({**command, "after": self._after - 1})
        except MisalignedBatch:
            return
        raise MisalignedBatch(f"{self._plan.name}: a question after {self._after - 1} is answered")

    def _work(self, number: int) -> None:
        self._asking = False
        self._checkpoint.planned = number
        inputs = self._given(number)
        if number != self._after + 1:
            raise MisalignedBatch(f"{self._plan.name}: epoch {number} after {self._after}")
        if number % RERUN == 0:
            # A task of it fails and is run again: the layer that it has written is rewritten.
            self._checkpoint.changelogs[number] = self
        self._watch.reads(self, inputs)
        if self.branch is None:
            self._watch.point(self._process, "planned", self._plan.name, number)
        self._later(BATCH_S, lambda: self._compute(number, inputs))

    def _given(self, number: int) -> list[Any]:
        return [self.replica._inputs.epoch(name, number) for name in self._plan.inputs]

    def _compute(self, number: int, epochs: list[Any]) -> None:
        inputs = [tuple(epoch.table) for epoch in epochs]
        batch = Batch(self._late_ms, self._marks.current_ms)
        operator = self._plan.operator
        state, rows = step(operator, self._state, inputs, batch, self._draw)
        self._world.touch()
        past, digest = Past(self._past, tuple(epochs)), digest_of(rows)
        self._checkpoint.changelogs[number] = past
        self._watch.seals(self, past, digest)
        self._seal(number, rows, digest)
        where = "sealed" if self.branch is None else "said"
        self._watch.point(self._process, where, self._plan.name, number)
        marks = observe(self._marks, operator, inputs)
        self._later(COMMIT_S, lambda: self._commit(number, state, marks, past))

    def _draw(self) -> int:
        return self._world.random.randrange(1, 1 << 30)

    def _commit(self, number: int, state: dict[Any, Any], marks: Marks, past: Past) -> None:
        late_ms = self._marks.current_ms
        done = Commit(number, state, marks.current_ms, late_ms, past)
        self._checkpoint.commit(done)
        if number % SNAPSHOT == 0:
            # Not by the world's chance: lives without shipments stay what they are.
            later_s = 0.05 * (1 + number // SNAPSHOT % 30)
            self._world.at(later_s, self._process, self._checkpoint.snapshot, done)
        self._after, self._state, self._marks, self._late_ms = number, state, marks, late_ms
        self._past = past
        self._step = self._ask
        self._ask()
