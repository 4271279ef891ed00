"""What a process has to say to many doors, some of which do not listen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from unbroken.errors import UnbrokenError, Unreachable
from unbroken.node.book import BookReader
from unbroken.node.speaker import Speaker
from unbroken.streams.flight import Door, Peer
from unbroken.streams.ports import free_port


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_frozen_producer_does_not_hold_up_the_others():
    """Without a thread per door the second producer would hear nothing until the first answers."""
    thaw, heard = threading.Event(), []
    frozen, lively, entry = Door(), Door(), Door()
    frozen.on_act("ack", lambda command: thaw.wait(60))
    lively.on_act("ack", lambda command: heard.append(command["processed"]))
    page = {"s": {"s@node-1": frozen.address, "s@node-2": lively.address}}
    entry.on_act("book", lambda command: {"streams": page, "alone": {}})
    with frozen, lively, entry, Peer(entry.address) as peer:
        book = BookReader(peer)
        for number in range(3):
            book.tell("s", {"do": "ack", "consumer": "c", "processed": number})
            until(lambda: heard and heard[-1] == number)  # noqa: B023
        assert not thaw.is_set()
        thaw.set()


def test_only_the_newest_word_of_a_consumer_is_said():
    """A door that was away hears the last ack, not all that it has missed."""
    heard: list[int] = []
    port = free_port("127.0.0.1")
    speaker = Speaker(f"grpc://127.0.0.1:{port}")
    for number in range(50):
        speaker.say("s", {"do": "ack", "consumer": "c", "processed": number})
    with Door("127.0.0.1", port) as door:
        door.on_act("ack", lambda command: heard.append(command["processed"]))
        until(lambda: heard)
    assert heard == [49]
    speaker.close()


def test_a_refused_word_is_not_said_again():
    """A fenced replica is told so, once per word; the next one is heard as ever."""
    heard: list[int] = []

    def ack(command):
        heard.append(command["processed"])
        if command["processed"] == 0:
            raise UnbrokenError("no")

    with Door() as door:
        door.on_act("ack", ack)
        speaker = Speaker(door.address)
        speaker.say("s", {"do": "ack", "consumer": "c", "processed": 0})
        until(lambda: heard)
        speaker.say("s", {"do": "ack", "consumer": "c", "processed": 1})
        until(lambda: heard[-1] == 1)
        assert heard == [0, 1]
        speaker.close()


def test_a_word_for_a_stream_that_has_left_a_door_does_not_silence_the_others():
    heard: list[int] = []

    def hear(command: dict[str, Any]) -> None:
        if command["stream"] == "left":
            raise Unreachable("no stream 'left' at this door")
        heard.append(command["processed"])

    with Door() as door:
        door.on_act("ack", hear)
        speaker = Speaker(door.address)
        speaker.say("left", {"do": "ack", "consumer": "c", "processed": 0})
        for number in range(3):
            speaker.say("s", {"do": "ack", "consumer": "c", "processed": number})
            until(lambda: heard and heard[-1] == number)  # noqa: B023
        speaker.close()
