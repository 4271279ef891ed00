"""What a policy does not survive: such a fragment may stop, if it says so.

* A fragment whose last copy was lost, or whose only producer died with it, is *beyond*: it may
  stand still for ever, and all that is made of it too.
* That must be said where people look (invariant 10): in what control tells of the fragment, in what
  its node tells, by the node that gives up, or by the sink itself.
"""

from __future__ import annotations

from typing import Any

from unbroken.control.intentions import Standing
from unbroken.errors import EpochGone
from unbroken.testing.checkers.base import Looking


class Losses(Looking):
    """Looks at deaths and lost disks."""

    #: The line of the story after which nothing bad happens any more.
    calm_from = 0

    def died(self, who: str) -> None:
        """A process is dead: which upstream fragments lost their only producer with it?"""
        up = {name for name, process in self._sim.world.processes.items() if process.alive}
        for piece in self._sim.life.pieces:
            if piece.protection == "upstream" and not up & self._nodes(piece.name):
                made = set(piece.inputs) - set(self._sim.life.sources)
                if any(not up & self._nodes(stream) for stream in made):
                    self._with_producer.add(piece.name)

    def _nodes(self, fragment: str) -> set[str]:
        placed = self.placement.get(fragment, {})
        return {node for node, standing in placed.items() if standing is Standing.LIVE}

    def lost(self, who: str) -> None:
        """The disk of `who` lost something: which fragments can nobody save any more?"""
        self._cut_off.add(who)
        for piece in self._sim.life.pieces:
            if piece.protection in ("upstream", "gap") or piece.name in self.beyond:
                continue
            placed = self.placement.get(piece.name, {})
            had = who in placed
            good = (Standing.LIVE, Standing.STARTING)
            left = [
                node for node, standing in placed.items()
                if standing in good and self.on_disk(node, piece.name) is not None
            ]  # fmt: skip
            if had and not left:
                self.beyond[piece.name] = f"{who} lost the last copy of {piece.name}"
                self._sim.world.say(self.beyond[piece.name], "checker")

    def _kept_is_lost(self, fragment: str) -> bool:
        """Whether a producer may have lost what it kept for `fragment`: seeds are not synced.

        Older ones may be found then, and that is told.
        """
        inputs, sources = set(self.piece(fragment).inputs), set(self._sim.life.sources)
        nodes = self._cut_off - {"keeper"}
        return bool(
            ("keeper" in self._cut_off and inputs & sources) or (nodes and inputs - sources)
        )

    def excused(self, stream: str, sink: Any = None) -> bool:
        """Whether a stream may stop: it, or one before it, is beyond what its policy survives.

        A sink that was away while the only node of a gap fragment was lost may be behind the
        hole; it says so.
        """
        piece = next((p for p in self._sim.life.pieces if p.name == stream), None)
        if sink is not None and stream in self.gaps and isinstance(sink.error, EpochGone):
            return True
        if piece is None:
            return False
        if stream in self.beyond or self._full_of_history(stream):
            return True
        return any(self.excused(name) for name in piece.inputs)

    def _full_of_history(self, stream: str) -> bool:
        """Whether a log is full of what the state of an upstream fragment was made from.

        That one has processed all of it: more than the log may hold is needed again (scenario 17).
        """
        limit = self._sim.life.log_bytes_max
        readers = [
            piece.name for piece in self._sim.life.pieces
            if stream in piece.inputs and piece.protection == "upstream"
        ]  # fmt: skip
        for node in self._sim.nodes:
            folder = self._sim.fragment_folder(node, stream) / "output"
            log = folder.disk.logs.get(folder.text, {})
            if limit and sum(epoch.header.bytes for epoch in log.values()) >= limit:
                held = [self.on_disk(other, name) for name in readers for other in self._sim.nodes]
                if max(log) <= max((epoch for epoch in held if epoch is not None), default=-1):
                    return True
        return False

    # What people are told.

    def explained(self, stream: str, sink: Any) -> str:
        """Why a sink does not get on, as status and logs tell it; "" if nobody does."""
        if sink.error is not None:
            return str(sink.error.what)
        return next(filter(None, map(self._told, self._before(stream))), "")

    def _before(self, stream: str) -> list[str]:
        """The fragments that a stream is made of, itself first."""
        piece = next((p for p in self._sim.life.pieces if p.name == stream), None)
        if piece is None:
            return []
        return [stream, *(name for each in piece.inputs for name in self._before(each))]

    def _told(self, fragment: str) -> str:
        keeper = self._sim.shells["keeper"].keeper
        doing = keeper._protection[0].get(fragment, {}).get("doing", [])
        reports = [report for report, _ in keeper._reports.values()]
        failed = [
            report["fragments"][fragment]["failed"]
            for report in reports
            if fragment in report["fragments"]
        ]
        gave_up = [
            line.text
            for line in self._sim.world.story[self.calm_from :]
            if (line.text.startswith("gives up") and f"'{fragment}'" in line.text)
            or line.text.startswith(f"{fragment} stopped: ")
        ]
        return str(next(filter(None, [*doing, *failed, *gave_up]), ""))
