"""What a replica looks at before it starts: whether what it has is enough, and its own.

    checkpoint ─ its output? ─ the same code? ─────────────────────────────▶ goes on
    none       ─ would it come out the same? ─ are the inputs all there? ──▶ begins again

* A replica that cannot go on says so before anybody hears it: `CheckpointLost` is repaired from
  another node, `DefinitionError` by people.
"""

from __future__ import annotations

from pathlib import Path

from unbroken.epochs import GAP
from unbroken.errors import CheckpointLost, DefinitionError
from unbroken.node.book import BookReader
from unbroken.node.staged import Staged
from unbroken.policies import Gap
from unbroken.query import Fragment
from unbroken.streams.log import EpochLog

#: How long a producer on another node may take to start.
START_S_MAX = 240.0


def has_output(fragment: Fragment, log: EpochLog, staged: Staged | None, committed: int) -> None:
    """A replica is its checkpoint *and* its output (scenario 1).

    >>> import tempfile
    >>> from unbroken.query import Query
    >>> log, query = EpochLog(Path(tempfile.mkdtemp()), "copy"), Query("shop")
    >>> copy = query.fragment(query.source("clicks", "n INT"))(lambda clicks: clicks, name="copy")
    >>> has_output(copy, log, None, -1)
    >>> has_output(copy, log, None, 41)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    unbroken.errors.CheckpointLost: ... its checkpoint is at epoch 41, but its output log ends ...
    """
    end = max(log.next, staged.next if staged else 0)
    if end <= committed:
        raise CheckpointLost(
            f"fragment {fragment.name!r}: its checkpoint is at epoch {committed}, but its "
            f"output log ends before {end}",
            hint=f"restore {log.folder}, or start the query in a new folder",
        )


def same_code(fragment: Fragment, log: EpochLog, fingerprint: str) -> None:
    """State made by other code, or with other settings, is not ours to go on from."""
    last = log.last_header
    if last is not None and last.fingerprint != fingerprint:
        raise DefinitionError(
            f"{fragment.where}: fragment {fragment.name!r} or a setting was changed "
            f"since it made epoch {last.number}",
            hint="its results would not go with those before: start the changed query in a "
            "new folder, or change it back",
        )


def would_be_the_same(
    fragment: Fragment, folder: Path, log: EpochLog, staged: Staged | None, lost: str
) -> None:
    """What was shown must come out again: not of a draw, nor of what a hole is part of."""
    if log.first == log.next:
        return
    oldest = log.header(log.first)
    from_the_start = oldest.number == 0 and oldest.kind != GAP
    if staged or (isinstance(fragment.policy, Gap) and not from_the_start):
        raise CheckpointLost(
            f"fragment {fragment.name!r} has no checkpoint to go on from"
            f"{f' ({lost})' if lost else ''}, and its output up to epoch {log.next - 1} "
            "would not be the same again",
            hint=f"restore the folder {folder}, or start the query in a new folder",
        )


def inputs_reach_back(
    fragment: Fragment, folder: Path, book: BookReader, lost: str, *, draws: bool = False
) -> None:
    """Without a checkpoint the state is computed again from the first epoch on.

    Not of what `draws`: if any copy of it has processed something, others may have the results.
    """
    for name in fragment.inputs:
        extent = book.wait_for(name, START_S_MAX)
        first, acks = extent["first"], extent.get("processed", {})
        done = [to for who, to in acks.items() if who.partition("@")[0] == fragment.name]
        if draws and max(done, default=-1) >= 0:
            raise CheckpointLost(
                f"fragment {fragment.name!r} has no checkpoint to go on from"
                f"{f' ({lost})' if lost else ''}, and its results up to epoch {max(done)} would "
                "not be the same again",
                hint=f"restore the folder {folder}, or start the query in a new folder",
            )
        if first > 0:
            raise CheckpointLost(
                f"fragment {fragment.name!r} has no checkpoint to go on from"
                f"{f' ({lost})' if lost else ''}, and its input {name!r} begins at epoch "
                f"{first}",
                hint="its state cannot be computed again on this node: restore the folder "
                f"{folder}, or start the query in a new folder",
            )
