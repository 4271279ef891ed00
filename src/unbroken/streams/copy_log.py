"""Copying a log: the output of a replica goes with its checkpoint to another node.

    peer     80 ............ 103 ... 105
    here     80 ... 95 ─ 96 ─▶ 103                    copied up to the checkpoint that was taken

    peer                112 ... 120                   its consumers have gone on, and it was trimmed
    here     80 ... 103       ─▶ 112                  a jump: nobody will ask for what lies between

* A replica is its checkpoint *and* its output log (scenario 1).
* `peer` keeps what its consumers may still ask for, and the copy has the same consumers: what was
  trimmed there is owed by nobody, so a copy that is behind goes on where `peer` begins.
* Epochs that are on both sides must have one digest (invariant 1).
* `copy_log` makes a log fit, in a folder that nobody reads.  `extend_log` only appends, to a log
  that is read, waited for, acknowledged and trimmed meanwhile: the log of a standby.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from unbroken.epochs import FINAL, GAP, Epoch, Header
from unbroken.errors import CheckpointLost, DivergenceError, EpochGone
from unbroken.streams.flight import Peer
from unbroken.streams.log import EpochLog, drop_torn_tail
from unbroken.streams.refuse import refusing, valid

BODY_S_MAX = 30.0
LOG_ATTEMPTS = 10


def copy_log(peer: Peer, stream: str, folder: Path, *, last: int) -> EpochLog:
    """Copies `stream` from its oldest epoch at `peer` up to `last` into the log in `folder`.

    Epochs that are there already are compared.  If no consumer needs anything up to `last` any
    more, the log begins with the oldest epoch that `peer` still has.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from unbroken.streams.flight import Door
    >>> from unbroken.streams.serve import StreamDoor
    >>> from unbroken.streams.served import Served
    >>> here, there = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    >>> log, door = EpochLog(here, "alerts"), Door()
    >>> StreamDoor(door).streams["alerts"] = Served(log, [], keep=0)
    >>> log.start_at(80)
    >>> for number in (80, 81, 82):
    ...     _ = log.append(Epoch.of("alerts", number, pa.table({"n": [number]})))
    >>> with door, Peer(door.address) as peer:
    ...     copied = copy_log(peer, "alerts", there, last=81)
    >>> copied.first, copied.next
    (80, 82)
    """
    drop_torn_tail(folder)
    log = EpochLog(folder, stream)
    first = _compare(peer, log)
    if not log.first <= first <= log.next:
        # It lacks what consumers may ask for, or has only what none will ask for.
        for path in sorted(folder.glob("*.arrow")):
            path.unlink()
        log = EpochLog(folder, stream)
    extend_log(peer, log, last=last)
    return log


def extend_log(peer: Peer, log: EpochLog, *, last: int) -> None:
    """Appends to `log` what it lacks up to `last`.

    The log may be served and trimmed meanwhile; whatever came for a number first stays.
    """
    if log.first < log.next:
        # Mostly the next epochs are there, and nothing has to be asked about them first.
        with contextlib.suppress(EpochGone):
            for number in range(log.next, last + 1):
                log.append(_fetch(peer, log.stream, number))
            return
    for _ in range(LOG_ATTEMPTS):
        # Trimmed meanwhile: the consumers have gone on, and less is owed now.
        with contextlib.suppress(EpochGone):
            _extend(peer, log, last)
            return
    raise EpochGone(
        f"{log.stream}: {peer.address} trims its log faster than it can be copied",
        hint="copy again: the log here goes on from what came",
    )


def _extend(peer: Peer, log: EpochLog, last: int) -> None:
    """Goes on where `peer`'s log begins, if that is later than where the one here ends."""
    first, after = _extent(peer, log.stream)
    end = max(first, last)
    if end >= after:
        raise CheckpointLost(
            f"{log.stream}: the log at {peer.address} ends before epoch {after}, {end} is needed",
            hint="take from another replica",
        )
    start = first if log.first == log.next else max(first, log.next)
    for number in range(start, end + 1):
        epoch = _fetch(peer, log.stream, number)
        if number == start != log.next:
            log.skip_to(start)  # Only when what comes after the hole is here.
        log.append(epoch)


def _fetch(peer: Peer, stream: str, number: int) -> Epoch:
    """One epoch of `peer`, final and under its number, or a refusal."""
    table = peer.get({"do": "epoch", "stream": stream, "number": number}, timeout_s=BODY_S_MAX)
    with refusing(f"what came is not epoch {number} of {stream!r}"):
        epoch = Epoch.from_stamped(valid(table))
        said = (epoch.header.stream, epoch.number, epoch.rows)
        is_it = said == (stream, number, epoch.table.num_rows)
        lost_rows = epoch.kind == GAP and epoch.rows > 0
        if not is_it or epoch.kind not in FINAL or lost_rows:
            raise ValueError(f"it calls itself {said}, {epoch.kind}")
    return epoch


def _compare(peer: Peer, log: EpochLog) -> int:
    """Where `peer`'s log begins; an error if an epoch has other content there (invariant 1)."""
    for _ in range(LOG_ATTEMPTS):
        with contextlib.suppress(EpochGone):
            first, after = _extent(peer, log.stream)
            number, end = max(first, log.first), min(after, log.next)
            while number < end:
                number = _compare_from(peer, log, number, end)
            return first
    raise EpochGone(f"{log.stream}: {peer.address} trims its log faster than it can be compared")


def _compare_from(peer: Peer, log: EpochLog, number: int, end: int) -> int:
    """Compares as many epochs as one answer has; the number that comes next."""
    answer = peer.act({"do": "headers", "stream": log.stream, "from": number})
    with refusing(f"the headers of {log.stream!r} cannot be read"):
        theirs = {header.number: header for header in map(Header.from_json, answer)}
        if number not in theirs:
            raise ValueError(f"{number} is not among them")
    while number < end and number in theirs:
        digest = theirs[number].digest
        if digest != log.header(number).digest:
            raise DivergenceError(
                f"{log.stream}: epoch {number} has digest {digest} at {peer.address} and "
                f"{log.header(number).digest} in {log.folder}",
                hint="one of the two is wrong: move the log here away to take theirs",
            )
        number += 1
    return number


def _extent(peer: Peer, stream: str) -> tuple[int, int]:
    answer = peer.act({"do": "extent", "stream": stream})
    with refusing(f"the extent of {stream!r} cannot be read"):
        return int(answer["first"]), int(answer["next"])
