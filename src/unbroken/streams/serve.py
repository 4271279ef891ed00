"""Serving streams at a door: headers, bodies and acks, the same for sources and fragments.

extent  {stream}                       the first epoch that is there, and the next number
headers {stream, from, consumer, next, term, wait_s}
                                       those from there on; waits a while for the first, not
                                       longer than `wait_s` if that is said.  Who
                                       asks has everything below `next` (below `from` if
                                       unsaid; None: a tentative branch asks, it does not count)
                                       and takes from nobody of an older term
epoch   {stream, number}               header and rows
header  {stream, number}               header alone, also of what was trimmed not long ago
epoch   {stream, number, consumer, next, term, wait_s}
                                       the same, and waits a while for it: headers and body in
                                       one answer, for a stream that has one replica
expect  {stream, consumer, term, like} this consumer holds back trimming from now on
ack     {stream, consumer, term, processed, need, seed, overtakes}
seed    {stream, consumer}             its need, and the seed that its acks carried, if any
consumers {stream}                     the clients that it keeps epochs for, by name
release {stream, consumer, term}       it will not come back
tentative {stream, branch, from}       what a branch says beyond its stable epochs, if one does;
                                       waits a while.  None: this stream never has a branch
said    {stream, branch, number}       header and rows of a tentative epoch
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from unbroken.errors import Unreachable
from unbroken.streams.flight import POLL_S, Command, Door, checked_consumer
from unbroken.streams.hole import UNNAMED
from unbroken.streams.served import Served

#: How long a question waits for a stream that has not begun.
HEARING_S = 0.2


class StreamDoor:
    """The streams that one process serves."""

    def __init__(self, door: Door) -> None:
        self.streams: dict[str, Served] = {}
        door.on_act("extent", self._extent)
        door.on_act("headers", self._headers)
        door.on_act("header", self._header)
        door.on_get("epoch", self._epoch)
        door.on_act("expect", self._expect)
        door.on_act("release", self._release)
        door.on_act("ack", self._ack)
        door.on_act("seed", self._seed)
        door.on_act("consumers", self._consumers)
        door.on_act("tentative", self._tentative)
        door.on_get("said", self._said)

    def __getitem__(self, name: str) -> Served:
        found = self.streams.get(name)
        if found is None:
            known = ", ".join(sorted(self.streams)) or "none"
            # Others may have it: a replica that was here a moment ago has moved.
            raise Unreachable(f"no stream {name!r} at this door", hint=f"its streams: {known}")
        return found

    def _headers(self, command: Command) -> list[str]:
        served = self[command["stream"]]
        log, later = served.log, served.begins_later
        start = log.first if command["from"] is None else int(command["from"])
        if command["from"] is not None:
            self._asked(served, command, start)
        self._wait(served, start, command)
        # Also if it has begun meanwhile: only a new question is told who may not have what is here.
        if later:
            return []
        return [header.to_json() for header in log.headers(start)]

    def _header(self, command: Command) -> str | None:
        header = self[command["stream"]].log.remembered(int(command["number"]))
        return None if header is None else header.to_json()

    def _epoch(self, command: Command) -> pa.Table | None:
        served, number = self[command["stream"]], int(command["number"])
        if "consumer" in command:  # It may not be there yet.
            later = served.begins_later
            self._asked(served, command, number)
            self._wait(served, number, command)
            if later or served.log.next <= number:
                return None
        return served.log.read(number).stamped()

    @staticmethod
    def _asked(served: Served, command: Command, start: int) -> None:
        lacks = command.get("next", start)
        if lacks is not None:
            name = command.get("consumer") or UNNAMED
            term = int(command.get("term", 0))
            served.asked(name and checked_consumer(name), int(lacks), term=term)

    @staticmethod
    def _wait(served: Served, number: int, command: Command) -> None:
        wait_s = min(POLL_S, max(0.0, float(command.get("wait_s", POLL_S))))
        # While it is not known where the stream begins, who asks may have more to say soon.
        served.log.wait(number, HEARING_S if served.begins_later else wait_s)

    def _extent(self, command: Command) -> dict[str, Any]:
        served = self[command["stream"]]
        if served.begins_later:
            raise Unreachable(
                f"{served.log.stream}: where it begins here is not known yet; its consumers are "
                f"asked how far they are (missing: {', '.join(served.unheard) or 'none'})",
                hint="try again in a moment",
            )
        return {
            "first": served.log.first, "next": served.log.next, "processed": served.processed,
        }  # fmt: skip

    def _expect(self, command: Command) -> dict[str, int]:
        served = self[command["stream"]]
        served.expect(
            checked_consumer(command["consumer"]), term=int(command.get("term", 0)),
            like=command.get("like"),
        )  # fmt: skip
        return {"first": served.log.first, "next": served.log.next}

    def _release(self, command: Command) -> None:
        self[command["stream"]].release(
            checked_consumer(command["consumer"]), term=int(command.get("term", 0))
        )

    def _ack(self, command: Command) -> None:
        self[command["stream"]].ack(
            checked_consumer(command["consumer"]), term=int(command["term"]),
            processed=int(command["processed"]), need=int(command["need"]),
            seed=command.get("seed"), owed_to=_name_or_nobody(command.get("owed_to")),
            overtakes=_name_or_nobody(command.get("overtakes")),
            placed=int(command.get("placed", 0)),
        )  # fmt: skip

    def _seed(self, command: Command) -> dict[str, Any]:
        served, consumer = self[command["stream"]], checked_consumer(command["consumer"])
        need, seed = served.seed(consumer)
        return {"need": need, "seed": seed, "term": served.term(consumer)}

    def _tentative(self, command: Command) -> dict[str, Any] | None:
        said = self[command["stream"]].tentative
        if said is None:
            return None
        branch, headers = said.news(str(command["branch"]), int(command["from"]), POLL_S)
        return {"branch": branch, "headers": [header.to_json() for header in headers]}

    def _said(self, command: Command) -> pa.Table:
        said = self[command["stream"]].tentative
        if said is None:
            raise Unreachable(f"{command['stream']!r} has no tentative epochs")
        return said.read(str(command["branch"]), int(command["number"])).stamped()

    def _consumers(self, command: Command) -> list[str]:
        return self[command["stream"]].clients


def _name_or_nobody(name: object) -> str:
    return checked_consumer(name) if name else ""
