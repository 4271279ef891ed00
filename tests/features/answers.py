"""What an undisturbed run of `kinds` gives, kept as text: a dozen queries need not run for it anew.

In `answers.jsonl`: a line that names the epochs that were fed, then one line per stream and epoch,
digest and rows.  `test_answers` makes them again and compares (`make long`); in `make test` a run
that is killed must give them, kind by kind, and so must a Spark cluster.  Whoever changes `kinds`
writes them anew:

    .venv/bin/python tests/features/answers.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import kinds

import unbroken as ub

FILE = Path(__file__).with_suffix(".jsonl")


@dataclass(frozen=True)
class Answer:
    """An epoch as text has it: times are their ISO words, numbers are exact."""

    stream: str
    number: int
    digest: str
    rows: list[dict[str, Any]]


def of(epoch: ub.Epoch, stream: str) -> Answer:
    """An epoch that came out, as `read` would give it."""
    rows = json.loads(json.dumps(epoch.table.to_pylist(), default=str))
    return Answer(stream, epoch.number, epoch.digest, rows)


def question() -> str:
    """Names what is fed today: other rows would have other answers."""
    return hashlib.blake2b(repr(kinds.epochs(kinds.COUNT)).encode(), digest_size=16).hexdigest()


def read() -> dict[str, list[Answer]]:
    """The answers to `kinds.epochs(kinds.COUNT)`, per stream."""
    found: dict[str, list[Answer]] = {}
    asked, *lines = FILE.read_text().splitlines()
    assert json.loads(asked) == {"fed": question()}, "answers to other rows: write them anew"
    for line in lines:
        answer = Answer(**json.loads(line))
        found.setdefault(answer.stream, []).append(answer)
    return found


def check(stream: str, got: Sequence[ub.Epoch], expected: Sequence[Answer]) -> None:
    """Every epoch is the one of the undisturbed run: its number, its rows in order, its digest."""
    for mine, theirs in zip(got, expected, strict=True):
        assert of(mine, stream) == theirs, f"{stream} epoch {mine.number}"


def compute() -> dict[str, list[Answer]]:
    """What an undisturbed run gives today."""
    ran = ub.run(kinds.query, kinds.epochs(kinds.COUNT))
    return {name: [of(epoch, name) for epoch in epochs] for name, epochs in ran.items()}


def write() -> None:
    """Runs undisturbed, and keeps what that gives."""
    given = [asdict(answer) for each in compute().values() for answer in each]
    FILE.write_text("".join(json.dumps(line) + "\n" for line in [{"fed": question()}, *given]))


if __name__ == "__main__":
    write()
