"""The door: bounded, checked, and errors that arrive as what they were."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as raw
import pytest

from unbroken import errors
from unbroken.errors import BY_NAME, PortInUse, UnbrokenError, Unreachable
from unbroken.streams import flight, ports
from unbroken.streams.flight import COMMAND_BYTES_MAX, Door, Peer, checked_name


@pytest.fixture
def door() -> Iterator[Door]:
    with Door() as opened:
        opened.on_act("echo", lambda command: command)
        opened.on_put("count", lambda command, table: table.num_rows)
        opened.on_get("rows", lambda command: pa.table({"n": [1, 2]}))
        yield opened


@pytest.fixture
def peer(door: Door) -> Iterator[Peer]:
    with Peer(door.address) as connected:
        yield connected


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_words_and_rows_go_through(peer: Peer):
    """The three ways through a door, also with other alphabets and with no rows."""
    assert peer.act({"do": "echo", "text": "größer → 大"})["text"] == "größer → 大"
    assert peer.put({"do": "count"}, pa.table({"n": [1, 2, 3]})) == 3
    assert peer.put({"do": "count"}, pa.table({"n": pa.array([], pa.int64())})) == 0
    assert peer.get({"do": "rows"}).column("n").to_pylist() == [1, 2]


def test_not_yet_is_an_answer_and_not_an_error(door: Door, peer: Peer):
    """A handler without news says so before the caller's deadline."""
    door.on_get("news", lambda command: None)
    assert peer.get({"do": "news"}) is None


def test_nobody_there_is_known_at_once():
    """A refused connection is proof of death: tens of milliseconds, not a timeout."""
    with Peer(f"grpc://127.0.0.1:{free_port()}") as peer:
        began_s = time.monotonic()
        with pytest.raises(Unreachable, match=r"no answer from grpc://127.0.0.1:.* to 'status'"):
            peer.act({"do": "status"}, timeout_s=20.0)
        assert time.monotonic() - began_s < 5.0


def test_a_connection_that_is_closed_goes_with_the_last_call(door: Door):
    """Flight frees a closed connection under calls of other threads, and the process ends."""
    reached, go_on = threading.Event(), threading.Event()

    def wait(command: flight.Command) -> str:
        reached.set()
        assert go_on.wait(20)
        return "answered"

    door.on_act("wait", wait)
    peer = Peer(door.address)
    connection = weakref.ref(peer._client)
    answers: list[str] = []
    caller = threading.Thread(target=lambda: answers.append(peer.act({"do": "wait"})))
    caller.start()
    assert reached.wait(20)
    peer.close()
    assert connection() is not None
    with pytest.raises(Unreachable, match="was closed here"):
        peer.act({"do": "echo"})
    go_on.set()
    caller.join(20)
    assert answers == ["answered"]
    assert connection() is None


def test_closing_while_others_call_does_not_end_the_process():
    """Method: a process whose threads call as fast as they can, while connections are closed.
    With Flight's own `close` five of six such processes ended by a segmentation fault."""
    ended = subprocess.run([sys.executable, "-c", _CLOSING], capture_output=True, timeout=120)
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    assert int(ended.stdout) > 20


_CLOSING = """
import os, random, sys, threading, time
from unbroken.errors import Unreachable
from unbroken.streams.flight import Door, Peer

def call(peer):
    try:
        while True:
            peer.act({"do": "greet"})
    except Unreachable:
        pass

sys.setswitchinterval(1e-5)
door = Door()
door.on_act("greet", lambda command: "hello")
deadline, closed = time.monotonic() + 4.0, 0
while time.monotonic() < deadline:
    peer = Peer(door.address)
    callers = [threading.Thread(target=call, args=(peer,)) for _ in range(6)]
    for caller in callers:
        caller.start()
    time.sleep(random.random() * 0.004)  # At any moment of their calls.
    peer.close()
    for caller in callers:
        caller.join()
    closed += 1
print(closed, flush=True)
os._exit(0)
"""


def test_a_door_that_opens_later_is_found_by_the_same_peer():
    """A killed process is started again at its address: nobody has to connect anew."""
    port = free_port()
    with Peer(f"grpc://127.0.0.1:{port}") as peer:
        with pytest.raises(Unreachable):
            peer.act({"do": "echo"})
        with Door(port=port) as late:
            late.on_act("echo", lambda command: "here")
            deadline_s = time.monotonic() + 20
            while True:
                with contextlib.suppress(Unreachable):
                    assert peer.act({"do": "echo"}) == "here"
                    break
                assert time.monotonic() < deadline_s
                threading.Event().wait(0.02)


@pytest.mark.parametrize("way", ["act", "get", "put"])
def test_every_call_has_a_deadline(door: Door, peer: Peer, way: str):
    """A frozen process is not waited for; the deadline is the caller's."""
    frozen = threading.Event()
    door.on_act("freeze", lambda command: frozen.wait(30))
    door.on_get("freeze", lambda command: frozen.wait(30) and None)
    door.on_put("freeze", lambda command, table: frozen.wait(30))
    began_s = time.monotonic()
    try:
        arguments = (pa.table({"n": [1]}),) if way == "put" else ()
        with pytest.raises(Unreachable):
            getattr(peer, way)({"do": "freeze"}, *arguments, timeout_s=0.3)
        assert 0.25 < time.monotonic() - began_s < 10
    finally:
        frozen.set()


@pytest.mark.parametrize("kind", BY_NAME.values())
@pytest.mark.parametrize("way", ["act", "get", "put"])
def test_errors_arrive_as_what_they_were(door: Door, peer: Peer, kind, way: str):
    """Type, text and hint cross the wire, whichever way the call went."""

    def fail(*_: object) -> None:
        raise kind("größer\nthan 1", hint="make it smaller")

    door.on_act("fail", fail)
    door.on_get("fail", fail)
    door.on_put("fail", fail)
    arguments = (pa.table({"n": [1]}),) if way == "put" else ()
    with pytest.raises(kind) as caught:
        getattr(peer, way)({"do": "fail"}, *arguments)
    assert type(caught.value) is kind
    assert (caught.value.what, caught.value.hint) == ("größer\nthan 1", "make it smaller")


def test_every_error_has_a_name_on_the_wire():
    """Goal: nobody adds an error that would arrive as another one."""
    defined = {k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, Exception)}
    assert defined == set(BY_NAME.values())


@pytest.mark.parametrize("mistake", [OSError(28, "No space"), OverflowError("much"),
                                     AssertionError("never"), RuntimeError("bug")])  # fmt: skip
def test_a_mistake_of_ours_is_said_and_not_taken_for_an_outage(
    door: Door, peer: Peer, mistake: Exception, capsys
):
    """`Unreachable` would be tried again for a minute, and the reason would be in no log."""

    def fail(command: object) -> None:
        raise mistake

    door.on_act("fail", fail)
    with pytest.raises(UnbrokenError, match=f"failed inside: {type(mistake).__name__}") as caught:
        peer.act({"do": "fail"})
    assert type(caught.value) is UnbrokenError
    assert "Traceback" in capsys.readouterr().err


def test_a_door_that_is_not_ready_turns_callers_away_as_if_nobody_were_there():
    """A keeper that still reads its journals: clients try again instead of giving up."""
    with Door(ready=False) as door, Peer(door.address) as peer:
        door.on_act("status", lambda command: "fine")
        with pytest.raises(Unreachable, match="still starting"):
            peer.act({"do": "status"})
        door.ready = True
        assert peer.act({"do": "status"}) == "fine"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"7", b'"echo"', b"\xff\xfe", b"{}", b'{"do": null}',
     b'{"do": ["echo"]}', b'{"do": {"a": 1}}', b'{"do": "unknown"}', b'{"do": "__class__"}',
     b"[" * 5000, b'{"do": "echo", "x": ' + b"[" * 5000],
)  # fmt: skip
@pytest.mark.parametrize("way", ["act", "get", "put"])
def test_malformed_commands_are_refused_and_the_door_stays_open(door: Door, body: bytes, way: str):
    """Whatever a stranger sends: an error with a reason for him, nothing for the others."""

    def put(client: raw.FlightClient) -> None:
        descriptor = raw.FlightDescriptor.for_command(body)
        writer, reader = client.do_put(descriptor, pa.schema([("n", pa.int64())]))
        try:
            writer.done_writing()
            reader.read()
        finally:
            writer.close()

    say = {
        "act": lambda client: list(client.do_action(raw.Action("echo", body))),
        "get": lambda client: client.do_get(raw.Ticket(body)).read_all(),
        "put": put,
    }[way]
    with raw.FlightClient(door.address) as client, pytest.raises(raw.FlightError) as caught:
        say(client)
    kind, what, _ = json.loads(caught.value.extra_info)
    assert kind == "UnbrokenError"
    assert what.startswith(("malformed command", "this door does not know", "failed inside"))
    with Peer(door.address) as peer:
        assert peer.act({"do": "echo"}) == {"do": "echo"}


def test_a_command_that_lacks_a_field_says_which(door: Door, peer: Peer):
    """The caller's mistake is the caller's message."""
    door.on_act("need", lambda command: command["stream"])
    with pytest.raises(UnbrokenError, match="malformed command: KeyError 'stream'"):
        peer.act({"do": "need"})


def test_a_command_has_a_limit(peer: Peer):
    """Invariant 7: commands are words; rows have their own way in."""
    with pytest.raises(UnbrokenError, match=f"{COMMAND_BYTES_MAX} is the limit"):
        peer.act({"do": "echo", "text": "x" * COMMAND_BYTES_MAX})
    assert peer.act({"do": "echo"}) == {"do": "echo"}


def test_a_put_has_a_limit_too(peer: Peer, monkeypatch):
    """Invariant 7: one stranger cannot fill the memory; what was refused was not handled."""
    monkeypatch.setattr(flight, "PUT_BYTES_MAX", 10_000)
    assert peer.put({"do": "count"}, pa.table({"n": range(1000)})) == 1000
    with pytest.raises(UnbrokenError, match="more than 10,000 bytes"):
        peer.put({"do": "count"}, pa.table({"n": range(2000)}))
    assert peer.put({"do": "count"}, pa.table({"n": range(10)})) == 10


def test_rows_that_are_no_valid_arrow_data_are_refused(peer: Peer):
    """Broken offsets would end the process that reads them, broken text a later one."""
    ends = struct.pack("<3i", 0, 900, 2)
    beyond = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(ends), pa.py_buffer(b"ab")])
    ends = struct.pack("<2i", 0, 2)
    no_text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(b"\xff\xfe")]
    )
    for broken in (beyond, no_text):
        with pytest.raises(UnbrokenError, match="malformed command: ArrowInvalid"):
            peer.put({"do": "count"}, pa.table({"s": broken}))
    assert peer.put({"do": "count"}, pa.table({"s": ["fine"]})) == 1


@pytest.mark.parametrize(
    "name", ["", "..", "../etc", "a/b", "a.b", "a b", "a\n", "1st", "-x", "é", "a" * 101, None, 7,
             ["a"], {"a": 1}, b"a"],
)  # fmt: skip
def test_names_from_outside_cannot_leave_their_folder(name: object):
    """A name becomes part of a path: letters, digits, _ and - only."""
    with pytest.raises(UnbrokenError, match="is not a name"):
        checked_name(name)


def test_names_that_are_fine():
    """The other side of the limit."""
    for name in ("a", "_x", "Clicks-2", "a" * 100):
        assert checked_name(name) == name


@pytest.mark.parametrize("holder", ["a door", "a plain socket"])
def test_a_port_in_use_is_told_although_grpc_would_share_it(holder: str):
    """gRPC sets SO_REUSEPORT: two doors on one port would each get half of the calls."""
    with contextlib.ExitStack() as stack:
        if holder == "a door":
            port = stack.enter_context(Door()).port
        else:
            listening = stack.enter_context(socket.socket())
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            port = listening.getsockname()[1]
        with pytest.raises(PortInUse, match=f"127.0.0.1:{port}: Address already in use") as caught:
            Door(port=port)
        assert "--port" in caught.value.hint


def test_a_port_that_nobody_chose_is_not_given_away_by_the_kernel_when_its_door_is_gone():
    """Who still knocks there must find nobody, and not one of Spark's own sockets."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with contextlib.ExitStack() as stack:
        given = {stack.enter_context(Door()).port for _ in range(20)}
        assert len(given) == 20
        assert max(given) < first
        assert not given & {free_port() for _ in range(200)}


def test_where_every_port_is_the_kernels_a_door_takes_one_of_those(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Some machines give all ports away."""
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "_KERNELS", tmp_path / "range")
    with Door() as door, Peer(door.address) as peer:
        door.on_act("echo", lambda command: command)
        assert peer.act({"do": "echo"}) == {"do": "echo"}


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("no.such.host.invalid", 4715),
                                            ("no.such.host.invalid", 0)])  # fmt: skip
def test_a_place_where_nobody_can_listen_is_told_in_a_sentence(host: str, port: int):
    """A typing mistake in --host or --port is no stack trace."""
    with pytest.raises(PortInUse, match=f"cannot listen at {host}:{port}"):
        Door(host, port)


@pytest.mark.parametrize("address", ["", "nonsense", "ftp://x:1", "grpc://"])
def test_what_is_no_address_is_told(address: str):
    """And how an address is written."""
    with pytest.raises(Unreachable), Peer(address) as peer:
        peer.act({"do": "status"}, timeout_s=2.0)
