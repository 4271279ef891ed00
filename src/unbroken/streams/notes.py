"""What a producer notes of its consumers beside its log, for the case that it is started again.

    consumers.json   who is expected, what was ruled, and under which term each has spoken
    seeds.json       where a successor of each consumer could begin

* What consumers said under which term: a producer that restarted must not believe a replica that
  was replaced before (invariant 5).
* Seeds have a file of their own, written before anything is trimmed because of the ack that brought
  them: otherwise a producer killed in between would know only an older seed, whose epochs are gone.
  The disk is not waited for: a seed comes with nearly every ack, and what was written is there
  after a kill -9.  After a power cut an older seed may be found, or none; then the take-over finds
  that its epochs are gone and says so.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unbroken.streams import disk
from unbroken.streams.needs import Needs


class Notes:
    """The notes in the `folder` of a log; the caller sees to it that one thread writes at a time.

    >>> import tempfile; folder = Path(tempfile.mkdtemp())
    >>> needs = Needs(); needs.expect("alerts@node-1", term=3)
    >>> Notes(folder).save(needs, {"alerts@node-1"})
    >>> Notes(folder).declared, Notes(folder).found["ruled"]
    ({'alerts@node-1'}, {'alerts@node-1': [3, True]})
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "consumers.json"
        self._seeds_file = folder / "seeds.json"
        known = json.loads(self._file.read_bytes()) if self._file.exists() else {}
        seeds = _read_seeds(self._seeds_file)
        #: What `Needs` begins with.
        self.found: dict[str, Any] = {
            "terms": known.get("terms", {}), "ruled": known.get("ruled", {}), "seeds": seeds,
        }  # fmt: skip
        #: Who was expected by name.
        self.declared: set[str] = set(known.get("declared", []))
        self._saved = _note(Needs(**self.found), self.declared)
        #: As it is on disk; what was read there is written anew, for it may be of another ruling.
        self._seeds_saved: Mapping[str, Any] | None = None if seeds else {}

    def save(self, needs: Needs, declared: set[str]) -> None:
        """Writes what changed; compared with the disk, so that a failed write is made up for."""
        # Seeds first: a newcomer that the other note knows, but whose seed got lost, would not be
        # given it again.  A seed that only this note knows is of another ruling, and ignored.
        seeds = needs.seeds
        if seeds != self._seeds_saved:
            disk.write_whole(self._seeds_file, [json.dumps(seeds).encode()])
            self._seeds_saved = seeds
        if self._has_news(needs, declared):
            note = _note(needs, declared)
            disk.write_whole(self._file, [json.dumps(note).encode()], sync=True)
            self._saved = note

    def _has_news(self, needs: Needs, declared: set[str]) -> bool:
        """Whether what must outlast a restart is not on disk as it is now."""
        # Asked with every ack: a note is made only when there is news.
        saved = self._saved
        return (
            needs.terms != saved["terms"] or needs.ruled != saved["ruled"]
            or len(declared) != len(saved["declared"])
            or not declared.issuperset(saved["declared"])
        )  # fmt: skip


def _note(needs: Needs, declared: set[str]) -> dict[str, Any]:
    return {"terms": dict(needs.terms), "declared": sorted(declared), "ruled": dict(needs.ruled)}


def _read_seeds(path: Path) -> Mapping[str, Any]:
    with contextlib.suppress(OSError, ValueError):  # None yet, or torn by a power cut.
        seeds = json.loads(path.read_bytes())
        if isinstance(seeds, dict):
            return seeds
    return {}
