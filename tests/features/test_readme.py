"""The README is true: its example prints what it says, its commands exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from unbroken.cli.main import parser

PROJECT = Path(__file__).resolve().parents[2]
README = (PROJECT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    """All lines of the shell blocks, continuation lines joined."""
    text = "\n".join(body for kind, body in BLOCKS if kind == "sh").replace("\\\n", " ")
    return [line.split("#")[0].strip() for line in text.splitlines() if line.strip()]


#: Every program of the README, and what it prints.
PROGRAMS = [
    (code, said)
    for (kind, code), (next_kind, said) in pairwise(BLOCKS)
    if (kind, next_kind) == ("python", "text")
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("code", "said"), PROGRAMS, ids=["ten-lines", "kill-a-node"])
def test_its_programs_print_what_the_readme_says(tmp_path: Path, code: str, said: str):
    """Run as a new user would: from a file of its own."""
    (tmp_path / "program.py").write_text(code)
    ran = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=350
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == said


def test_every_command_of_the_readme_is_understood():
    """`unbroken …` lines parse, and name files that exist where they are the project's own."""
    said = [shlex.split(line) for line in commands()]
    ours = [words[1:] for words in said if words[0] == "unbroken"]
    assert len(ours) >= 5
    for words in ours:
        given = parser().parse_args(words)
        file = getattr(given, "file", None)
        if str(file).endswith(".py"):
            assert (PROJECT / str(file)).exists(), words


def test_every_make_target_of_the_readme_exists():
    targets = set(re.findall(r"^(\w+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    said = {shlex.split(line)[1] for line in commands() if line.startswith("make ")}
    assert said
    assert said <= targets
