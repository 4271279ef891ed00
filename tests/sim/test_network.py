"""Calls of the simulated network that come late, or twice."""

from __future__ import annotations

from typing import Any

import pytest

from unbroken.errors import Unreachable
from unbroken.testing.network import Network
from unbroken.testing.tasks import spawn
from unbroken.testing.world import World


def told(network: Network, world: World) -> tuple[Any, list[tuple[float, str]]]:
    """A door of the keeper, and when it was told what."""
    heard: list[tuple[float, str]] = []
    door = network.door(world.process("keeper"), fixed=True)
    door.on_act("tell", lambda command: heard.append((world.now_s, command["what"])))
    return door, heard


def test_a_call_that_is_slower_than_its_deadline_fails_and_still_arrives():
    """Whoever called has gone on meanwhile, and must bear that it was heard."""
    world, ended = World(seed=5), []
    network = Network(world)
    node = world.process("node-1")
    door, heard = told(network, world)
    network.slow("node-1", "keeper", 60.0)

    def call() -> None:
        with pytest.raises(Unreachable, match="keeper does not answer node-1"):
            network.call(node, door.address, "act", {"do": "tell", "what": "late"}, 2.0)
        ended.append(world.now_s)

    spawn(world, node, call)
    world.run(until_s=100.0)
    assert ended == [2.0]
    assert [what for _, what in heard] == ["late"]
    assert 2.0 < heard[0][0] < 60.1


def test_an_action_that_is_repeated_arrives_twice():
    """The second time some seconds later, in the same life of who is called."""
    world = World(seed=5)
    network = Network(world)
    door, heard = told(network, world)
    network.repeats = 1.0
    command = {"do": "tell", "what": "twice"}
    spawn(
        world, world.process("node-1"),
        lambda: network.call(world.process("node-1"), door.address, "act", command),
    )  # fmt: skip
    world.run(until_s=10.0)
    assert [what for _, what in heard] == ["twice", "twice"]
    assert 0.0 < heard[1][0] - heard[0][0] <= 4.1


def test_what_is_repeated_does_not_come_to_the_next_life():
    """A connection ends with the process."""
    world = World(seed=5)
    network = Network(world)
    door, heard = told(network, world)
    network.repeats = 1.0
    network.call(world.process("node-1"), door.address, "act", {"do": "tell", "what": "once"})
    world.process("keeper").kill()
    world.process("keeper").start()
    told(network, world)
    world.run(until_s=10.0)
    assert [what for _, what in heard] == ["once"]
