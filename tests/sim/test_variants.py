"""The checkers can fail: every protocol that is broken on purpose is caught."""

from __future__ import annotations

import pytest

from unbroken.errors import DefinitionError
from unbroken.testing import simulate
from unbroken.testing.variants import VARIANTS, variant


@pytest.mark.parametrize("name", VARIANTS)
def test_it_is_caught(name: str):
    """Within the number of seeds that it states, by an invariant that it states."""
    broken = VARIANTS[name]
    with variant(name):
        for life in broken.lives():
            result = simulate(life)
            if result.violation is not None:
                break
        else:
            pytest.fail(f"{name}: nobody noticed in {broken.seeds} lives")
    assert result.violation.number in broken.breaks, f"seed {life.seed}: {result.violation}"
    assert simulate(life).violation is None, "the life is a good one with the real protocol"


def test_an_unknown_one_is_refused():
    """With the names of those that there are."""
    with pytest.raises(DefinitionError, match="no variant 'all is well'"), variant("all is well"):
        pass
