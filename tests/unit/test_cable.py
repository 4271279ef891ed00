"""A cable that is cut: nothing gets through, nothing is refused, and it heals."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from unbroken.errors import Unreachable
from unbroken.streams.cable import BACK, THERE, Cable
from unbroken.streams.flight import Door, Peer
from unbroken.streams.ports import refuses

WAIT_S = 10.0


class Greeter:
    """A door behind a cable, and how often it was asked."""

    def __init__(self) -> None:
        self.door, self.asked = Door(), 0
        self.door.on_act("greet", self._greet)
        self.cable = Cable(lambda: self.door.address)
        self.peer = Peer(self.cable.address)

    def _greet(self, command: object) -> str:
        self.asked += 1
        return "hello"

    def greet(self, timeout_s: float = WAIT_S) -> str:
        return str(self.peer.act({"do": "greet"}, timeout_s=timeout_s))


@pytest.fixture
def greeter() -> Iterator[Greeter]:
    made = Greeter()
    yield made
    made.peer.close()
    made.cable.close()
    made.door.close()


def test_a_cut_cable_neither_answers_nor_refuses(greeter: Greeter):
    """A partition is not a death: the other end is not known to be gone."""
    assert greeter.greet() == "hello"
    greeter.cable.cut()
    with pytest.raises(Unreachable):
        greeter.greet(timeout_s=0.3)
    assert not refuses(greeter.cable.address)
    assert greeter.asked == 1
    greeter.cable.heal()
    assert greeter.greet() == "hello"


def test_a_question_that_was_under_way_arrives_when_the_cable_heals(greeter: Greeter):
    """As TCP sends again what was not confirmed."""
    assert greeter.greet() == "hello"
    greeter.cable.cut()
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(greeter.greet()))
    asking.start()
    asking.join(0.3)
    assert asking.is_alive()
    greeter.cable.heal()
    asking.join(WAIT_S)
    assert answers == ["hello"]


@pytest.mark.parametrize(("direction", "asked"), [(THERE, 1), (BACK, 2)])
def test_a_cable_can_be_cut_in_one_direction(greeter: Greeter, direction: str, asked: int):
    """The question arrives, only the answer does not; or neither."""
    assert greeter.greet() == "hello"
    greeter.cable.cut(direction)
    with pytest.raises(Unreachable):
        greeter.greet(timeout_s=0.3)
    assert greeter.asked == asked


def test_whoever_connects_while_it_is_cut_waits(greeter: Greeter):
    """Also the first word between two processes."""
    greeter.cable.cut()
    with pytest.raises(Unreachable):
        greeter.greet(timeout_s=0.3)
    greeter.cable.heal()
    assert greeter.greet() == "hello"


def test_a_slow_cable_only_takes_longer(greeter: Greeter):
    """Nothing is lost."""
    assert greeter.greet() == "hello"
    greeter.cable.slow(0.2)
    began_s = time.monotonic()
    assert greeter.greet() == "hello"
    assert time.monotonic() - began_s >= 0.4


def test_a_process_that_was_restarted_is_found_at_its_new_door():
    """The cable asks where it leads."""
    doors = [Door(), Door()]
    for name, door in zip(("one", "two"), doors, strict=True):
        door.on_act("who", lambda command, name=name: name)
    addresses = [door.address for door in doors]
    with Cable(lambda: addresses[0]) as cable:
        with Peer(cable.address) as peer:
            assert peer.act({"do": "who"}) == "one"
        addresses.pop(0)
        with Peer(cable.address, apart=True) as peer:  # The first one's may not be gone yet.
            assert peer.act({"do": "who"}) == "two"
    for door in doors:
        door.close()
