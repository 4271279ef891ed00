"""What all tests share: the data folder, and nothing left running afterwards."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from unbroken.node.process import MARK

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
# How long an example takes on a busy machine says nothing about the code.
hypothesis.settings.register_profile("unbroken", deadline=None)
hypothesis.settings.load_profile("unbroken")
SESSION = "UNBROKEN_TEST_SESSION"
# Tests start dozens of JVMs that live for seconds: compiling for the long run only delays them.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session", autouse=True)
def no_process_outlives_the_tests() -> Iterator[None]:
    """Every process tree that a test started must be gone at the end (scenario 27)."""
    os.environ[SESSION] = session = uuid.uuid4().hex
    yield
    left = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get(SESSION) == session and MARK in environment:
                left.append(f"{process.pid}: {' '.join(process.cmdline())[:200]}")
                process.kill()
        except (psutil.Error, OSError):
            continue
    assert not left, f"still running after the tests, killed now: {left}"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of trace files beside the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder ../shared/data with trace files is not there")
    return SHARED_DATA
