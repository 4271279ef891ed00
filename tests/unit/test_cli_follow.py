"""`unbroken follow`: lost epochs are told, and not taken for empty ones."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest

from unbroken.cli import follow
from unbroken.epochs import Epoch

SCHEMA = pa.schema([("n", pa.int64())])


def stable(number: int) -> Epoch:
    return Epoch.of("alerts", number, pa.table({"n": [number]}, schema=SCHEMA))


def gap(number: int, lost: int = 0) -> Epoch:
    return Epoch.gap("alerts", number, SCHEMA, lost=lost)


def followed(
    monkeypatch: pytest.MonkeyPatch, epochs: Iterator[Epoch], *, as_json: bool = False
) -> None:
    cluster = SimpleNamespace(follow=lambda stream, start: epochs)
    monkeypatch.setattr(follow, "connect", lambda at: cluster)
    follow.run(
        argparse.Namespace(at="", stream="alerts", start=0, count=None, json=as_json),
    )


def test_a_run_of_lost_epochs_is_one_line(monkeypatch, capsys):
    epochs = [stable(50), *(gap(n, 100 + n) for n in range(51, 58)), stable(58), gap(59)]
    followed(monkeypatch, iter(epochs))
    told = [text for text in capsys.readouterr().out.splitlines() if "epoch" in text]
    assert told == [
        "epoch 50  stable  1 row",
        "-- epochs 51 to 57 are lost (1,078 rows in)",
        "epoch 58  stable  1 row",
        "-- epoch 59 is lost",
    ]


def test_ctrl_c_does_not_hide_what_was_lost(monkeypatch, capsys):
    def interrupted() -> Iterator[Epoch]:
        yield gap(1, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        followed(monkeypatch, interrupted())
    assert "-- epoch 1 is lost (1 row in)" in capsys.readouterr().out


def test_json_has_every_lost_epoch(monkeypatch, capsys):
    followed(monkeypatch, iter([gap(1, 12), gap(2), stable(3)]), as_json=True)
    told = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [(each["epoch"], each["kind"], each["lost"], each["data"]) for each in told] == [
        (1, "gap", 12, []), (2, "gap", 0, []), (3, "stable", 0, [{"n": 3}]),
    ]  # fmt: skip


def test_what_was_lost_before_is_told_with_the_next_epoch_that_is_taken(monkeypatch, capsys):
    """It comes from a copy that had lost rows in epochs which were taken from another one."""
    epochs = [stable(49), stable(50).with_header(lost=3, lost_total=40), stable(51)]
    epochs[2] = epochs[2].with_header(lost_total=40)
    followed(monkeypatch, iter(epochs))
    told = [text for text in capsys.readouterr().out.splitlines() if "epoch" in text]
    assert told[1:] == ["epoch 50  stable  1 row  (40 lost on the way)", "epoch 51  stable  1 row"]
