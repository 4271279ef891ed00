"""A Java that is missing or too old: told before Spark is started, with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from unbroken.engine.java import check_java
from unbroken.errors import JavaMissing


def fake_java(folder: Path, says: str) -> None:
    """A JAVA_HOME whose java prints `says`."""
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match=r"no java on the PATH[\s\S]*install Java 17 or 21"):
        check_java()


def test_a_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="JAVA_HOME is"):
        check_java()


@pytest.mark.parametrize("says", ['openjdk version "11.0.2"', 'java version "1.8.0_402"', "?"])
def test_a_java_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str):
    fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="needs Java 17 or 21"):
        check_java()


def test_a_java_that_is_good_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_java(tmp_path, 'openjdk version "21.0.2" 2024-01-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java().major == 21
