"""Where a replica begins that nobody shipped anything to: after a seed, or after a hole.

    upstream   producers ─ the seed that the last ack carried ─▶ empty state at f, mute until D
    gap        consumers ─ where each of them is ─▶ the hole ─ recorded once ─▶ delivered

* A seed is as good as the producers' logs: each kept what its newest ack asked for, so the highest
  f that any of them knows is the one that all can still serve (scenario 3).  The names of clients
  come with it: one that is away while the node is lost is waited for, as before.
* The one that is gone may only be silent, and serve on.  So first of all the successor stands
  *alone*: control gives it up for good, the book names nobody else, and consumers say how far
  they are when they have read that.
* A hole begins after the newest epoch that any consumer has, or two of them would differ for ever
  (scenario 13); its end is the newest epoch that is complete on all inputs.  Consumers that cannot
  ask now, such as standbys, are not waited for: control knows them.
* Inputs may be behind their consumers for a while: a power cut takes what was not synced, and it is
  made again.  What a consumer says it has is true all the same, up to what the sources have sealed.
* What lies before the hole holds no log any more, also not for the one that is gone.
* If no consumer is there to ask, it begins where the inputs do: what lies before was processed by
  the one that is gone, and consumers may have all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from unbroken.engine.plan import Plan
from unbroken.epochs import Epoch
from unbroken.errors import CheckpointLost, Unreachable
from unbroken.node.book import FRESH_S, BookReader
from unbroken.node.checks import START_S_MAX
from unbroken.node.lost import Lost
from unbroken.node.replica import Replica
from unbroken.policies import Upstream
from unbroken.policies.past import Seed
from unbroken.streams.flight import Peer, checked_name
from unbroken.streams.hole import Begin
from unbroken.streams.needs import ack
from unbroken.streams.served import Served

#: How long to wait for the consumers to say where they are: they look into the book that often.
ASK_S_MIN = 3 * FRESH_S
ASK_S_MAX = 10.0
LOOK_S = 0.05
#: Of a replica in an empty folder: no ack of its later terms is older.
FIRST_TERM = 1


def begin(
    replica: Replica, served: Served, gone: str, book: BookReader, control: Peer, plan: Plan,
    sources: Sequence[str],
) -> Seed:  # fmt: skip
    """Prepares the log of a replica that takes the place of `gone`, and says where it begins."""
    if isinstance(replica.fragment.policy, Upstream):
        seed, clients = _seed(replica, gone, book)
        for client in clients:  # Before anything is served that could be trimmed.
            served.expect(client)
        served.begin(seed.speak)
        return seed
    for client in _clients(replica, gone, book):
        served.meet(client)
    return _after_hole(replica, served, gone, book, control, plan, sources)


def _clients(replica: Replica, gone: str, book: BookReader) -> list[str]:
    """The clients of the replica that is gone, as far as its acks have told them."""
    answers = [
        told["seed"] or {}
        for stream in replica.fragment.inputs
        for told in book.ask_all(stream, {"do": "seed", "consumer": gone})
    ]
    return sorted({checked_name(name) for seed in answers for name in seed.get("clients", [])})


def _seed(replica: Replica, gone: str, book: BookReader) -> tuple[Seed, list[str]]:
    """The newest seed that producers were given by the replica that is gone, and its clients."""
    seeds: list[tuple[Seed, list[str]]] = []
    for stream in replica.fragment.inputs:
        answers = book.ask_all(stream, {"do": "seed", "consumer": gone})
        if not answers:
            # Not the same as having none: what it was given may be all that is left.
            raise Unreachable(
                f"nobody who serves {stream!r} answers", hint="asked again until somebody does"
            )
        for told in answers:
            if told["seed"] is not None:
                said = dict(told["seed"])
                clients = [checked_name(name) for name in said.pop("clients", [])]
                seeds.append((Seed.of(said), clients))
    nothing: tuple[Seed, list[str]] = Seed(0, 0, None), []
    seed, clients = max(seeds, key=lambda each: each[0].first, default=nothing)
    for stream in replica.fragment.inputs:
        first = book.wait_for(stream, START_S_MAX)["first"]
        if first > seed.first:
            raise CheckpointLost(
                f"fragment {replica.fragment.name!r} cannot be rebuilt: it needs {stream!r} from "
                f"epoch {seed.first}, which begins at {first}",
                hint="start the query in a new folder",
            )
    return seed, clients


def _after_hole(
    replica: Replica, served: Served, gone: str, book: BookReader, control: Peer, plan: Plan,
    sources: Sequence[str],
) -> Seed:  # fmt: skip
    """Records the hole, puts it into the log, and goes on behind it."""
    stream, node = replica.fragment.name, replica.name.partition("@")[2]
    told = control.act({"do": "alone", "stream": stream, "node": node}, timeout_s=5.0)
    book.stand_alone(stream, replica.name, int(told["term"]))
    served.stand_alone(int(told["term"]))
    begin, replaced = _consumers_have(
        served, partial(_newest_complete, book, replica.fragment.inputs), control, book,
        sealed=partial(_newest_complete, book, sources),
    )  # fmt: skip
    if begin.first == 0:
        nobody = max(extent["first"] for extent in _extents(book, replica.fragment.inputs))
        begin = Begin(nobody, nobody, [])
    # Without state nothing is lost but what was missed; with it, at least one epoch is given up:
    # consumers must hear that what follows begins from nothing.
    first, least = begin.low, begin.first if plan.traits.stateful else begin.first - 1
    last = max(least, _newest_complete(book, replica.fragment.inputs) - 1)
    epochs: list[Epoch] = []
    if last >= first:
        hole = {"do": "hole", "stream": stream, "node": node, "first": first, "last": last,
                "replaced": replaced}  # fmt: skip
        recorded: dict[str, Any] = control.act(hole, timeout_s=5.0)
        if int(recorded["last"]) < last:
            # Of an attempt before this one, which may have been live, acked, and be lost as well.
            begins = max(each["first"] for each in _extents(book, replica.fragment.inputs))
            if int(recorded["last"]) + 1 < begins:
                recorded = control.act({**hole, "longer": True}, timeout_s=5.0)
        first, last = int(recorded["first"]), int(recorded["last"])
        served.turn_away([*replaced, *begin.behind])
        # On record, so nobody will ask for what lies before.  Its rows are counted when its last
        # epoch has come, which a producer cannot make while its log is full for those before.
        word = ack(replica.name, FIRST_TERM, -1, placed=replica.placed)
        word |= {"need": first, "overtakes": gone}
        for each in replica.fragment.inputs:
            book.tell(each, word)
    before = [(one, end, rows) for one, end, rows in told["holes"] if end < first]
    given_up = sum(end - one + 1 for one, end, _ in before), sum(rows for _, _, rows in before)
    if last >= first:
        lost = Lost.asked(replica.fragment.inputs, book, range(first, last + 1))
        count = {"do": "count_hole", "stream": stream, "node": node, "first": first}
        rows = control.act({**count, "rows": lost.rows}, timeout_s=5.0)
        epochs = lost.epochs(stream, plan, given_up, at_least=int(rows))
        given_up = epochs[-1].header.gaps_here, epochs[-1].header.lost_here
    replica.losses = given_up
    served.begin(first, epochs, shown_from=begin.first)
    return Seed(last + 1, last + 1, None)


def _consumers_have(
    served: Served, newest: Callable[[], int], control: Peer, book: BookReader, *,
    sealed: Callable[[], int],
) -> tuple[Begin, list[str]]:  # fmt: skip
    """Where the stream goes on: one more than the newest epoch that any consumer has, 0 if none is
    there, and earlier for fragments no copy of which has that.

    And the consumers that were not asked because another copy of them goes on.
    """
    began_s = time.monotonic()
    silent: list[str] = []
    replaced: list[str] = []
    while True:
        # Also for a moment, in between: nobody could read in the book whom to ask now.
        began_s = max(began_s, book.silent_s)
        waited_s = time.monotonic() - began_s
        if waited_s > ASK_S_MIN:
            told = control.act({"do": "not_asking", "stream": served.log.stream})
            silent, replaced = told["waiting"], told["replaced"]
            if served.hole(besides=silent, without=replaced) is not None:
                # Looked up when all have spoken: until then they take from the one before.
                asked_s, end = time.monotonic(), sealed()
                if time.monotonic() - asked_s > FRESH_S:
                    # Its keeper was silent, so nobody could read in the book whom to ask now.
                    began_s = time.monotonic()
                    continue
                begin = served.where(at_most=end + 1, besides=silent, without=replaced)
                if begin is not None and begin.first <= newest() + 1:
                    return begin, replaced
                if begin is not None and waited_s > ASK_S_MAX:
                    raise Unreachable(
                        f"consumers have {served.log.stream!r} up to epoch {begin.first - 1}, and "
                        f"what that is made of ends at {newest()}",
                        hint="asked again until that is made again",
                    )
        if waited_s > ASK_S_MAX:
            unheard = [name for name in served.unheard if name not in {*silent, *replaced}]
            raise Unreachable(
                f"{', '.join(unheard)} did not say how far they are",
                hint="asked again until they do, or are replaced",
            )
        time.sleep(LOOK_S)


def _extents(book: BookReader, streams: Sequence[str]) -> list[dict[str, Any]]:
    return [book.wait_for(stream, START_S_MAX) for stream in streams]


def _newest_complete(book: BookReader, streams: Sequence[str]) -> int:
    return min(int(extent["next"]) for extent in _extents(book, streams)) - 1
