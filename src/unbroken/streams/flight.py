"""The door: the only module that talks over sockets, Arrow Flight and nothing else.

    Peer.get  {"do": "epoch", …}  ─▶  Door  ─▶  handler  ─▶  Arrow table   (rows come out)
    Peer.put  {"do": "send", …}   ─▶  Door  ─▶  handler  ─▶  JSON answer   (rows go in)
    Peer.act  {"do": "ack", …}    ─▶  Door  ─▶  handler  ─▶  JSON answer   (words only)

* Commands and answers are JSON; rows are Arrow.  Nothing is unpickled or evaluated.
* Every call has a deadline.  A handler that waits for news answers "not yet" before the caller's
  deadline, so no call hangs and none is taken for dead because there was nothing to say.
* A refused connection is `Unreachable` at once: proof that nobody is there.
* Errors cross the wire as name, text and hint, and are raised as what they were.
* What comes in is bounded and checked before a handler sees it: commands and rows of a put.
* A door binds to loopback unless told otherwise.

>>> door = Door()
>>> door.on_act("greet", lambda command: {"hello": command["name"]})
>>> with door, Peer(door.address) as peer:
...     peer.act({"do": "greet", "name": "ada"})
{'hello': 'ada'}
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from unbroken.errors import BY_NAME, UnbrokenError, Unreachable
from unbroken.streams.ports import Claim, cannot_listen, free_port

Command = dict[str, Any]
CALL_S_MAX = 20.0
#: How long a handler may wait for news before it answers "not yet".
POLL_S = 5.0
COMMAND_BYTES_MAX = 64 << 10
PUT_BYTES_MAX = 1 << 30
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")

#: What was sent and is not confirmed by the other kernel for so long was lost with its connection.
#: TCP would send it again, but waits ever longer: after a partition as long as that has lasted.
UNCONFIRMED_S_MAX = 5.0
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # How long one try to connect may take.
    ("grpc.min_reconnect_backoff_ms", int(UNCONFIRMED_S_MAX * 1000)),
    # Sets TCP_USER_TIMEOUT.  The pings that it is made for are so rare that no server minds.
    ("grpc.keepalive_timeout_ms", int(UNCONFIRMED_S_MAX * 1000)),
    ("grpc.keepalive_time_ms", 600_000),
]


class Door(flight.FlightServerBase):  # type: ignore[misc]
    """A process's door: handlers by name, served until `close`."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, ready: bool = True) -> None:
        self._get: dict[str, Callable[[Command], pa.Table | None]] = {}
        self._put: dict[str, Callable[[Command, pa.Table], Any]] = {}
        self._act: dict[str, Callable[[Command], Any]] = {}
        #: Flight serves from its first moment; until its owner is ready a door turns callers away.
        self.ready = ready
        #: Bytes of commands, rows and answers that came and went, by what was to be done.
        self._crossed: Counter[str] = Counter()
        self._counting = threading.Lock()
        #: Holds a port that nobody chose, as long as this door is open.
        self._claim = None if port else Claim(host)
        port = free_port(host, port) if self._claim is None else self._claim.port
        try:
            super().__init__(f"grpc://{host}:{port}")
        except (pa.ArrowException, OSError) as error:
            raise cannot_listen(host, port, _first_line(error)) from error
        self.address = f"grpc://{host}:{self.port}"

    def on_get(self, name: str, handler: Callable[[Command], pa.Table | None]) -> None:
        """`handler` answers gets called `name`; None means "not yet"."""
        self._get[name] = handler

    def on_put(self, name: str, handler: Callable[[Command, pa.Table], Any]) -> None:
        """`handler` takes the rows of puts called `name`."""
        self._put[name] = handler

    def on_act(self, name: str, handler: Callable[[Command], Any]) -> None:
        """`handler` answers actions called `name`."""
        self._act[name] = handler

    def crossed(self, *left_out: str) -> int:
        """Bytes of commands, rows and answers that came and went, without those `left_out`.

        >>> door = Door()
        >>> door.on_act("greet", lambda command: "hello")
        >>> with door, Peer(door.address) as peer:
        ...     _ = peer.act({"do": "greet"})
        >>> door.crossed(), door.crossed("greet")
        (22, 0)
        """
        with self._counting:
            return sum(n for name, n in self._crossed.items() if name not in left_out)

    def shipped(self) -> int:
        """Bytes of checkpoints that went out."""
        return self._crossed["layers"]

    def _count(self, command: Command, size: int) -> None:
        with self._counting:
            self._crossed[command["do"]] += size

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.RecordBatchStream:
        """Flight's own name for a get."""
        with _errors_for_the_wire():
            command, handler = self._route(ticket.ticket, self._get)
            table = handler(command)
            if table is not None:
                self._count(command, table.nbytes)
            return flight.RecordBatchStream(_NOT_YET if table is None else table)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Flight's own name for a put."""
        with _errors_for_the_wire():
            command, handler = self._route(descriptor.command or b"", self._put)
            table = _rows_of(reader)
            self._count(command, table.nbytes)
            answer = handler(command, table)
            writer.write(pa.py_buffer(json.dumps(answer).encode()))

    def do_action(self, context: Any, action: flight.Action) -> list[flight.Result]:
        """Flight's own name for an action."""
        with _errors_for_the_wire():
            command, handler = self._route(action.body.to_pybytes(), self._act)
            answer = json.dumps(handler(command)).encode()
            self._count(command, len(answer))
            return [flight.Result(pa.py_buffer(answer))]

    def _route(
        self, body: bytes, handlers: dict[str, Callable[..., Any]]
    ) -> tuple[Command, Callable[..., Any]]:
        if not self.ready:
            raise Unreachable(f"{self.address} is still starting", hint="try again in a moment")
        if len(body) > COMMAND_BYTES_MAX:
            raise UnbrokenError(f"a command of {len(body)} bytes, {COMMAND_BYTES_MAX} is the limit")
        command = json.loads(body)
        handler = handlers.get(str(command.get("do"))) if isinstance(command, dict) else None
        if handler is None:
            raise UnbrokenError(f"this door does not know {str(body)[:100]}")
        self._count(command, len(body))
        return command, handler

    def close(self) -> None:
        """Stops serving; calls under way get a moment to end."""
        # Flight's shutdown waits for calls under way, and they wait for news: don't wait for it.
        threading.Thread(target=self.shutdown, daemon=True).start()

    def __exit__(self, *error: object) -> None:
        self.close()


class Peer:
    """Another process's door, seen from here.  Safe for many threads.

    Flight's own `close` is never called: it frees the connection under calls that begin at that
    moment in other threads, and they end the whole process.  Whoever calls holds the connection;
    after `close` it goes with the last of them.
    """

    def __init__(self, address: str, *, apart: bool = False) -> None:
        """`apart`: with a connection of its own; others to the same address may share one."""
        self.address = address
        options = [*_CHANNEL, ("grpc.use_local_subchannel_pool", int(apart))]
        try:
            self._client: Any = flight.FlightClient(address, generic_options=options)
        except (pa.ArrowException, ValueError) as error:
            raise Unreachable(
                f"{address!r} is not an address: {error}", hint="write it as grpc://HOST:PORT"
            ) from error

    def get(self, command: Command, *, timeout_s: float = CALL_S_MAX) -> pa.Table | None:
        """Asks for rows; None means "not yet"."""
        with self._call(command) as client:
            ticket = flight.Ticket(json.dumps(command).encode())
            table = client.do_get(ticket, _deadline(timeout_s)).read_all()
        return None if _NOT_YET_KEY in (table.schema.metadata or {}) else table

    def put(self, command: Command, table: pa.Table, *, timeout_s: float = CALL_S_MAX) -> Any:
        """Sends rows and waits for the answer."""
        with self._call(command) as client:
            descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
            writer, reader = client.do_put(descriptor, table.schema, _deadline(timeout_s))
            try:
                writer.write_table(table)
                writer.done_writing()
                answer = reader.read()
            finally:
                writer.close()
        if answer is None:
            raise Unreachable(f"{self.address} closed the connection before it answered")
        return json.loads(answer.to_pybytes())

    def act(self, command: Command, *, timeout_s: float = CALL_S_MAX) -> Any:
        """Says something and waits for the answer."""
        with self._call(command) as client:
            action = flight.Action(command["do"], json.dumps(command).encode())
            (result,) = client.do_action(action, _deadline(timeout_s))
            return json.loads(result.body.to_pybytes())

    @contextlib.contextmanager
    def _call(self, command: Command) -> Iterator[Any]:
        """The connection, held for one call; what goes wrong is said in our own words."""
        client = self._client
        if client is None:
            raise Unreachable(f"the connection to {self.address} was closed here")
        try:
            yield client
        except (pa.ArrowException, OSError) as error:
            extra = getattr(error, "extra_info", b"")
            if extra:
                name, what, hint = json.loads(extra)
                raise BY_NAME.get(name, UnbrokenError)(what, hint=hint) from None
            raise Unreachable(
                f"no answer from {self.address} to {command.get('do')!r}: {_first_line(error)}",
                hint="is the cluster running there? unbroken status --at ADDRESS tells",
            ) from error

    def close(self) -> None:
        """No call begins any more; the connection ends with the last one that is under way."""
        self._client = None

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_NOT_YET_KEY = b"unbroken.not-yet"
_NOT_YET = pa.table({}).replace_schema_metadata({_NOT_YET_KEY: b"1"})


def checked_name(name: object) -> str:
    """A name from outside, fit to be part of a file name.

    >>> checked_name("../etc")
    Traceback (most recent call last):
    ...
    unbroken.errors.UnbrokenError: '../etc' is not a name
      → names are letters, digits, _ and -, at most 100, and begin with a letter or _
    """
    if isinstance(name, str) and NAME.fullmatch(name):
        return name
    raise UnbrokenError(
        f"{name!r} is not a name",
        hint="names are letters, digits, _ and -, at most 100, and begin with a letter or _",
    )


def checked_consumer(name: object) -> str:
    """A consumer's name from outside: a plain name, or a replica's, which names its node too.

    >>> checked_consumer("suspects@node-1")
    'suspects@node-1'
    """
    text = str(name)
    if not _is_consumer(text):
        for part in text.split("@", 1):
            checked_name(part)
    return text


@lru_cache(maxsize=4096)
def _is_consumer(name: str) -> bool:
    """Remembered: the same few names come with every question and every ack."""
    return all(NAME.fullmatch(part) for part in name.split("@", 1))


def _rows_of(reader: Any) -> pa.Table:
    batches, size = [], 0
    for chunk in reader:
        if chunk.data is None:
            continue
        size += chunk.data.nbytes
        if size > PUT_BYTES_MAX:
            raise UnbrokenError(
                f"a put of more than {PUT_BYTES_MAX:,} bytes",
                hint="send fewer rows at a time: none of these was taken",
            )
        batches.append(chunk.data)
    table = pa.Table.from_batches(batches, reader.schema)
    table.validate(full=True)  # Broken offsets would end this process, broken text a later one.
    return table


@contextlib.contextmanager
def _errors_for_the_wire() -> Any:
    try:
        yield
    except UnbrokenError as error:
        extra = json.dumps([type(error).__name__, error.what, error.hint]).encode()
        raise flight.FlightServerError(str(error), extra_info=extra) from None
    except (KeyError, TypeError, ValueError) as error:
        raise _for_the_wire(f"malformed command: {type(error).__name__} {error}") from error
    except Exception as error:
        # A mistake of ours: said as such, or the caller would take the silence for an outage.
        traceback.print_exc()
        raise _for_the_wire(f"failed inside: {type(error).__name__} {error}") from error


def _for_the_wire(text: str) -> flight.FlightServerError:
    extra = json.dumps(["UnbrokenError", text, ""]).encode()
    return flight.FlightServerError(text, extra_info=extra)


def _deadline(timeout_s: float) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(timeout=timeout_s)


def _first_line(error: Exception) -> str:
    return str(error).split(". gRPC client debug context", 1)[0].splitlines()[0]
