"""Protection: how many failures a fragment survives right now, and why not more.

    a (upstream)   node-1        survives 1: the source keeps what its state was made from
    b (upstream)   node-1        survives 0: what it needs is kept by a, which would die with it

* Upstream backup relies on its producers: one that runs on the same node, and nowhere else, is lost
  together with what it kept.  And it needs a place to be rebuilt.

This module only answers.  It does no I/O and reads no clock.

>>> from unbroken.control.intentions import Placed, Standing
>>> here = {name: [Placed("node-1", 1, Standing.LIVE)] for name in "ab"}
>>> replicas = Replicas({"a": ["clicks"], "b": ["a"]}, here, ["node-1", "node-2"])
>>> survives("a", Upstream(), replicas)
(1, '')
>>> survives("b", Upstream(), replicas)
(0, 'what it needs of a is kept on node-1 alone, where it runs itself')
"""

from __future__ import annotations

from unbroken.control.replicas import Replicas
from unbroken.policies import Policy, Upstream


def survives(fragment: str, policy: Policy, replicas: Replicas) -> tuple[int, str]:
    """How many nodes can be lost at once, and what keeps it from being more, if anything does."""
    nodes = replicas.serving(fragment)
    if isinstance(policy, Upstream) and nodes:
        if len(replicas.up) < 2:
            return 0, "no other node is there to rebuild it on"
        for stream in replicas.inputs[fragment]:
            made = stream in replicas.inputs
            if made and not set(replicas.serving(stream)) - set(nodes):
                here = nodes[0]
                return 0, f"what it needs of {stream} is kept on {here} alone, where it runs itself"
    return policy.survives(len(nodes)), ""
