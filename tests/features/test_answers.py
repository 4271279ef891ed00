"""The answers that other tests compare with are those of an undisturbed run, to the last bit."""

from __future__ import annotations

import answers
import kinds
import pytest


# In `make test` it is `test_determinism` that has a run of all kinds give them.
@pytest.mark.slow
def test_an_undisturbed_run_gives_the_answers_that_are_kept():
    assert answers.compute() == answers.read()


def test_every_kind_has_all_its_answers():
    kept = answers.read()
    assert set(kept) == set(kinds.query.sinks)
    for each in kept.values():
        assert [answer.number for answer in each] == list(range(kinds.COUNT))
