"""What a user writes: a query is a graph of fragments joined by streams.

    source ──▶ fragment ──▶ fragment ──▶ sink
                  ▲
    source ───────┘         any directed acyclic graph

* A *source* is a stream whose rows come from outside; a *fragment* is a PySpark function from
  streaming DataFrames to a streaming DataFrame, and its output is a stream of the same name.
* Everything that can be wrong with a graph is said before anything starts, with the line of the
  user's file: at definition where possible, at `check()` for what needs the whole graph, and at
  `explain` for what only Spark can tell.

This module knows neither Spark nor processes.

>>> query = Query("shop", epoch="1s")
>>> clicks = query.source("clicks", "ts TIMESTAMP, page STRING", event_time="ts")
>>> @query.fragment(clicks)
... def pages(clicks):
...     return clicks.select("page")
>>> query.sink(pages)
>>> [stream.name for stream in query.check()]
['clicks', 'pages']
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from unbroken import schemas
from unbroken.definitions import line_of_user, seconds
from unbroken.errors import DefinitionError, UnbrokenError
from unbroken.policies import Gap, Policy, Restart, Upstream
from unbroken.policies.guarantee import check_way, gaps_before
from unbroken.streams.flight import checked_name
from unbroken.streams.giving_up import GIVE_UP, WAIT, WHEN_FULL
from unbroken.tentative.branch import Bound
from unbroken.tentative.given import bound_of

OUTPUT_MODES = ("append", "update")
#: Where a fragment keeps its state.
ROCKSDB, MEMORY = STATES = ("rocksdb", "memory")
MANUAL = "manual"
EPOCH_S_MIN, EPOCH_S_MAX = 0.01, 86_400.0
FUTURE_S_MAX = 1e9


@dataclass(frozen=True)
class Source:
    """A stream whose rows come from outside; made by `Query.source`.

    >>> Query("q").source("clicks", "page STRING").name
    'clicks'
    """

    name: str
    schema: pa.Schema
    event_time: str | None
    future_s_max: float
    where: str
    #: What it does at the limit of its log: one of `WHEN_FULL`.
    when_full: str = WAIT


@dataclass(frozen=True)
class Fragment:
    """A piece of the query that runs as one Spark query; made by `Query.fragment`.

    >>> q = Query("q"); clicks = q.source("clicks", "page STRING")
    >>> q.fragment(clicks)(lambda clicks: clicks, name="copy").inputs
    ('clicks',)
    """

    name: str
    inputs: tuple[str, ...]
    function: Callable[..., Any]
    output_mode: str
    where: str
    policy: Policy = field(default_factory=Restart)
    #: Where Spark keeps its state: one of `STATES`.
    state: str = ROCKSDB
    #: How long it waits for input that is cut off; None: however long it takes.
    bound: Bound | None = None

    @property
    def about(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").split("\n")[0]


Stream = Source | Fragment


class Query:
    """A continuous query: sources, fragments and sinks under one epoch clock.

    `epoch` is the length of an epoch ("1s", "500ms", "2min"), or "manual": then producers say
    when an epoch ends.

    >>> Query("intrusion", epoch="500ms").epoch_s
    0.5
    """

    def __init__(self, name: str, *, epoch: str = "1s") -> None:
        self.where = line_of_user()
        self.name = self._name(name)
        self.epoch_s = None if epoch == MANUAL else self._seconds(epoch)
        self.sources: dict[str, Source] = {}
        self.fragments: dict[str, Fragment] = {}
        self.sinks: list[str] = []
        self._sink_lines: dict[str, str] = {}

    def source(
        self,
        name: str,
        schema: str,
        event_time: str | None = None,
        *,
        future_s_max: float = 86_400.0,
        when_full: str = WAIT,
    ) -> Source:
        """Declares a stream whose rows come from outside.

        Rows whose `event_time` lies more than `future_s_max` seconds ahead of the clock are set
        aside and counted, because one of them would make all others late.

        `when_full` says what happens when a consumer is cut off for longer than its log can hold:
        "wait" pushes back on whoever sends, so nothing is lost; "give_up" keeps taking rows, and
        gives up the oldest epochs: they become gaps, which say how many rows were lost.

        >>> Query("q").source("clicks", "ts TIMESTAMP, page STRING", event_time="ts").event_time
        'ts'
        """
        where = line_of_user()
        self._unused(name, where)
        if not isinstance(schema, str):
            raise DefinitionError(
                f"{where}: the schema of source {name!r} is {type(schema).__name__}, not text",
                hint='write it as Spark DDL: "ts TIMESTAMP, page STRING"',
            )
        if not 0 <= future_s_max <= FUTURE_S_MAX:
            raise DefinitionError(
                f"{where}: source {name!r} has future_s_max={future_s_max!r}",
                hint=f"seconds, from 0 to {FUTURE_S_MAX:.0f}",
            )
        if when_full not in WHEN_FULL:
            raise DefinitionError(
                f"{where}: source {name!r} has when_full={when_full!r}",
                hint=f"one of {', '.join(WHEN_FULL)}",
            )
        try:
            parsed = schemas.parse(schema)
        except UnbrokenError as error:
            raise type(error)(f"{where}: source {name!r}: {error.what}", hint=error.hint) from None
        if event_time is not None:
            if event_time not in parsed.names:
                raise DefinitionError(
                    f"{where}: source {name!r} has no column {event_time!r} for its event time",
                    hint=f"its columns are {', '.join(parsed.names)}",
                )
            if not pa.types.is_timestamp(parsed.field(event_time).type):
                raise DefinitionError(
                    f"{where}: the event time {event_time!r} of source {name!r} is not a TIMESTAMP",
                    hint="declare the column as TIMESTAMP; numbers of seconds are converted",
                )
        made = Source(name, parsed, event_time, float(future_s_max), where, when_full)
        self.sources[name] = made
        return made

    def fragment(
        self, *inputs: Stream | str, output_mode: str = "append", policy: Policy | None = None,
        state: str = ROCKSDB, max_delay: str | None = None, when_cut: str | None = None,
        when_healed: str | None = None,
    ) -> Callable[..., Fragment]:  # fmt: skip
        """Declares a fragment: decorates a function from DataFrames to a DataFrame.

        Inputs are stream handles, or names of streams that are defined elsewhere in the file.
        `policy` says how the fragment is protected: Active, Passive, Upstream or Gap.  Without
        one it has one copy, which is started again on its own node.

        `state="memory"` keeps state in the JVM's memory, as plain Spark does: faster while it
        is small (say below 200,000 keys, with many of them changing in every epoch).  RocksDB
        keeps it on disk, ships less of it, and has room for millions of keys.

        `max_delay` is how long a new result may wait for input that is cut off.  Then the
        fragment goes on with the inputs that are there, and says that its epochs are tentative;
        when the rest has come they are replaced by stable ones.  `when_cut` says how: "process"
        (the next ones follow as they come), "delay" (each waits as long, for fewer tentative
        rows) or "suspend" (none is tentative: as without `max_delay`).  `when_healed="converge"`
        gives tentative epochs up instead of correcting them, for fragments that come right by
        themselves: they become gaps, and stable results go on from the newest epoch.

        >>> from unbroken.policies import Active
        >>> q = Query("q"); clicks = q.source("clicks", "page STRING, n INT")
        >>> @q.fragment(clicks, output_mode="update", policy=Active(replicas=2))
        ... def counts(clicks):
        ...     return clicks.groupBy("page").count()
        >>> counts.name, counts.inputs, counts.policy.text
        ('counts', ('clicks',), 'active, 2 copies')
        """
        where = line_of_user()
        if not inputs:
            raise DefinitionError(
                f"{where}: a fragment without inputs",
                hint="name the streams that it reads: @query.fragment(connections)",
            )
        if output_mode not in OUTPUT_MODES:
            raise DefinitionError(
                f"{where}: output mode {output_mode!r} is unknown",
                hint=f"one of {', '.join(OUTPUT_MODES)} (complete would send everything again "
                "in every epoch)",
            )
        if state not in STATES:
            raise DefinitionError(
                f"{where}: state in {state!r} is unknown", hint=f"one of {', '.join(STATES)}"
            )
        if policy is not None and not isinstance(policy, Policy):
            raise DefinitionError(
                f"{where}: {policy!r} is not a policy",
                hint="one of ub.Active(replicas=2), ub.Passive(interval='2s'), ub.Upstream(), "
                "ub.Gap(); or none, for one copy that is started again on its own node",
            )
        bound = bound_of(max_delay, when_cut, when_healed, policy, where)
        names = tuple(self._input(given, where) for given in inputs)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DefinitionError(
                f"{where}: the stream {twice[0]!r} is an input twice",
                hint="one parameter is enough: the function may use its DataFrame twice",
            )

        def decorate(function: Callable[..., Any], name: str | None = None) -> Fragment:
            made_name = name or str(getattr(function, "__name__", ""))
            _check_function(function, len(names), where)
            self._unused(made_name, where)
            made = Fragment(
                made_name, names, function, output_mode, where, policy or Restart(), state, bound
            )
            self.fragments[made_name] = made
            return made

        return decorate

    def sink(self, stream: Stream | str) -> None:
        """Declares that the epochs of `stream` are results: clients and directories read them.

        >>> q = Query("q"); clicks = q.source("clicks", "page STRING"); q.sink(clicks); q.sinks
        ['clicks']
        """
        where = line_of_user()
        name = self._input(stream, where)
        if name not in self.sinks:
            self.sinks.append(name)
            self._sink_lines[name] = where

    def __getitem__(self, name: str) -> Stream:
        """The source or fragment called `name`."""
        found = self.sources.get(name) or self.fragments.get(name)
        if found is None:
            known = ", ".join([*self.sources, *self.fragments]) or "none yet"
            raise DefinitionError(
                f"query {self.name!r} has no stream {name!r}", hint=f"its streams: {known}"
            )
        return found

    def consumers(self, name: str) -> list[str]:
        """The fragments that read stream `name`."""
        return [f.name for f in self.fragments.values() if name in f.inputs]

    def gives_up(self, name: str) -> bool:
        """Whether a full log of this stream gives up its oldest epochs: its sources all do.

        >>> query = Query("shop")
        >>> clicks = query.source("clicks", "page STRING", when_full="give_up")
        >>> _ = query.fragment(clicks)(lambda clicks: clicks, name="pages")
        >>> query.gives_up("pages")
        True
        """
        stream = self[name]
        if isinstance(stream, Source):
            return stream.when_full == GIVE_UP
        # What is rebuilt from the logs of others must find there what it was made of.
        kept = isinstance(stream.policy, Upstream | Gap)
        return not kept and all(map(self.gives_up, stream.inputs))

    def check(self) -> list[Stream]:
        """All streams in the order of the data, or what is wrong with the graph as a whole."""
        for fragment in self.fragments.values():
            for name in fragment.inputs:
                self._known(name, f"{fragment.where}: fragment {fragment.name!r}")
        for name in self.sinks:
            self._known(name, f"{self._sink_lines[name]}: a sink")
        if not self.sinks:
            raise DefinitionError(
                f"{self.where}: query {self.name!r} has no sink",
                hint="say which stream is the result: query.sink(suspects)",
            )
        ordered: list[Stream] = list(self.sources.values())
        done = set(self.sources)
        waiting = dict(self.fragments)
        while waiting:
            ready = [f for f in waiting.values() if done.issuperset(f.inputs)]
            if not ready:
                cycle = _cycle(waiting)
                raise DefinitionError(
                    f"{waiting[cycle[0]].where}: a cycle through {', '.join(cycle)}",
                    hint="a fragment must not read its own output, not even by way of others",
                )
            for fragment in ready:
                ordered.append(waiting.pop(fragment.name))
                done.add(fragment.name)
        for name, gaps in gaps_before(f for f in ordered if isinstance(f, Fragment)).items():
            check_way(self.fragments[name], self.fragments[name].where, gaps)
        return ordered

    def _known(self, name: str, who: str) -> None:
        if name not in self.sources and name not in self.fragments:
            known = ", ".join([*self.sources, *self.fragments])
            raise DefinitionError(
                f"{who} reads the unknown stream {name!r}", hint=f"the streams are: {known}"
            )

    def _input(self, given: object, where: str) -> str:
        if isinstance(given, Source | Fragment):
            if self.sources.get(given.name) is not given and (
                self.fragments.get(given.name) is not given
            ):
                raise DefinitionError(
                    f"{where}: stream {given.name!r} belongs to another query",
                    hint=f"define it on query {self.name!r}",
                )
            return given.name
        if isinstance(given, str):
            return given
        raise DefinitionError(
            f"{where}: {given!r} is not a stream",
            hint="pass what query.source or @query.fragment gave, or a stream's name",
        )

    def _unused(self, name: str, where: str) -> None:
        try:
            checked_name(name)
        except UnbrokenError as error:
            raise DefinitionError(f"{where}: {error.what}", hint=error.hint) from None
        if name in self.sources or name in self.fragments:
            raise DefinitionError(
                f"{where}: a second stream called {name!r}; the first is at {self[name].where}",
                hint="give it another name",
            )

    def _name(self, name: str) -> str:
        try:
            return checked_name(name)
        except UnbrokenError as error:
            raise DefinitionError(f"{self.where}: {error.what}", hint=error.hint) from None

    def _seconds(self, epoch: str) -> float:
        length = seconds(epoch)
        if length is None or not EPOCH_S_MIN <= length <= EPOCH_S_MAX:
            raise DefinitionError(
                f"{self.where}: {epoch!r} is not an epoch length",
                hint='write it like "1s", "500ms" or "2min" (10 ms to 24 h), or "manual"',
            )
        return length


def _cycle(waiting: dict[str, Fragment]) -> list[str]:
    """The fragments of one cycle, in the order of the data, given that each waits for another."""
    path = [next(iter(waiting))]
    while True:
        before = next(name for name in waiting[path[-1]].inputs if name in waiting)
        if before in path:
            return path[path.index(before) :][::-1]
        path.append(before)


def _check_function(function: Callable[..., Any], inputs: int, where: str) -> None:
    if not callable(function) or inspect.isclass(function):
        raise DefinitionError(
            f"{where}: {function!r} is not a function of streaming DataFrames",
            hint="decorate a function that takes DataFrames and returns one",
        )
    try:
        inspect.signature(function).bind(*range(inputs))
    except ValueError:
        return  # Written in C, without a signature: Spark will tell.
    except TypeError as error:
        raise DefinitionError(
            f"{where}: fragment {getattr(function, '__name__', '?')!r} reads {inputs} streams, "
            f"but its function cannot take them: {error}",
            hint="one parameter per input stream, in their order",
        ) from None
