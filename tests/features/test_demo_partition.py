"""`unbroken demo partition` as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

WAIT_S = 540.0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_shows_alerts_that_are_said_confirmed_and_withdrawn():
    """The cable is pulled and put back, and the answer is known.

    Goal: all three happen before the eyes of whoever watches, and the final alerts are right.
    Method: the command itself, its last line.
    """
    command = [sys.executable, "-m", "unbroken.cli.main", "demo", "partition", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ran.returncode == 0, ran.stderr
    verdict = json.loads(ran.stdout.splitlines()[-1])
    assert verdict["state"] == "verdict"
    assert verdict["right"] is True
    assert verdict["tentative"] > 0
    assert verdict["confirmed"] > 0
    assert verdict["withdrawn"] + verdict["added"] > 0
