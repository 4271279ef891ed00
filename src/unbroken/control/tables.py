"""Tables: how the records lie in SQLite, version by version.

    1  members  terms  placement  intentions  removals  holes
    2  + writers
    3  + overtaken
    4  + the rows of a hole

* A version is never changed after it was released: a newer one adds to it.  So a store of any age
  is brought up to date by the versions that it lacks, and a new one is made by all of them.

This module only answers.  It does no I/O and reads no clock.

>>> [" ".join(change.split()[:3]) for change in changes_since(1)]
['CREATE TABLE writers', 'CREATE TABLE overtaken', 'ALTER TABLE holes']
"""

from __future__ import annotations

_VERSIONS = {
    1: """
CREATE TABLE members (node TEXT PRIMARY KEY, address TEXT NOT NULL);
CREATE TABLE terms (fragment TEXT PRIMARY KEY, term INTEGER NOT NULL);
CREATE TABLE placement (
    position INTEGER PRIMARY KEY AUTOINCREMENT, fragment TEXT NOT NULL, node TEXT NOT NULL,
    term INTEGER NOT NULL, standing TEXT NOT NULL, UNIQUE (fragment, node));
CREATE TABLE intentions (
    fragment TEXT NOT NULL, term INTEGER NOT NULL, step TEXT NOT NULL, node TEXT NOT NULL,
    survivor TEXT NOT NULL, replaces TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (fragment, term));
CREATE TABLE removals (
    number INTEGER PRIMARY KEY AUTOINCREMENT, fragment TEXT NOT NULL, node TEXT NOT NULL,
    term INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE holes (
    stream TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (stream, first));
""",
    2: """
CREATE TABLE writers (fragment TEXT PRIMARY KEY, node TEXT NOT NULL, term INTEGER NOT NULL);
""",
    3: """
CREATE TABLE overtaken (fragment TEXT NOT NULL, node TEXT NOT NULL, PRIMARY KEY (fragment, node));
""",
    4: """
ALTER TABLE holes ADD COLUMN rows INTEGER NOT NULL DEFAULT 0;
""",
}

#: Counts up whenever the tables change their meaning.
SCHEMA_VERSION = max(_VERSIONS)


def changes_since(version: int) -> list[str]:
    """What is to be executed to bring tables of `version` up to date; 0: there are none yet.

    >>> changes_since(SCHEMA_VERSION)
    []
    """
    lacking = [tables for number, tables in sorted(_VERSIONS.items()) if number > version]
    return [change for tables in lacking for change in tables.split(";") if change.strip()]
