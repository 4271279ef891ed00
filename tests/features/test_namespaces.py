"""Partitions as networks make them: packets are dropped, connections hang and are never closed.

A cable of ours holds back what was sent, and lets it through when it heals.  A network loses it,
and TCP sends again after longer and longer pauses.  Needs root, `ip` and network namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spread_cluster
from namespaces import Inside, Network, why_not
from test_partition import X_S, undisturbed
from waiting import until

from unbroken.streams.flight import UNCONFIRMED_S_MAX

WAIT_S = 480.0
#: TCP, left alone, would send again long after.
CUT_S = 3.3
#: A call that hangs does so for minutes; one with a deadline ends by it, on a busy machine as well.
HANGS_S = 30.0


@pytest.fixture(autouse=True, scope="module")
def _where_it_is_possible() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(["one", "two"]) as made:
        yield made


def test_calls_end_by_their_deadline_while_packets_are_dropped(network: Network):
    """Two doors in two namespaces, cut for longer than TCP likes.

    Goal: no call hangs, with a connection that was there or with a new one; a silent peer is not
    taken for a dead one; and healing is noticed soon, however long the cut has lasted.
    Method: 14 s of dropped packets.  By itself TCP would send again only after 25 s.
    """
    with Inside(network, "two", "serve", network.addresses["two"]) as server:
        address = server.hear()
        with Inside(network, "one", "call", address) as caller:
            assert caller.ask("old", 10.0)[0] == 1
            network.cut("one", "two")
            cut_s = time.monotonic()
            for how in ("old", "new"):
                answer, took_s = caller.ask(how, 1.0)
                assert answer is None
                assert 0.9 < took_s < HANGS_S, how
            assert caller.ask("refuses", 0.5)[0] is False
            while time.monotonic() < cut_s + 14.0:
                assert caller.ask("old", 1.0)[0] is None
            network.heal()
            healed_s = time.monotonic()
            while caller.ask("old", 1.0)[0] is None:
                assert time.monotonic() < healed_s + UNCONFIRMED_S_MAX, "healed, and not noticed"
            print(f"noticed {time.monotonic() - healed_s:.1f} s after healing")


def test_one_way_the_question_arrives_and_the_answer_is_lost(network: Network):
    """What `one` sends arrives; what `two` answers does not."""
    with Inside(network, "two", "serve", network.addresses["two"]) as server:
        address = server.hear()
        with Inside(network, "one", "call", address) as caller:
            assert caller.ask("old", 10.0)[0] == 1
            network.cut("two", "one", one_way=True)
            answer, took_s = caller.ask("old", 1.0)
            assert answer is None
            assert 0.9 < took_s < HANGS_S
            assert server.ask("how often?") == 2


def test_who_has_a_bound_finds_a_line_that_is_whole_again_before_tcp_does(network: Network):
    """A failure shorter than the bound is masked, also if packets were lost in it.

    TCP sends again 0.2, 0.6, 1.4, 3.0 and 6.2 s after it was first lost, and a connection is given
    up after 5 s: a failure of 3.3 s would last that long.  Method: two followers side by side, one
    of them tries other connections; what each is silent beyond the cut.
    """
    beyond_s = {"bound": 0.0, "none": 0.0}
    with (
        Inside(network, "two", "publish", network.addresses["two"]) as stream,
        Inside(network, "one", "follow", stream.hear()) as followers,
    ):
        until(lambda: min(followers.ask("silence").values()) > 0.0, "both hear it")
        for _ in range(2):
            until(lambda: max(followers.ask("silence").values()) < 1.0, "all is well")
            network.cut("one", "two")
            time.sleep(CUT_S)  # How long the failure lasts.
            network.heal()
            longest_s = dict.fromkeys(beyond_s, 0.0)

            def both_are_back(longest_s: dict[str, float] = longest_s) -> bool:
                for who, silent_s in followers.ask("silence").items():
                    longest_s[who] = max(longest_s[who], silent_s)
                return min(longest_s.values()) >= CUT_S

            until(both_are_back, "both hear of it again")
            for who, silent_s in longest_s.items():
                print(f"{who}: {silent_s - CUT_S:.2f} s longer than the cut")
                beyond_s[who] += silent_s - CUT_S
    assert beyond_s["bound"] < beyond_s["none"] / 2


def spread(what: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What a client saw of a cluster whose nodes have a namespace each, and their addresses."""
    here = Path(spread_cluster.__file__)
    with Network([spread_cluster.HUB, *spread_cluster.NODES]) as network:
        inside = network.inside(spread_cluster.HUB)
        command = [*inside, sys.executable, str(here), network.prefix, what]
        path = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=WAIT_S, env=path, check=False
        )
        assert ran.returncode == 0, ran.stderr
        hosts = {name: network.addresses[name] for name in spread_cluster.NODES}
        return json.loads(ran.stdout.splitlines()[-1]), hosts


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_node_that_is_cut_off_from_keeper_and_control_comes_back():
    """It reaches the sites it reads, and nobody who would tell it that it is replaced.

    Goal: nothing is lost, repeated or wrong, and the client, which could not hear it either, has
    everything in the end.
    Method: 14 s of dropped packets between the node and the namespace of all others.
    """
    saw, _ = spread("hub")
    assert saw["during"] < saw["sent"], "nobody heard it meanwhile"
    assert saw["replaced"] == saw["said"], "what it said, if anything, is replaced"
    assert saw["stable"] == [epoch.digest for epoch in undisturbed(saw["sent"])["counts"]]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_results_go_on_and_are_corrected_when_packets_are_dropped():
    """Three Spark nodes in a namespace each; two of them lose sight of each other for 14 s.

    Goal: as with cables (`test_partition.py`): results go on within the bound, are marked, and the
    stable stream is in the end that of an undisturbed run.
    Method: keeper, control and client are in a fourth namespace, which reaches all of them.
    """
    saw, hosts = spread("nodes")
    print({key: saw[key] for key in saw if key.endswith("_s")})
    for name, host in hosts.items():
        assert saw["addresses"][name].startswith(f"grpc://{host}:")
    numbers = saw["tentative"]
    assert numbers[: saw["last"] + 1 - saw["first"]] == list(range(saw["first"], saw["last"] + 1))
    assert saw["tentative_rows"], "windows close"
    assert saw["partition"].startswith("going tentative: western silent for ")
    assert saw["waited_s"] >= 0.9 * X_S, "not before its time; test_partition.py has the bound"
    assert saw["replaced"] == numbers, "every tentative epoch is replaced"
    assert len(saw["confirmed"]) < len(numbers), "and not all of them were right"
    expected = [epoch.digest for epoch in undisturbed(saw["sent"])["counts"]]
    assert saw["stable"] == expected
