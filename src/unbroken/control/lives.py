"""Lives: which process of a node speaks, and what comes too late to be believed.

    node-1, life 3   ─ beat 41 ─ beat 42 ─ ✗ killed
    node-1, life 4                            ─ beat 1 ─ beat 2 ─▶
    control hears                               4/1   3/42: over   4/2

* A beat says where its process listens and what runs there.  One of an older life that is late, or
  comes twice, would bring back an address that refuses connections: the node would be declared
  dead, and all that it runs be replaced.  So a life is over as soon as a later one was heard of, or
  when its door refused connections.
* Within a life the newest beat counts; a late one says nothing new.
* Lives are counted by the node itself, on its disk (`node.life`).  One that lost its disk begins
  again; it is answered that its life is over, and takes a higher number.  A process that is really
  over hears no answers.

This module only decides.  It does no I/O and reads no clock.

>>> lives = Lives()
>>> lives.is_news("node-1", 3, 42), lives.is_news("node-1", 4, 1), lives.is_news("node-1", 4, 1)
(True, True, False)
>>> lives.is_over("node-1", 3), lives.is_over("node-1", 4), lives.newest("node-1")
(True, False, 4)
>>> lives.ended("node-1"); lives.is_over("node-1", 4)
True
"""

from __future__ import annotations


class Lives:
    """What was heard of the lives of each node.

    >>> Lives().is_over("node-1", 0)
    False
    """

    def __init__(self) -> None:
        #: Node to its newest life, and the newest beat of that.
        self._newest: dict[str, tuple[int, int]] = {}
        #: Node to the newest life whose door refused connections.
        self._ended: dict[str, int] = {}

    def is_over(self, node: str, life: int) -> bool:
        """Whether another process speaks for `node` by now, or none does."""
        return life < self.newest(node) or life <= self._ended.get(node, -1)

    def is_news(self, node: str, life: int, beat: int) -> bool:
        """Takes note of a beat; False if a later one was heard before."""
        if (life, beat) <= self._newest.get(node, (-1, -1)):
            return False
        self._newest[node] = life, beat
        return True

    def ended(self, node: str) -> None:
        """The process that was heard last is gone: its door refuses connections."""
        if node in self._newest:
            self._ended[node] = self.newest(node)

    def newest(self, node: str) -> int:
        """The number of its newest life; -1 if it was never heard of."""
        return self._newest.get(node, (-1, -1))[0]
