"""The word count example with its known answer: how often each word occurs, exactly.

>>> check = WordCount(seed=7, seconds=1)
>>> check.verdict()["right"]
False
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from unbroken.client.replay import TICKS_PER_S, Pace
from unbroken.demo.words_text import lines
from unbroken.epochs import Epoch

LINES_PER_TICK = 10
TOP = 10


class WordCount:
    """Feeds `queries/wordcount.py` and compares its counts."""

    source, result = "lines", "counts"
    pace = Pace(epoch_s=1.0, speed=1.0, rows=LINES_PER_TICK)

    def __init__(self, seed: int, seconds: int) -> None:
        self._seed, self._count = seed, seconds * LINES_PER_TICK * TICKS_PER_S
        self._counted: dict[str, int] = {}

    def tables(self) -> Iterator[pa.Table]:
        """The text, a thousand lines at a time."""
        return lines(self._seed, self._count)

    def take(self, epoch: Epoch, at_s: float) -> None:
        """The newest count of a word is the true one."""
        words = epoch.table.column("word").to_pylist()
        self._counted.update(zip(words, epoch.table.column("count").to_pylist(), strict=True))

    def verdict(self) -> dict[str, Any]:
        """The most common words, counted by the cluster and by a loop."""
        exact = Counter[str]()
        for table in self.tables():
            for line in table.column("line").to_pylist():
                exact.update(re.findall("[a-z]+", line.lower()))
        wrong = [w for w in {*exact, *self._counted} if exact.get(w) != self._counted.get(w)]
        shown = [word for word, _ in exact.most_common(TOP)]
        shown += [word for word in sorted(wrong)[:TOP] if word not in shown]
        return {
            "right": not wrong,
            "words": f"{len(self._counted):,} words counted, {len(wrong):,} of them wrong",
            "rows": [
                {"word": word, "counted": self._counted.get(word), "exact": exact.get(word)}
                for word in shown
            ],
        }
