"""A query that may become a tentative branch, and following what branches say.

    ask ┄┄ waits at the real gate, in a task ┄┄▶ work ─▶ seal, or say ─▶ commit ─▶ ask …
            └─ the bound is over: the real `Lines` parks a fork; this very query is the branch

    follower ─ stable ─────────┐
    listener ─ tentative ─ Hearing ─▶ a sink, or the inputs of a replica

* Only fragments with a delay bound run so: they wait for a time, and what waits is a task.  Others
  are asked about once, and told of news, which costs less.
* `Both` is `streams.both.Both` with messages.  Which epochs are taken is decided by the real
  `Hearing`; who has none to tell answers after a while all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any

from unbroken.engine.source import PLANNER_ROWS_MAX
from unbroken.errors import FenceError, UnbrokenError, Unreachable
from unbroken.policies.past import Marks
from unbroken.streams.follow import RETRY_S, WATCH_S
from unbroken.tentative.branch import followed
from unbroken.tentative.hearing import Hearing, Wanted
from unbroken.testing.engine import Run
from unbroken.testing.epochs import Epoch, Header
from unbroken.testing.follow import Follower
from unbroken.testing.network import Network
from unbroken.testing.tasks import block, spawn
from unbroken.testing.world import World

#: Whoever has nothing to tell of a branch says so after this time; later than that it is silent.
NEWS_S, SILENT_S = 2.0, 4.0
BODY_S = 1.0
#: Spark asks one source after the other: so long after each other, at most.
BETWEEN_S = 0.01


class BoundRun(Run):
    """One query of a fragment with a delay bound; it may become a branch."""

    #: What it asks for, and since when; for the checkers.
    asked: tuple[int, float] = -1, 0.0
    _epochs: list[Epoch] = []  # noqa: RUF012 - never changed, only replaced

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._busy = True  # It begins by itself, and once.

    def seal_with(self, seal: Callable[..., None]) -> None:
        """Another takes its epochs from now on: it is a branch."""
        self._seal, self.branch = seal, seal.__self__  # type: ignore[attr-defined]
        self._watch.parted(self)

    def lift_watermarks(self, missing: Collection[str]) -> None:
        """Windows close by the inputs that are there; as `engine.run.Run`."""
        marks = self._marks
        if len(marks.operators) < 2 or not missing:
            return
        lifted = followed(marks.operators, [{name} for name in self._plan.inputs], missing)
        known = [mark for mark in lifted if mark is not None]
        if lifted != list(marks.operators) and len(known) == len(lifted):
            self._marks = Marks(max(marks.current_ms, min(known)), tuple(lifted))

    def _guarded(self, do: Callable[[], None]) -> None:
        def refused() -> None:
            try:
                do()
            except FenceError as error:
                # To Spark it is an error like any other: the query has failed.
                self._failure = self._failure or error.what

        super()._guarded(refused)

    def _ask(self) -> None:
        self._busy = True
        self.asked = self._after + 1, self._world.now_s
        spawn(self._world, self._process, lambda: self._guarded(self._question))

    def _question(self) -> None:
        """In a task: Spark's sources are asked one after the other, and each blocks."""
        world, given = self._world, []
        for stream in self._plan.inputs:
            command = {
                "input": stream, "after": self._after, "term": self._term,
                "fragment": self._plan.name, "rows": PLANNER_ROWS_MAX,
            }  # fmt: skip
            while (epoch := self._process.door.gets["gate"](command)) is None:
                block(world, 0.001)
                if self.ended:
                    return
            given.append(epoch)
            if world.random.random() < 0.25:
                block(world, world.random.uniform(0.0, BETWEEN_S))
        if not self.ended:
            self._epochs = given
            self._work(self._after + 1)

    def _given(self, number: int) -> list[Any]:
        return self._epochs


class _Listener:
    """What is known of one replica's branch; as the names in `Both._listen`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.branch, self.start = "", 0
        self.question, self.asked_s = 0, -1e9


class Both:
    """Reads one stream from `start` on, stable and tentative epochs."""

    def __init__(
        self, world: World, network: Network, watch: Any, stream: str, start: int,
        find: Callable[[], Any], *, consumer: str, taken: Callable[[Epoch], None],
        heard: Callable[[Epoch], None], failed: Callable[[UnbrokenError], None],
        room: Callable[[], bool] = lambda: True, begin_anew: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        process = world.current
        assert process is not None
        self._world, self._network, self._process, self._watch = world, network, process, watch
        self._home = f"grpc://{process.name}:{process.life}"
        self.stream, self._find = stream, find
        self._taken, self._heard = taken, heard
        self.hearing = Hearing(start)
        #: Replicas that have to announce again: some rows did not come.
        self._again: set[str] = set()
        self._listeners: dict[str, _Listener] = {}
        self._questions = 0
        #: The tentative epoch whose rows are asked for.
        self._fetching: Wanted | None = None
        #: The branch that was heard last, and its number; for the checkers.
        self.newest = "", -1
        #: Whether nobody needs to be looked for: there never is a branch.
        self._enough = False
        self._follower = Follower(
            world, network, watch, stream, start, find, consumer=consumer, taken=self._came,
            failed=failed, room=room, known=self._known, begin_anew=begin_anew,
        )  # fmt: skip
        self._look()

    @property
    def merge(self) -> Any:
        """Of the stable epochs."""
        return self._follower.merge

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """What is taken from now on does not count: another still has to take it."""
        self._follower.speak_for(lacks)

    def more(self) -> None:
        """There is room again."""
        self._follower.more()

    def close(self) -> None:
        """Stops listening."""
        self._follower.close()

    @property
    def _over(self) -> bool:
        return self._follower.closed or self._enough

    # Stable ones.

    def _known(self, header: Header) -> Epoch | None:
        return self.hearing.known(header)  # type: ignore[return-value]

    def _came(self, epoch: Epoch) -> None:
        self._taken(self.hearing.replaced(epoch))  # type: ignore[arg-type]
        self._fetch()

    # Tentative ones.

    def _look(self) -> None:
        """Listens to every replica that the book names."""
        if self._over:
            return
        found, now_s = self._find(), self._world.now_s
        for gone in self._listeners.keys() - found.keys():
            self._silent(gone)
            del self._listeners[gone]
        for replica, address in found.items():
            known = self._listeners.get(replica)
            if known is None or known.address != address:
                self._listeners[replica] = _Listener(address)
                self._ask(replica)
            elif self._network.at(address) is None or now_s - known.asked_s > SILENT_S:
                self._silent(replica)
                self._ask(replica)
        self._fetch()
        self._world.at(WATCH_S, self._process, self._look)

    def _silent(self, replica: str) -> None:
        """It does not answer: what it says is heard from the beginning, when it does."""
        listener = self._listeners[replica]
        listener.branch, listener.start = "", 0
        self.hearing.silent(replica)

    def _ask(self, replica: str) -> None:
        listener = self._listeners[replica]
        if replica in self._again:
            self._again.discard(replica)
            listener.branch, listener.start = "", 0
        self._questions += 1
        listener.question, listener.asked_s = self._questions, self._world.now_s
        command = {
            "do": "tentative", "stream": self.stream, "branch": listener.branch,
            "from": listener.start,
        }  # fmt: skip
        self._network.message(
            self._process, listener.address, self._asked, replica, listener.question, command
        )

    def _asked(self, replica: str, question: int, command: dict[str, Any]) -> None:
        """At the producer: the answer, now or when there is news, or after a while."""
        there = self._world.current
        assert there is not None
        answer: Any
        try:
            handler = there.door.acts["tentative"]
            answer = handler(command)
        except (KeyError, UnbrokenError):
            answer = Unreachable("not ready")
        news = answer is None or isinstance(answer, Unreachable)
        if news or answer["headers"] or answer["branch"] != command["branch"]:
            self._network.message(there, self._home, self._told, replica, question, answer)
            return
        changed = handler.__self__[self.stream].tentative._changed
        waits = True

        def again() -> None:
            nonlocal waits
            if waits:
                waits = False
                self._world.at(0.0, there, answer_now)

        def answer_now() -> None:
            changed.watchers.remove(again)
            with contextlib.suppress(KeyError, UnbrokenError):
                told = there.door.acts["tentative"](command)
                self._network.message(there, self._home, self._told, replica, question, told)

        changed.watchers.append(again)
        self._world.at(NEWS_S, there, again)

    def _told(self, replica: str, question: int, answer: Any) -> None:
        listener = self._listeners.get(replica)
        if self._over or listener is None or listener.question != question:
            return
        if answer is None:
            self._enough = True  # This stream never has a branch, whoever serves it.
            return
        if isinstance(answer, Unreachable):
            self._silent(replica)
            self._world.at(RETRY_S, self._process, self._retry, replica, question)
            return
        headers = answer["headers"]
        if answer["branch"] != listener.branch:
            listener.branch, listener.start = answer["branch"], 0
        listener.start = headers[-1].number + 1 if headers else listener.start
        self.hearing.announced(replica, listener.branch, headers)
        self._ask(replica)
        self._fetch()

    def _retry(self, replica: str, question: int) -> None:
        listener = self._listeners.get(replica)
        if not self._over and listener is not None and listener.question == question:
            self._ask(replica)

    def _wanted(self) -> Wanted | None:
        return self.hearing.wanted(stable_next=self._follower.next)

    def _fetch(self) -> None:
        """Asks for the rows of the next tentative epoch, unless a stable one is there."""
        if self._over or self._fetching is not None or self.merge.wanted() is not None:
            return
        wanted = self._wanted()
        if wanted is None:
            return
        self._fetching = wanted
        listener = self._listeners.get(wanted.replica)
        address = listener.address if listener is not None else ""
        self._network.message(self._process, address, self._body, wanted)
        self._world.at(BODY_S, self._process, self._rows, wanted, None)

    def _body(self, wanted: Wanted) -> None:
        """At the producer."""
        there = self._world.current
        assert there is not None
        command = {"stream": self.stream, "branch": wanted.branch, "number": wanted.number}
        answer: Any = None
        with contextlib.suppress(KeyError, UnbrokenError):
            answer = there.door.gets["said"](command)
        self._network.message(there, self._home, self._rows, wanted, answer)

    def _rows(self, wanted: Wanted, said: Epoch | None) -> None:
        if self._over or self._fetching is not wanted:
            return
        self._fetching = None
        if said is None:
            self.hearing.failed(wanted)
            self._again.add(wanted.replica)
        elif self.merge.wanted() is None and self._wanted() == wanted:
            self._watch.follows(self, wanted, said)
            self._heard(self.hearing.taken(wanted, said))  # type: ignore[arg-type]
        self._fetch()
