"""`unbroken follow`: lost epochs are told, and not taken for empty ones."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest

from unbroken.cli import follow
from unbroken.epochs import TENTATIVE, Epoch, Replaced
from unbroken.tentative.correction import replacing

SCHEMA = pa.schema([("n", pa.int64())])


def stable(number: int) -> Epoch:
    return Epoch.of("alerts", number, pa.table({"n": [number]}, schema=SCHEMA))


def gap(number: int, lost: int = 0) -> Epoch:
    return Epoch.gap("alerts", number, SCHEMA, lost=lost)


def followed(
    monkeypatch: pytest.MonkeyPatch, epochs: Iterator[Epoch], *options: str, as_json: bool = False
) -> None:
    def only(stream: str, start: int, *, tentative: bool) -> Iterator[Epoch]:
        return (each for each in epochs if tentative or each.kind != TENTATIVE)

    cluster = SimpleNamespace(follow=only)
    monkeypatch.setattr(follow, "connect", lambda at: cluster)
    parser = argparse.ArgumentParser()
    follow.register(parser.add_subparsers())
    words = ["follow", "alerts", "--start", "0", "--at", "grpc://127.0.0.1:1", *options]
    follow.run(parser.parse_args([*words, "--json"] if as_json else words))


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


def said(number: int, *rows: int) -> Epoch:
    table = pa.table({"n": list(rows)}, schema=SCHEMA)
    return Epoch.of("alerts", number, table, kind=TENTATIVE, branch="1@node-3", stable_to=6)


def corrected(number: int, before: Epoch, *rows: int) -> Epoch:
    return replacing(Epoch.of("alerts", number, pa.table({"n": list(rows)}, schema=SCHEMA)), before)


def test_every_row_says_whether_it_is_tentative_and_what_becomes_of_it(monkeypatch, capsys):
    seven, eight = said(7, 1, 2), said(8, 5)
    later = [corrected(7, seven, 2, 3), corrected(8, eight, 5)]
    followed(monkeypatch, iter([seven, eight, *later, stable(9)]))
    lines = [text.split() for text in capsys.readouterr().out.splitlines()]
    assert lines == [
        *(words.split() for words in (
            "epoch 7 tentative 2 rows (stable to 6, branch 1@node-3)", "n", "? 1", "? 2",
            "epoch 8 tentative 1 row (stable to 6, branch 1@node-3)", "n", "? 5",
            "epoch 7 stable 2 rows (corrected: 1 row withdrawn, 1 added)", "n", "- 1", "+ 3",
            "epoch 8 stable 1 row (confirmed)",
            "epoch 9 stable 1 row", "n", "9",
        )),
    ]  # fmt: skip


def test_a_correction_of_more_than_can_be_remembered_shows_all_rows(monkeypatch, capsys):
    forgotten = Replaced(said(7, 1).header, withdrawn=None, added=None)
    now = stable(7)
    followed(monkeypatch, iter([Epoch(now.header, now.table, forgotten)]))
    assert [text.split() for text in capsys.readouterr().out.splitlines()] == [
        ["epoch", "7", "stable", "1", "row", "(corrected)"], ["n"], ["7"],
    ]  # fmt: skip


def test_json_says_of_every_epoch_what_it_is_worth(monkeypatch, capsys):
    seven, eight = said(7, 1, 2), said(8, 5)
    later = [corrected(7, seven, 2, 3), corrected(8, eight, 5)]
    followed(monkeypatch, iter([seven, eight, *later]), as_json=True)
    first, _, changed, same = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["kind"], first["branch"], first["stable_to"]) == ("tentative", "1@node-3", 6)
    assert first["data"] == [{"n": 1}, {"n": 2}]
    assert (changed["kind"], changed["confirmed"]) == ("stable", False)
    assert (changed["withdrawn"], changed["added"]) == ([{"n": 1}], [{"n": 3}])
    assert changed["data"] == [{"n": 2}, {"n": 3}]
    assert (same["kind"], same["confirmed"], same["withdrawn"]) == ("stable", True, [])
    assert (same["replaces"], same["given_up"]) == ("1@node-3", False)


def test_what_was_said_and_is_given_up_is_told(monkeypatch, capsys):
    """A run of lost epochs must not swallow it: somebody waits for the end of what was said."""
    given_up = replacing(gap(7, 12), said(7, 1))
    followed(monkeypatch, iter([said(7, 1), given_up, gap(8)]))
    told = [text for text in capsys.readouterr().out.splitlines() if "epoch" in text]
    assert "epoch 7  gap  0 rows" in told[1]
    assert "(given up: what was said is neither" in told[1]
    assert told[2] == "-- epoch 8 is lost"
    followed(monkeypatch, iter([given_up]), as_json=True)
    assert json.loads(capsys.readouterr().out)["given_up"] is True


def test_what_is_tentative_can_be_left_out(monkeypatch, capsys):
    followed(monkeypatch, iter([said(7, 1), stable(7)]), "--stable")
    told = [text for text in capsys.readouterr().out.splitlines() if "epoch" in text]
    assert told == ["epoch 7  stable  1 row"]
