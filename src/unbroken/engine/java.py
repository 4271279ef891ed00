"""Finds the Java that Spark will use, and says what is missing and how to get it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

from unbroken.errors import JavaMissing


def java_version(text: str) -> int | None:
    """The major version in what `java -version` prints.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_4"')
    (17, 8)
    """
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if not found:
        return None
    major = int(found.group(1))
    return int(found.group(2)) if major == 1 and found.group(2) else major


class Java(NamedTuple):
    """A Java: its major version, and all that it says of itself.

    >>> Java(17, 'openjdk version "17.0.15"').major
    17
    """

    major: int
    text: str


def check_java() -> Java:
    """The Java that Spark will use, or a clear error."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    hint = (
        "install Java 17 or 21 (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
        "macOS: brew install openjdk@17) or set JAVA_HOME to one"
    )
    if not java or not shutil.which(java):
        where = f"JAVA_HOME is {home}, but {java} cannot be run" if home else "no java on the PATH"
        raise JavaMissing(f"Spark needs Java 17 or 21: {where}", hint=hint)
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    said = told.stderr + told.stdout
    version = java_version(said)
    if version is None or version < 17:
        raise JavaMissing(f"Spark needs Java 17 or 21: {java} is Java {version}", hint=hint)
    # Version and build; the other lines depend on its options.
    named = [line for line in said.splitlines() if re.search(r"version|Runtime", line)]
    return Java(version, " ".join(named))


if __name__ == "__main__":  # make says what is missing before it starts anything
    try:
        print(f"Java {check_java().major}: fine")
    except JavaMissing as missing:
        sys.exit(f"error: {missing}")
