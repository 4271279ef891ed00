"""A cluster whose nodes have a network namespace each: `test_namespaces.py` runs it in one more.

python spread_cluster.py PREFIX nodes|hub: cuts two nodes off from each other, or one of them from
the namespace of keeper, control and client; prints one JSON object with what the client saw.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from namespaces import Network
from test_partition import EPOCH_S, Client, Driver, node_of, two_sites
from waiting import until

from unbroken.local import LocalCluster

NODES = ["node-1", "node-2", "node-3"]
#: Where the keeper, control and the client are.
HUB = "hub"
CUT_EPOCHS = 28


class SpreadCluster(LocalCluster):
    """Every node listens at the address of its own namespace."""

    network: Network

    def _host_of(self, name: str) -> str:
        return self.network.addresses[name]

    def _inside(self, name: str) -> list[str]:
        return self.network.inside(name) if name in NODES else []


def watch(network: Network) -> dict[str, Any]:
    """Drops what two nodes send each other for a while; tells what a client saw."""
    SpreadCluster.network = network
    with SpreadCluster(two_sites(), len(NODES), host=network.addresses[HUB]) as cluster:
        addresses = {name: told["address"] for name, told in cluster.status()["nodes"].items()}
        reader, western = node_of(cluster, "counts"), node_of(cluster, "western")
        driver, client = Driver(cluster), Client(cluster, "counts")
        for _ in range(5):
            driver.step(1, pause_s=0.0)
            until(lambda: len(client.stable) == driver.sent, "the first epochs are slow")
        driver.step(6)
        until(lambda: len(client.stable) == driver.sent, "everything flows")
        # A busy machine may have been late before anything was cut; that is corrected by now.
        before = len(client.tentative)

        first = driver.sent
        network.cut(reader, western)
        driver.step(CUT_EPOCHS)
        last = driver.sent - 1
        until(lambda: [e.number for e in client.tentative[before:]][-1:] == [last], "goes on")
        told = cluster.status()["nodes"][reader]["fragments"]["counts"]
        network.heal()
        healed_s = time.monotonic()
        driver.step(4)
        until(lambda: len(client.stable) == driver.sent, "everything is stable")
        said = client.of("tentative")[before:]
        return {
            "addresses": addresses,
            "first": first,
            "last": last,
            "sent": driver.sent,
            "cut_s": CUT_EPOCHS * EPOCH_S,
            "partition": told["partition"],
            "tentative": [each.epoch.number for each in said],
            "tentative_rows": sum(each.epoch.rows for each in said),
            "waited_s": said[0].epoch.header.waited_s,
            "late_s": [round(h.at_s - driver.closed_s[h.epoch.number], 2) for h in said],
            "stable": [epoch.digest for epoch in client.stable],
            "replaced": [epoch.number for epoch in client.stable[first:] if epoch.replaces],
            "confirmed": [epoch.number for epoch in client.stable[first:] if epoch.confirmed],
            "first_corrected_after_s": next(
                h.at_s - healed_s for h in client.of("stable") if h.epoch.number == first
            ),
            "stable_again_after_s": client.of("stable")[-1].at_s - healed_s,
        }


def from_the_hub(network: Network) -> dict[str, Any]:
    """Cuts one node off from keeper, control and client; tells what the client saw in the end."""
    SpreadCluster.network = network
    with SpreadCluster(two_sites(), len(NODES), host=network.addresses[HUB]) as cluster:
        reader = node_of(cluster, "counts")
        driver, client = Driver(cluster), Client(cluster, "counts")
        for _ in range(5):
            driver.step(1, pause_s=0.0)
            until(lambda: len(client.stable) == driver.sent, "the first epochs are slow")
        network.cut(HUB, reader)
        driver.step(CUT_EPOCHS)
        during = len(client.stable)
        told = cluster.status()["nodes"][reader]
        network.heal()
        driver.step(4)
        until(lambda: len(client.stable) == driver.sent, lambda: str(cluster.status()))
        return {
            "sent": driver.sent,
            "during": during,
            "told": told,
            "stable": [epoch.digest for epoch in client.stable],
            "said": [epoch.number for epoch in client.tentative],
            "replaced": [epoch.number for epoch in client.stable if epoch.replaces],
        }


if __name__ == "__main__":
    what = {"nodes": watch, "hub": from_the_hub}[sys.argv[2]]
    print(json.dumps(what(Network([HUB, *NODES], sys.argv[1]))), flush=True)
