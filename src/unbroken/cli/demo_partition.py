"""`unbroken demo partition`: a cable is pulled and put back while two sites are watched.

    0 s ────────── 1/3 ──────────────────────── 3/4 ─────────── end
    stable         cut: tentative alerts        healed: they are confirmed or withdrawn

At the end what a client heard is compared with the undisturbed answer, which is known.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Group
from rich.text import Text

from unbroken.cli.follow import became
from unbroken.cli.load import load
from unbroken.cli.made import Made
from unbroken.cli.meter import Meter
from unbroken.cli.view import View
from unbroken.client.progress import Progress, Status
from unbroken.client.replay import Replay
from unbroken.demo import queries
from unbroken.demo.check_two_sites import SITES, TwoSites
from unbroken.epochs import TENTATIVE, Epoch
from unbroken.errors import DefinitionError, UnbrokenError
from unbroken.local import LocalCluster
from unbroken.measure import compare
from unbroken.measure.said import Said

#: An attacker of this seed is seen at both sites before it ends, another one at one site.
SEED = 3
NODES_MIN = 3
WARM_EPOCHS = 10
CUT_AT, HEAL_AT = 1 / 3, 3 / 4
#: The reader that goes on, and the site that it does not hear of.
READER, SITE = "attempts", "western"
SHOWN_MAX = 14
_STYLES = {"?": "yellow", "-": "red", "+": "green", "=": "green"}


def run(given: argparse.Namespace) -> int:
    """Runs the query, cuts, heals, and compares."""
    if given.nodes < NODES_MIN:
        raise DefinitionError(
            f"a partition on {given.nodes} nodes: the sites and their reader need one each",
            hint=f"--nodes {NODES_MIN}",
        )
    path = Path(queries.__file__).with_name("two_sites.py")
    query = load(path)
    seed = SEED if given.seed is None else given.seed
    check = TwoSites(seed, given.seconds)
    made_of = Path(f"made up, seed {seed}")
    traces = [
        Made(query.sources[site], made_of, tables=partial(check.tables, site)) for site in SITES
    ]
    meter = Meter(query.name, {trace.source.name: trace for trace in traces})
    shown = _Shown()
    with tempfile.TemporaryDirectory(prefix="unbroken-demo-") as folder:
        # A temporary folder of our own, so that it goes also if the cluster cannot start.
        cluster = LocalCluster(
            query, given.nodes, folder=folder, port=given.port, manual=True, cables=True
        )
        view = View(cluster.status, meter, json_lines=given.json, more=shown.render)
        with contextlib.closing(cluster), view:
            view.say(f"two sites on {given.nodes} Spark nodes; the query: {path}")
            cluster.start()
            results = _Results(cluster, check.result, view, shown)
            cutting = _Cutting(cluster, view, 0 if given.no_kill else given.seconds)
            _feed(cluster, traces, results, cutting, view)
    verdict = figures(check.answer(), results.said, cutting.cut_s)
    if given.json:
        print(json.dumps({"state": "verdict", **verdict}), flush=True)
    view.say(words(verdict))
    return 0 if verdict["right"] else 1


def figures(answer: list[pa.Table], said: Said, cut_s: float | None) -> dict[str, Any]:
    """What was heard, against the undisturbed answer."""
    schema = said.stable[-1].table.schema
    expected = [schema.empty_table()] * WARM_EPOCHS + [table.cast(schema) for table in answer]
    difference = compare.epochs(expected, said.stable)
    wrong = difference.lost + difference.repeated + difference.wrong
    went_on = cut_s is None or said.tentative > 0
    cut_s = cut_s or float("inf")
    return {
        "right": not wrong and not said.open and went_on,
        "stable_epochs": len(said.stable), "rows": sum(table.num_rows for table in answer),
        "lost": difference.lost, "repeated": difference.repeated, "wrong": difference.wrong,
        "tentative": said.tentative, "confirmed": said.confirmed, "replaced": said.replaced,
        "open": len(said.open), "withdrawn": said.withdrawn, "added": said.added,
        # The first epochs are slow by themselves.
        "longest_before_s": said.longest_s(until_s=cut_s, first=WARM_EPOCHS),
        "longest_after_s": said.longest_s(since_s=cut_s),
    }  # fmt: skip


def words(verdict: dict[str, Any]) -> str:
    """The verdict for people."""
    told = verdict
    lines = [
        f"stable: {told['rows']:,} alerts in {told['stable_epochs']} epochs; against the "
        f"undisturbed answer {told['lost']} lost, {told['repeated']} repeated, "
        f"{told['wrong']} wrong"
    ]
    if told["tentative"]:
        lines.append(
            f"tentative: {told['tentative']} epochs said; {told['confirmed']} confirmed, "
            f"{told['replaced']} replaced, {told['open']} open; {told['withdrawn']} alerts "
            f"withdrawn, {told['added']} added"
        )
        lines.append(
            f"the latest new result came {told['longest_after_s']:.1f} s after its rows; before "
            f"the cable was pulled {told['longest_before_s']:.1f} s"
        )
    return "\n".join(lines)


def _feed(
    cluster: LocalCluster, traces: list[Made], results: _Results, cutting: _Cutting, view: View
) -> None:
    results.start()
    stable = results.said.stable

    def look() -> Status:
        cluster.raise_start_error()
        results.check_error()
        return cluster.status()

    progress = Progress(look)
    # Spark's first batches take seconds, and a reader would take that for silence: one by one.
    producers = [cluster.producer(site) for site in SITES]
    for number in range(WARM_EPOCHS):
        for producer in producers:
            producer.close_epoch()
        progress.wait(partial(_has, stable, number + 1))
    view.state = "running"
    cutting.begin()
    Replay(cluster, traces, TwoSites.pace, progress, base=WARM_EPOCHS).run()
    cutting.end()
    view.state = "finishing"
    progress.wait(partial(_has, stable, cluster.finish()))
    view.state = "done"


def _has(stable: list[Epoch], count: int, status: Status) -> bool:
    return len(stable) >= count


class _Cutting:
    """Pulls the cable after a third of the time, and puts it back after three quarters."""

    def __init__(self, cluster: LocalCluster, view: View, seconds: float) -> None:
        self._cluster, self._view, self._seconds = cluster, view, seconds
        self._timers: list[threading.Timer] = []
        #: The two nodes between which it is.
        self._site = self._reader = ""
        #: When it was pulled, by the clock on the wall.
        self.cut_s: float | None = None

    def begin(self) -> None:
        """From now on time counts."""
        if not self._seconds:
            return
        held = self._cluster.status()["fragments"]
        self._site, self._reader = held[SITE]["nodes"][0], held[READER]["nodes"][0]
        for part, act in ((CUT_AT, self._cut), (HEAL_AT, self._heal)):
            self._timers.append(threading.Timer(part * self._seconds, act))
            self._timers[-1].daemon = True
            self._timers[-1].start()

    def end(self) -> None:
        """Whatever is due has happened when this returns."""
        for timer in self._timers:
            timer.join()

    def _cut(self) -> None:
        site, reader = self._site, self._reader
        self.cut_s = time.time()
        self._cluster.cut(site, reader)
        self._view.say(
            f"cut: {READER} on {reader} hears nothing more of {SITE} on {site} (from another "
            f"terminal: unbroken cut {site} {reader} --at {self._cluster.address})"
        )

    def _heal(self) -> None:
        self._cluster.heal()
        self._view.say("healed: the cable is back")


class _Shown:
    """The last alerts, for the view."""

    def __init__(self) -> None:
        self.lines: deque[tuple[str, str]] = deque(maxlen=SHOWN_MAX)

    def render(self) -> Group:
        """A line for each, with its mark."""
        title = "alerts: ? tentative, = confirmed, - withdrawn, + added by a correction"
        shown = [Text(text, style=_STYLES.get(mark, "")) for mark, text in list(self.lines)]
        return Group(Text(title, style="dim"), *shown)


class _Results(threading.Thread):
    """Follows the alerts, counts what becomes of them, and tells."""

    def __init__(self, cluster: LocalCluster, stream: str, view: View, shown: _Shown) -> None:
        super().__init__(name="results", daemon=True)
        self._cluster, self._stream, self._view, self._shown = cluster, stream, view, shown
        self._error: UnbrokenError | None = None
        self.said = Said()

    def run(self) -> None:
        """Follows until the cluster ends."""
        try:
            for epoch in self._cluster.follow(self._stream):
                self.said.heard(epoch, time.time())
                self._shown.lines.extend(lines(epoch))
                text = became(epoch)
                if text and not self._view.is_live:
                    rows = "1 alert" if epoch.rows == 1 else f"{epoch.rows} alerts"
                    self._view.say(f"epoch {epoch.number}  {epoch.kind}  {rows}  ({text})")
        except UnbrokenError as error:
            self._error = error

    def check_error(self) -> None:
        """Raises what ended the thread."""
        if self._error is not None:
            raise self._error


def lines(epoch: Epoch) -> list[tuple[str, str]]:
    """What an epoch says, a line per alert, each with its mark.

    >>> import pyarrow as pa
    >>> row = {"src": "10.0.0.1", "kind": "scan", "score": 31}
    >>> lines(Epoch.of("alerts", 7, pa.Table.from_pylist([row]), kind=TENTATIVE))
    [('?', '? epoch    7  10.0.0.1         scan         31')]
    """
    if epoch.replaces is None:
        marked = [("?" if epoch.kind == TENTATIVE else " ", epoch.table)]
    elif epoch.confirmed:
        marked = [("=", epoch.table)]
    else:
        marked = [("-", epoch.replaces.withdrawn), ("+", epoch.replaces.added)]
    return [
        (mark, f"{mark} epoch {epoch.number:4}  {row['src']:16} {row['kind']:12} {row['score']}")
        for mark, table in marked
        if table is not None
        for row in table.to_pylist()
    ]
