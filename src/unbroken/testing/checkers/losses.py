"""What a policy does not survive: such a fragment may stop, if it says so.

* A fragment whose last copy was lost, or whose only producer died with it, is *beyond*: it may
  stand still for ever, and all that is made of it too.
* A copy on a node that is gone counts: it is kept until the wanted number is live (scenario 16).
  Not where numbers are drawn, because what it would draw again may have been shown already.
* Whoever reads beside it may stand still too, once the log that both read is full.  So may all
  for whom a log is full because a sink has stopped: it came too late, when the beginning was
  gone, or lacks what a hole has taken.
* That must be said where people look (invariant 10): in what control tells of that very fragment,
  in what its node tells, by the node that gives up, or by the sink itself.  What is only on its way
  is no reason.
"""

from __future__ import annotations

from typing import Any

from unbroken.control.intentions import Standing
from unbroken.errors import EpochGone
from unbroken.testing.checkers.base import Looking
from unbroken.testing.world import Process

#: What is said of a fragment that cannot go on, or not yet; steps of a repair are not enough.
REASONS = (
    "has no checkpoint to go on from", "is not written:", "cannot be rebuilt: it needs",
    "none is left to fork from", "stands still for good", "gives up",
)  # fmt: skip


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
        for piece in self._sim.life.pieces:
            placed = self.placement.get(piece.name, {})
            self._forgets(who, piece)
            if piece.protection in ("upstream", "gap") or piece.name in self.beyond:
                continue
            good = [Standing.LIVE, Standing.STARTING]
            good += [Standing.GONE] if piece.operator != "draw" else []
            left = [
                node for node, standing in placed.items()
                if standing in good and self.on_disk(node, piece.name) is not None
                and (piece.name, node) not in self._overtaken
            ]  # fmt: skip
            if who in placed and not left:
                self.beyond[piece.name] = f"{who} lost the last copy of {piece.name}"
                self._sim.world.say(self.beyond[piece.name], "checker")

    def _forgets(self, who: str, piece: Any) -> None:
        """What `who` kept for a consumer of its streams is lost, until that one acks again."""
        for stream in piece.inputs:
            source = stream in self._sim.life.sources
            if who == "keeper" if source else who in self.placement.get(stream, {}):
                self._forgotten.add((piece.name, stream))

    def believed(self, there: Process, ack: dict[str, Any]) -> None:
        """A producer took an ack: it knows that consumer again."""
        self._forgotten.discard((ack["consumer"].partition("@")[0], ack["stream"]))

    def _kept_is_lost(self, fragment: str) -> bool:
        """Whether a producer may have lost what it kept for `fragment`: seeds are not synced.

        Older ones may be found then, and that is told.
        """
        return any(name == fragment for name, _ in self._forgotten)

    def excused(self, stream: str, sink: Any = None) -> bool:
        """Whether a stream may stop: it, or one before it, is beyond what its policy survives.

        A sink that was away while the only node of a gap fragment was lost may be behind the
        hole; it says so.  So does one that has come too late.
        """
        piece = next((p for p in self._sim.life.pieces if p.name == stream), None)
        if sink is not None and self._may_have_stopped(sink):
            return True
        if piece is None:
            return False
        return bool(self._culprits(stream))

    def _may_have_stopped(self, sink: Any) -> bool:
        late = sink.stream in self.gaps or sink.name in self._too_late
        return late and isinstance(sink.error, EpochGone)

    def _culprits(self, stream: str) -> list[str]:
        """For whose sake a stream may stop: fragments before it, or whoever fills their logs."""
        before = self._before(stream)
        found = [name for name in before if name in self.beyond or self._full_of_history(name)]
        found += [who for name in before for who in self._holders(name)]
        return found + [who for name in before for who in self._never_asks(name)]

    def _never_asks(self, stream: str) -> list[str]:
        """Who reads a gap fragment and is lost: whoever begins that anew waits for it, by name.

        A copy of it that is gone may be further than all others, and would be thrown away.
        """
        pieces = {piece.name: piece for piece in self._sim.life.pieces}
        if pieces[stream].protection != "gap":
            return []
        return [name for name in self.beyond if stream in pieces[name].inputs]

    def _holders(self, stream: str) -> list[str]:
        """Who has stopped for good, and holds a log that is full; what is held by it holds too."""
        if not self._is_full(stream):
            return []
        found = [
            sink.name for sink in self._sim.sinks()
            if sink.stream == stream and self._may_have_stopped(sink)
        ]  # fmt: skip
        for piece in self._sim.life.pieces:
            if stream in piece.inputs:
                lost = piece.name in self.beyond
                found += [piece.name] if lost else self._holders(piece.name)
        return found

    def _is_full(self, stream: str) -> bool:
        limit = self._sim.life.log_bytes_max
        folders = [self._sim.fragment_folder(node, stream) / "output" for node in self._sim.nodes]
        logs = [folder.disk.logs.get(folder.text, {}) for folder in folders]
        return bool(limit) and any(
            sum(epoch.header.bytes for epoch in log.values()) >= limit for log in logs
        )

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
        return next(filter(None, map(self._told, self._culprits(stream))), "")

    def _before(self, stream: str) -> list[str]:
        """The fragments that a stream is made of, itself first."""
        piece = next((p for p in self._sim.life.pieces if p.name == stream), None)
        if piece is None:
            return []
        return [stream, *(name for each in piece.inputs for name in self._before(each))]

    def _told(self, fragment: str) -> str:
        if fragment.startswith("sink-"):
            return str(self._sim.shells[fragment].error.what)
        keeper = self._sim.shells["keeper"].keeper
        doing = keeper._protection[0].get(fragment, {}).get("doing", [])
        reports = [report for report, _ in keeper._reports.values()]
        failed = [
            report["fragments"][fragment]["failed"]
            for report in reports
            if fragment in report["fragments"]
        ]
        joining = [str(report["joining"].get(fragment, "")) for report in reports]
        gave_up = [
            line.text
            for line in self._sim.world.story[self.calm_from :]
            if (line.text.startswith("gives up") and f"'{fragment}'" in line.text)
            or line.text.startswith(f"{fragment} stopped: ")
        ]
        told = [*doing, *failed, *joining, *gave_up]
        return next((text for text in told if any(reason in text for reason in REASONS)), "")
