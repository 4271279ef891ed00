"""Partitions of a fragment with copies, and a second one during the correction: on real Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_partition import Client, Driver, check_corrected, node_of, two_sites, undisturbed
from waiting import until

import unbroken as ub


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_copies_that_lack_different_inputs_end_up_equal():
    """One copy is cut off from the eastern site, the other from the western one; then both heal,
    and one of them is cut off again while it corrects.

    (`tests/sim/test_cuts.py` has the same without Spark, in every run.)

    Goal: each goes on by itself, a client hears one branch at a time and each number once, and the
    stable stream is that of an undisturbed run: copies that differ would be a divergence.
    Method: four nodes, two copies of what reads both sites, two cables.
    """
    query = two_sites()
    counts = query.fragments["counts"]
    query.fragments["counts"] = replace(counts, policy=ub.Active(replicas=2))
    with ub.LocalCluster(query, nodes=4, cables=True) as cluster:
        eastern, western = node_of(cluster, "eastern"), node_of(cluster, "western")
        until(lambda: len(cluster.status()["fragments"]["counts"]["nodes"]) == 2, "two copies")
        readers = sorted(cluster.status()["fragments"]["counts"]["nodes"])
        driver, client = Driver(cluster), Client(cluster, "counts")
        for _ in range(6):
            driver.step(1, pause_s=0.0)
            until(lambda: len(client.stable) == driver.sent, "the first epochs are slow")
        until(lambda: cluster.status()["fragments"]["counts"]["survives"] == 1, "both keep up")
        for reader, site in zip(readers, (eastern, western), strict=True):
            # A copy may live where one of the sites does: no cable leads there.
            far = site if reader != site else next(s for s in (eastern, western) if s != reader)
            cluster.cut(reader, far)
        driver.step(16)
        until(lambda: len(client.tentative) >= 8, "results go on")
        assert len({cluster.status()["nodes"][r]["fragments"]["counts"]["branch"] for r in readers
                    } - {""}) == 2, "each on a branch of its own"  # fmt: skip
        cluster.heal()
        driver.step(4)
        cluster.cut(readers[0], western if readers[0] != western else eastern)
        driver.step(8)
        cluster.heal()
        driver.step(4)
        until(lambda: len(client.stable) == driver.sent, "everything is stable")
    numbers = [epoch.number for epoch in client.tentative]
    assert numbers == sorted(set(numbers)), "each number once"
    check_corrected(client, undisturbed(driver.sent)["counts"])
