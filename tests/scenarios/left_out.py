"""Rules left out, one by one, for lives that they save (`lived.astray`); as `testing.broken`.

These have no name in `variants`: chance would hardly ever find the day on which they matter.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from unbroken.control import unheard
from unbroken.control.intentions import Standing
from unbroken.control.releases import Releases
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas
from unbroken.control.store import Store
from unbroken.errors import UnbrokenError
from unbroken.node import checks, control, replica, standby, successor
from unbroken.node.book import BookReader
from unbroken.node.branch import Branch
from unbroken.node.hosted import Hosted
from unbroken.node.questions import Questions
from unbroken.node.replica import Replica
from unbroken.node.second import Second
from unbroken.streams import served
from unbroken.streams.hole import Begin, Positions
from unbroken.streams.merge import Merge
from unbroken.streams.needs import Needs
from unbroken.streams.served import Served
from unbroken.testing import engine, processes
from unbroken.testing.broken import Change
from unbroken.testing.disk import Disk, Path
from unbroken.testing.epochs import digest_of
from unbroken.testing.follow import Follower
from unbroken.testing.operators import observe
from unbroken.testing.patches import patched
from unbroken.testing.processes import SinkShell


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


def no_word_of_placements() -> list[Change]:
    """An ack of a life that was placed before is believed."""
    record = Needs.record

    def of_the_newest(self: Needs, consumer: str, **said: Any) -> None:
        record(self, consumer, **{**said, "placed": self.ruling(consumer)})

    return [(Needs, "record", of_the_newest)]


def nobody_is_the_first() -> list[Change]:
    """Whoever has nothing has lost it, also where nobody ever had anything."""
    return [(Replicas, "has_begun", lambda self, fragment: True)]


def no_word_of_clients() -> list[Change]:
    """A standby does not tell its writer who has found it."""
    shippable = Questions._shippable

    def without_clients(self: Questions, command: Any) -> Any:
        return shippable(self, {**command, "clients": []})

    return [(Questions, "_shippable", without_clients)]


def draws_again() -> list[Change]:
    """Whoever draws numbers begins anew wherever its input does, whoever has its results."""
    reach_back = checks.inputs_reach_back

    def as_others(*given: Any, **how: Any) -> None:
        reach_back(*given, **{**how, "draws": False})

    return [(checks, "inputs_reach_back", as_others)]


def says_what_is_stable() -> list[Change]:
    """A branch says again what its fragment had sealed, and not committed."""
    begin = Branch.__init__

    def from_the_commit(self: Branch, name: str, **how: Any) -> None:
        begin(self, name, **{**how, "sealed": -1})

    return [(Branch, "__init__", from_the_commit)]


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


# Rules of the list of bad days (`rows`), by number.


def begun_is_forgotten() -> list[Change]:
    """15: control that starts again neither does once more what it had begun, nor undoes it."""
    leave = Releases.leave

    def unless_unknown(self: Releases, fragment: str, node: str, reason: str) -> None:
        if not reason.startswith("no repair is known"):
            leave(self, fragment, node, reason)

    return [(Store, "unfinished", lambda self: []), (Releases, "leave", unless_unknown)]


def groups_what_waits() -> list[Change]:
    """24: epochs that wait are one batch: late rows are told by the watermark before it."""
    compute = engine.Run._compute
    groups: dict[int, list[Any]] = {}

    def grouped(self: engine.Run, number: int, epochs: list[Any]) -> None:
        group, waits = groups.setdefault(id(self), []), self.replica._gate.complete > number

        def at_the_end(marks: Any, operator: Any, inputs: Any) -> Any:
            group.append(inputs)
            while group and not waits:
                marks = observe(marks, operator, group.pop(0))
            return marks

        with patched([(engine, "observe", at_the_end)]):
            compute(self, number, epochs)

    return [(engine.Run, "_compute", grouped)]


def any_code_merges() -> list[Change]:
    """26: epochs are taken whatever code they were made by."""
    return [(Merge, "_same_code", lambda self, replica, header: True)]


def other_code() -> list[Change]:
    """26, no rule, but what happens there: node-2 runs code that adds one, and says so."""
    plan_for, seal = Hosted._plan_for, Replica._seal

    def another(self: Hosted, name: str, key: str = "") -> Any:
        def for_term(term: int) -> Any:
            plan: Any = copy(plan_for(self, name, key)(term))
            plan.fingerprint = "adds one" if self._node == "node-2" else plan.fingerprint
            return plan

        return for_term

    def adds_one(self: Replica, number: int, rows: Any, digest: str) -> None:
        if self.name == "a@node-2":
            rows = tuple((time_ms, key, value + 1) for time_ms, key, value in rows)
            digest = digest_of(rows)
        seal(self, number, rows, digest)

    return [(Hosted, "_plan_for", another), (Replica, "_seal", adds_one)]


def boots_look_alike() -> list[Change]:
    """28: nobody sees that a machine was rebooted, and that Spark had not synced its checkpoint.

    Commits are files of their own: of the older ones there is everything but the state.
    """
    power_cut = Disk.power_cut

    def unnoticed(self: Disk) -> None:
        power_cut(self)
        self.boot -= 1
        for checkpoint in (each for folder in self.checkpoints.values() for each in folder.all()):
            oldest = min(checkpoint.commits)
            checkpoint.commits = {oldest: checkpoint.commits[oldest]._replace(state={})}

    return [(Disk, "power_cut", unnoticed)]


def position_from_a_note() -> list[Change]:
    """30: a sink goes on where its note says, which is written before the file."""
    write, begin = SinkShell._write, SinkShell.__init__

    def noted(self: SinkShell, epoch: Any) -> None:
        note = self._sim.folder(self._process) / "note"
        note.disk.write_whole(note, [str(epoch.number + 1).encode()], sync=True)
        write(self, epoch)

    def follow(*given: Any, consumer: str, **how: Any) -> Follower:
        world, network, watch, stream, next_epoch, find = given
        note = Path(watch.sim.disk(world.current.name), world.current.name) / "note"
        next_epoch = int(note.read_bytes()) if note.exists() else next_epoch
        return Follower(
            world, network, watch, stream, next_epoch, find, consumer=consumer, **how
        )  # fmt: skip

    def with_note(self: SinkShell, sim: Any, process: Any) -> None:
        begin(self, sim, process)
        self._kind = follow

    return [(SinkShell, "_write", noted), (SinkShell, "__init__", with_note)]


def holds_what_lies_before() -> list[Change]:
    """Who begins anew behind a hole does not tell producers that nobody needs what lies before."""
    return [(successor, "ack", lambda consumer, term, processed: {"do": "extent"})]


def strangers_at_once() -> list[Change]:
    """A new replica takes everybody for a stranger who has not asked it yet."""
    return [(served, "MET_S", -1.0)]


def inputs_outlive_it() -> list[Change]:
    """A second query that starts while its replica ends is stopped, and its inputs go on."""

    def try_resume(self: Second, parked: Any) -> None:
        self._resume(parked)
        if self._stopped and self._run is not None:
            self._run.stop()

    return [(Second, "_try_resume", try_resume)]
