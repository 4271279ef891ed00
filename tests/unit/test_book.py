"""The book as another process reads it: the newest page, and no door that it does not name."""

from __future__ import annotations

from typing import Any

import pytest

from unbroken.errors import Unreachable
from unbroken.node import book
from unbroken.node.book import BookReader


class Entry:
    """Who is asked for the book, and what it says at present."""

    def __init__(self) -> None:
        self.streams: dict[str, dict[str, str]] = {}
        self.alone: dict[str, tuple[int, str]] = {}
        self.away = False

    def act(self, command: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        if self.away:
            raise Unreachable("it was killed")
        return {"streams": self.streams, "alone": self.alone}


class Peer:
    """A connection that can only be closed."""

    def __init__(self, address: str) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Entry:
    monkeypatch.setattr(book, "FRESH_S", -1.0)  # Every question reads a new page.
    monkeypatch.setattr(book, "Peer", Peer)
    return Entry()


def test_whoever_has_moved_is_found_and_its_old_door_let_go(entry: Entry):
    reader = BookReader(entry)  # type: ignore[arg-type]
    entry.streams = {"alerts": {"alerts@node-1": "a"}}
    assert reader.replicas("alerts") == {"alerts@node-1": "a"}
    old = reader._peer("a")
    entry.streams = {"alerts": {"alerts@node-1": "b"}}
    assert reader.replicas("alerts") == {"alerts@node-1": "b"}
    assert (old.closed, list(reader._peers)) == (True, [])


def test_while_the_keeper_is_away_the_last_page_is_good(entry: Entry):
    reader = BookReader(entry)  # type: ignore[arg-type]
    entry.streams = {"alerts": {"alerts@node-1": "a"}}
    reader.replicas("alerts")
    peer = reader._peer("a")
    entry.away, entry.streams = True, {}
    assert reader.replicas("alerts") == {"alerts@node-1": "a"}
    assert not peer.closed


def test_whoever_stands_alone_is_named_alone_from_the_next_page_on(entry: Entry):
    reader = BookReader(entry)  # type: ignore[arg-type]
    entry.streams = {"alerts": {"alerts@node-1": "a", "alerts@node-2": "b"}}
    assert reader.replicas("alerts").alone == (0, "")
    entry.alone = {"alerts": (7, "alerts@node-2")}
    found = reader.replicas("alerts")
    assert (found, found.alone) == ({"alerts@node-2": "b"}, (7, "alerts@node-2"))
    entry.alone = {"alerts": (3, "alerts@node-1")}
    assert reader.replicas("alerts").alone == (7, "alerts@node-2"), "nobody goes back"
