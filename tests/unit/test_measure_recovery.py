"""The course of a measurement and its report, with a contender that needs no Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from unbroken.errors import DefinitionError, FragmentFailed, UnbrokenError
from unbroken.measure import contender as contenders
from unbroken.measure import figure, offer, recovery, report
from unbroken.measure.compare import Difference
from unbroken.measure.contender import Kill
from unbroken.measure.recovery import Found, measure
from unbroken.measure.watch import Effect, Watch
from unbroken.measure.workload import Counts

TICK_S = 0.01
SILENCE_S = 0.3


class Fake:
    """Answers every tick at once, except for a while after a kill."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.did: list[str] = []
        self.closed = threading.Event()
        self.error: UnbrokenError | None = None
        self._killed_s = float("-inf")
        self._cpu_s = 0.0

    @property
    def watches(self) -> Sequence[Watch]:
        return [self.watch]

    def start(self) -> None:
        self.did.append("start")

    def send(self, tick: int, due_s: float, tables: Mapping[str, pa.Table]) -> None:
        if time.time() > self._killed_s + SILENCE_S:
            self.watch.take(time.time(), due_s)

    def kill(self) -> Kill:
        self.did.append("kill")
        self._killed_s = time.time()
        return Kill("node-1", self._killed_s, noticed_s=self._killed_s + 0.25)

    def whole(self) -> bool:
        return time.time() > self._killed_s + SILENCE_S

    def mend(self) -> None:
        self.did.append("mend")

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def cpu_s(self) -> float:
        self._cpu_s += 1.0
        return self._cpu_s

    def sent_bytes(self) -> int | None:
        return None

    def kept_bytes(self) -> int:
        return 1000

    def finish(self) -> Difference:
        self.did.append("finish")
        return Difference(lost=1)

    def close(self) -> None:
        self.closed.set()


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offer, "TICK_S", TICK_S)
    monkeypatch.setattr(contenders, "LOOK_S", 0.005)
    for name, value in (("PHASE_S_MAX", 0.02), ("STALE_S_MAX", 0.0), ("LOOK_S_MIN", 0.1)):
        monkeypatch.setattr(recovery, name, value)


def go(found: Found, fake: Fake, said: list[str] | None = None) -> None:
    measure(
        found, Counts(keys=10, rate=100), lambda: fake, kills=2, undisturbed_s=0.1,
        say=(said if said is not None else []).append,
    )  # fmt: skip


def test_every_kill_is_measured_mended_and_told():
    fake, found, said = Fake(), Found("fake", "counts"), list[str]()
    go(found, fake, said)
    assert found.outcome == "measured"
    assert fake.did == ["start", "kill", "mend", "kill", "mend", "finish"]
    assert fake.closed.is_set()
    assert [effect.detect_s for effect in found.effects] == [0.25, 0.25]
    for effect in found.effects:
        # A busy machine may make it longer.
        assert SILENCE_S - 0.1 < effect.gap_s < 5
        assert effect.killed == "node-1"
    assert found.difference == Difference(lost=1)
    assert found.sent_bytes_per_s is None
    assert found.kept_bytes == 1000
    assert any("kill 2 of 2, node-1: output gap" in line for line in said)


def test_a_contender_that_cannot_be_made_or_started_is_told_and_is_no_error():
    def not_there() -> Fake:
        raise DefinitionError("gap cannot be run", hint="wait")

    found = Found("gap", "counts")
    measure(found, Counts(1, 1), not_there, kills=1, undisturbed_s=0.1, say=lambda text: None)
    assert found.outcome == "not run: gap cannot be run"

    class Refused(Fake):
        def start(self) -> None:
            raise DefinitionError("unbounded state cannot be upstream", hint="a watermark")

    fake, found = Refused(), Found("upstream", "counts")
    go(found, fake)
    assert found.outcome == "refused: unbounded state cannot be upstream"
    assert fake.closed.is_set()
    assert not found.ran


def test_a_contender_that_fails_on_the_way_keeps_what_was_measured():
    class Failing(Fake):
        def mend(self) -> None:
            if self.did.count("kill") == 2:
                self.error = FragmentFailed("it broke")

    fake, found = Failing(), Found("active", "counts")
    fake.finish = lambda: pytest.fail("nothing to compare")  # type: ignore[method-assign]
    measure(found, Counts(10, 100), lambda: fake, kills=3, undisturbed_s=0.1, say=lambda text: None)
    assert found.outcome == "failed: it broke"
    assert len(found.effects) == 2
    assert fake.closed.is_set()


def test_what_the_load_raises_ends_the_course():
    class Deaf(Fake):
        def send(self, tick: int, due_s: float, tables: Mapping[str, pa.Table]) -> None:
            raise UnbrokenError("nobody listens")

    found = Found("active", "counts")
    go(found, Deaf())
    assert found.outcome == "failed: nobody listens"


def test_ctrl_c_closes_the_contender_and_leaves_what_is_known():
    class Interrupted(Fake):
        def mend(self) -> None:
            raise KeyboardInterrupt

    fake, found = Interrupted(), Found("active", "counts")
    with pytest.raises(KeyboardInterrupt):
        go(found, fake)
    assert fake.closed.is_set()
    assert found.outcome == "broken off"
    assert found.cpu_s_per_s is not None


def made(name: str, gaps: Sequence[float], cpu: float, **fields: object) -> Found:
    found = Found(name, "counts", outcome="measured", cpu_s_per_s=cpu)
    found.effects = [Effect(gap, 1.0, 2.0, detect_s=0.3) for gap in gaps]
    found.difference = Difference(0, 0, 0)
    for field, value in fields.items():
        setattr(found, field, value)
    return found


FOUND = [
    made("active", [0.0, 0.1, 0.2], 1.9, kept_bytes=3_000_000, sent_bytes_per_s=90_000),
    made("restart", [18.0, 20.0, 25.0], 1.0, kept_bytes=1_000_000, sent_bytes_per_s=50_000),
    made("plain", [22.0], 0.9, kept_bytes=500_000, difference=Difference(0, 2500, 0)),
    Found("upstream", "windows <&>", outcome="refused: state without end"),
]


def test_the_table_has_a_line_per_contender_and_says_what_is_not_known():
    told = report.words(FOUND)
    lines = {line.split(" ")[0].rstrip(":"): line for line in told.splitlines()}
    assert "0.10 (0.00–0.20)" in lines["active"]
    assert lines["active"].split()[-4:] == ["+40.0", "kB", "+2.0", "MB"]
    assert lines["restart"].split()[-4:] == ["50.0", "kB", "1.0", "MB"]
    assert "2,500" in lines["plain"]
    assert lines["plain"].split()[-3:] == ["–", "-500.0", "kB"]
    assert lines["upstream"] == "upstream: refused: state without end"
    assert "workload of active, restart, plain: counts" in told
    assert "220 (active), 1 (restart)" in told


def test_a_kill_after_which_latency_did_not_come_back_is_marked():
    found = made("active", [0.1], 1.0)
    found.effects.append(Effect(0.1, 9.0, None))
    assert "2.00*" in report.words([found])


def test_a_broken_off_measurement_is_shown_as_far_as_it_goes():
    found = Found("active", "counts", cpu_s_per_s=1.5)
    told = report.words([found])
    assert "1.50" in told
    assert "active: broken off" in told
    ElementTree.fromstring(figure.draw([found]))


def test_the_result_is_json():
    result = report.to_json(FOUND, rate=5000)
    assert json.loads(json.dumps(result))["contenders"][0]["effects"][0]["gap_s"] == 0.0


def test_the_figure_is_xml_with_a_mark_and_a_label_for_each():
    root = ElementTree.fromstring(figure.draw(FOUND))
    name = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{name}circle")) == 3
    texts = [each.text for each in root.findall(f"{name}text")]
    assert {"active", "restart", "plain"} <= set(texts)
    assert "upstream" not in texts
    places = {t.text: (t.get("x"), t.get("y")) for t in root.findall(f"{name}text")}
    assert places["restart"] != places["plain"]
    xs = [float(each.get("cx", "")) for each in root.findall(f"{name}circle")]
    assert all(figure.LEFT <= x <= figure.WIDTH - figure.RIGHT for x in xs)


def test_a_figure_without_restart_has_its_own_scale():
    assert "CPU seconds per second" in figure.draw(FOUND[:1])
    assert "CPU, times that of restart" in figure.draw(FOUND)
