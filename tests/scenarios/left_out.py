"""Rules left out, one by one, for lives that they save (`lived.astray`); as `testing.broken`.

These have no name in `variants`: chance would hardly ever find the day on which they matter.
"""

from __future__ import annotations

from typing import Any

from unbroken.control import unheard
from unbroken.control.intentions import Standing
from unbroken.control.repair import Repairs
from unbroken.errors import UnbrokenError
from unbroken.node import control, replica, standby, successor
from unbroken.node.book import BookReader
from unbroken.node.hosted import Hosted
from unbroken.streams.hole import Begin, Positions
from unbroken.streams.needs import Needs
from unbroken.streams.served import Served
from unbroken.testing import processes
from unbroken.testing.broken import Change


def nobody_is_let_off() -> list[Change]:
    """Whoever begins anew waits for all: standbys, those who wait for it, those who are gone."""
    return [(control, "unheard", lambda *given, **how: unheard.Unheard([], []))]


def from_the_first() -> list[Change]:
    """A hole that nobody was asked about begins where the stream began."""
    extents = successor._extents

    def all_of_it(book: BookReader, streams: Any) -> list[dict[str, int]]:
        return [{**extent, "first": 0} for extent in extents(book, streams)]

    return [(successor, "_extents", all_of_it)]


def after_the_inputs() -> list[Change]:
    """A hole begins after the newest epoch of the inputs at the latest."""
    begin = successor.begin

    def bounded(replica: Any, served: Any, gone: str, *others: Any) -> Any:
        *others, _sources = others
        return begin(replica, served, gone, *others, list(replica.fragment.inputs))

    return [(successor, "begin", bounded)]


def one_place_for_all() -> list[Change]:
    """A hole begins after the furthest consumer, also for fragments that have less."""
    begin = Positions.begin

    def furthest(self: Positions, **how: Any) -> Begin | None:
        found = begin(self, **how)
        return found and Begin(found.first, found.first, found.behind)

    return [(Positions, "begin", furthest)]


def said_once() -> list[Change]:
    """An ack is not said again."""
    return [(module, "ACK_AGAIN_S", 1e9) for module in (replica, standby, processes)]


def no_answer_is_none() -> list[Change]:
    """A producer that does not answer is taken for one that was given no seed."""
    ask_all = BookReader.ask_all

    def or_none(self: BookReader, stream: str, question: Any) -> list[Any]:
        return ask_all(self, stream, question) or [{"seed": None}]

    return [(BookReader, "ask_all", or_none)]


def full_is_lost() -> list[Change]:
    """What cannot be started is taken for lost."""

    def at_once(self: Hosted, name: str, what: str, error: UnbrokenError) -> None:
        self._give_up(name, error)

    return [(Hosted, "_try_later", at_once)]


def standbys_know_nobody() -> list[Change]:
    """A standby keeps its copy of the log for nobody who is away."""
    begin = standby.Standby.__init__

    def alone(self: Any, *given: Any, **how: Any) -> None:
        begin(self, *given, **{**how, "expect": lambda client: None})

    return [(standby.Standby, "__init__", alone)]


def rulings_stand() -> list[Change]:
    """What a producer was told under a term outlives control's list."""
    return [(Needs, "ruling", lambda self, consumer: 0)]


def gone_for_good() -> list[Change]:
    """A fragment that is heard of again after its node was dead is not counted as live."""
    live = Repairs.live

    def unless_gone(self: Repairs, fragment: str, node: str, epoch: int) -> bool:
        gone = self.replicas.of(fragment).get(node) is Standing.GONE
        return not gone and live(self, fragment, node, epoch)

    return [(Repairs, "live", unless_gone)]


def strangers_first() -> list[Change]:
    """What is kept for strangers is kept, however full the log is."""
    return [(Served, "_half", lambda self: self.log.first)]
