"""One door per foreign thing, and pure modules that stay pure: the imports are walked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import unbroken

ROOT = Path(unbroken.__file__).parent
MODULES = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py"))
PURE = [
    *(
        "gate.py",
        "query.py",
        "streams/merge.py",
        "streams/needs.py",
        "streams/clock.py",
        "streams/hole.py",
        "streams/giving_up.py",
    ),
    *(module for module in MODULES if module.startswith("policies/")),
    *(module for module in MODULES if module.startswith("tentative/")),
    *(module for module in MODULES if module.startswith("control/") and "store" not in module),
]


def imports(module: str) -> Iterator[str]:
    """Every name that a module imports, also inside functions: `a.b` for `from a import b`."""
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(*packages: str) -> set[str]:
    def is_one(name: str) -> bool:
        return any(name == package or name.startswith(package + ".") for package in packages)

    return {module for module in MODULES if any(map(is_one, imports(module)))}


def test_the_walk_sees_something():
    """A test that walks nothing would be content with everything."""
    assert {"streams/flight.py", "gate.py", "engine/run.py"} <= set(MODULES)
    assert "streams/flight.py" in importers("pyarrow.flight")
    assert "engine/run.py" in importers("pyspark")


def test_only_the_engine_knows_spark():
    """STYLE 3: the day Spark changes, one folder changes.

    Shipped example queries are a user's code: they may name pyspark as users do.
    """
    knowing = importers("pyspark", "py4j")
    assert {m for m in knowing if not m.startswith(("engine/", "demo/queries/"))} == set()


def test_only_one_module_opens_sockets():
    """Every call has a deadline, because there is one place to give it one."""
    assert importers("pyarrow.flight") == {"streams/flight.py"}
    # Cables pass on bytes of which they know nothing: they exist to be pulled.  Ports are looked at
    # and held, and nothing is said there.
    assert importers("socket") == {"streams/ports.py", "streams/cable.py"}
    assert importers("http", "urllib", "ssl", "socketserver", "asyncio", "requests") == set()


def test_nothing_unpickles_what_came_over_the_network():
    """The user's functions travel through a folder of this user, in one module."""
    assert importers("pickle", "dill", "marshal", "shelve") == set()
    assert importers("cloudpickle", "pyspark.cloudpickle") == {"engine/code.py"}


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_only_decide(module: str):
    """View in, decision out: no clock, no disk, no threads, no network."""
    forbidden = {"time", "datetime", "os", "threading", "socket", "random", "subprocess", "shutil"}
    assert {name.split(".")[0] for name in imports(module)} & forbidden == set()


def test_epochs_import_nothing_of_ours():
    """The word that everybody uses stands on its own."""
    assert not [name for name in imports("epochs.py") if name.startswith("unbroken")]


def test_data_flows_downward():
    """STYLE 4: streams know no checkpoints, neither knows nodes, and no one the command line."""
    above = {
        "tentative/": ("unbroken.streams", "unbroken.query", "unbroken.checkpoints",
                       "unbroken.engine", "unbroken.node", "unbroken.client"),
        "policies/": ("unbroken.streams", "unbroken.query", "unbroken.checkpoints",
                      "unbroken.engine", "unbroken.node", "unbroken.client"),
        "control/": ("unbroken.checkpoints", "unbroken.engine", "unbroken.node", "unbroken.client"),
        "streams/": ("unbroken.checkpoints", "unbroken.engine", "unbroken.node", "unbroken.client"),
        "checkpoints/": ("unbroken.engine", "unbroken.node", "unbroken.client"),
        "engine/": ("unbroken.node", "unbroken.client"),
        "": ("unbroken.cli",),
    }  # fmt: skip
    # The test kit is for tests: only its command uses it.
    assert {m for m in importers("unbroken.testing") if not m.startswith("testing/")} == {
        "cli/sim.py"
    }
    for folder, forbidden in above.items():
        wrong = importers(*forbidden)
        assert {m for m in wrong if m.startswith(folder) and not m.startswith("cli/")} == set()
