"""What a run shows once a second: the numbers behind the live view and `--json`.

A reading has these keys, and always all of them (numbers that are not known yet are null):

    t            seconds since the command began
    state        "starting", "running", "finishing" or "done"
    query        the query's name
    sources      {name: {epoch, rows_per_s, rows, open_rows, set_aside, given_up, bad_rows,
                         file, standstill}}
                 epoch: the last one sealed; rows: sent by this run; file: null if it has none;
                 standstill: why it is full for good, "" if it is not
    nodes        {name: {state, pid, fragments}}
      fragments  {name: {epoch, behind, delay_s, rows_in, rows_out, rows_per_s, doing, failed,
                 tentative_to}}
                 epoch: the last one done; behind: epochs sealed at the sources and not done here;
                 delay_s: how long the oldest of those has waited; tentative_to: the last one said
                 tentatively, null while nothing is cut off
    fragments    {name: {policy, wanted, nodes, survives, weakness, doing}}
                 nodes: that have a live copy; survives: how many of them may be lost right now,
                 and what keeps it from being more
    sinks        {stream: {epoch, rows, lost, lost_rows, delay_s, folder}}
                 lost: epochs that are lost; lost_rows: rows, wherever on the way, as far as known;
                 delay_s: from sealed at the source to written, of the newest epoch

Epochs count from 0; -1 is none.  This module reads no clock: the time is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unbroken.client.replay import Trace
from unbroken.client.sinks import SinkThread

Reading = dict[str, Any]
#: Epochs whose sealing is remembered for the delay of a fragment that is far behind.
SEALED_KEPT_MAX = 100_000


class Meter:
    """Turns the status of a cluster into readings."""

    def __init__(self, query: str, traces: Mapping[str, Trace] | None = None) -> None:
        self._query = query
        self._traces = traces or {}
        self.sinks: list[SinkThread] = []
        self._before: dict[str, tuple[float, int]] = {}
        self._states: dict[str, str] = {}
        #: When each epoch was first seen sealed at all sources.
        self._sealed_s: dict[int, float] = {}

    def read(self, status: Mapping[str, Any] | None, state: str, t_s: float) -> Reading:
        """One reading; `status` is None while the cluster does not answer."""
        told = status or {"sources": {}, "nodes": {}, "fragments": {}}
        sealed = min((source["next"] for source in told["sources"].values()), default=0) - 1
        self._note_sealed(sealed, t_s)
        return {
            "t": round(t_s, 1),
            "state": state,
            "query": self._query,
            "sources": {
                name: self._source(name, source, t_s) for name, source in told["sources"].items()
            },
            "nodes": {
                name: {
                    "state": self._node_state(name, node["state"]),
                    "pid": node["pid"],
                    "fragments": {
                        key: self._fragment(key, fragment, sealed, t_s)
                        for key, fragment in node["fragments"].items()
                    },
                }
                for name, node in told["nodes"].items()
            },
            "fragments": told["fragments"],
            "sinks": {
                thread.sink.stream: {
                    "epoch": thread.next - 1,
                    "rows": thread.sink.rows,
                    "lost": thread.sink.lost,
                    "lost_rows": thread.sink.lost_rows,
                    "delay_s": _rounded(thread.delay_s),
                    "folder": str(thread.sink.folder),
                }
                for thread in self.sinks
            },
        }

    def _node_state(self, name: str, told: str) -> str:
        """While Spark starts a node cannot report: its silence means nothing yet."""
        before = self._states.get(name, "")
        if told.startswith("silent") and before not in ("", "running"):
            return before
        self._states[name] = told
        return told

    def _source(self, name: str, told: Mapping[str, Any], t_s: float) -> Reading:
        trace = self._traces.get(name)
        rows = trace.rows_sent if trace else None
        return {
            "epoch": told["next"] - 1,
            "rows_per_s": self._rate(f"source {name}", rows, t_s),
            "rows": rows,
            "open_rows": told["open_rows"],
            "set_aside": told["set_aside"],
            "given_up": told["given_up"]["rows"],
            "bad_rows": trace.bad if trace else None,
            "file": str(trace.path) if trace else None,
            "standstill": told["standstill"],
        }

    def _fragment(self, name: str, told: Mapping[str, Any], sealed: int, t_s: float) -> Reading:
        behind = max(0, sealed - told["epoch"])
        oldest_s = self._sealed_s.get(told["epoch"] + 1, t_s) if behind else t_s
        return {
            "epoch": told["epoch"],
            "behind": behind,
            "delay_s": round(t_s - oldest_s, 1),
            "rows_in": told["rows_in"],
            "rows_out": told["rows_out"],
            "rows_per_s": self._rate(f"fragment {name}", told["rows_in"], t_s),
            "doing": _doing(told),
            "failed": told["failed"] or None,
            "tentative_to": told.get("tentative_to"),
        }

    def _note_sealed(self, sealed: int, t_s: float) -> None:
        first = max(self._sealed_s, default=-1) + 1
        for number in range(max(first, sealed - SEALED_KEPT_MAX), sealed + 1):
            self._sealed_s[number] = t_s
        for number in list(self._sealed_s)[: -SEALED_KEPT_MAX or None]:
            del self._sealed_s[number]

    def _rate(self, key: str, count: int | None, t_s: float) -> float | None:
        if count is None:
            return None
        before_s, before = self._before.get(key, (t_s, count))
        self._before[key] = (t_s, count)
        # A replica that was started again counts from 0.
        return round(max(0, count - before) / (t_s - before_s), 1) if t_s > before_s else None


Look = Callable[[], Mapping[str, Any]]


def _doing(told: Mapping[str, Any]) -> str:
    """What a copy does, and what came of the last partition.

    >>> _doing({"sentence": "waits for epoch 9", "partition": "stable again: confirmed epoch 7"})
    'waits for epoch 9; stable again: confirmed epoch 7'
    """
    partition = "" if told.get("tentative_to") is not None else told.get("partition", "")
    return "; ".join(filter(None, (told["sentence"], partition)))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
