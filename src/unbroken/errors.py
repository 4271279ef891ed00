"""Every error of Unbroken, each with the way out.

    UnbrokenError
     ├── DefinitionError      the query, as written, cannot run (names the line of the user's file)
     │    └── SchemaError     a schema that cannot be read
     ├── RowError             rows that do not fit their schema
     ├── BackpressureError    a log is full; says who holds it
     ├── EpochGone            an epoch that was trimmed is asked for
     ├── DivergenceError      two contents under one stable number
     ├── FenceError           a promise of an older term
     ├── MisalignedBatch      Spark built a batch that is not one epoch of every input
     ├── CheckpointLost       a fragment cannot go on from where it stopped
     ├── FragmentFailed       the user's code failed inside Spark
     ├── DiskError            a disk is full or cannot be written
     ├── PortInUse            another process listens where a door should open
     ├── Unreachable          nobody answers at an address
     └── JavaMissing          no Java that Spark can use

An error says what happened, and `hint` says what to do next; both are printed together.

>>> print(BackpressureError("log of 'clicks' is full", hint="start the sink that reads it"))
log of 'clicks' is full
  → start the sink that reads it
"""

from __future__ import annotations


class UnbrokenError(Exception):
    """The root of all errors that Unbroken raises on purpose.

    >>> str(UnbrokenError("it broke", hint="mend it"))
    'it broke\\n  → mend it'
    """

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n  → {self.hint}" if self.hint else self.what

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.hint))


def _rebuild(kind: type[UnbrokenError], what: str, hint: str) -> UnbrokenError:
    return kind(what, hint=hint)


class DefinitionError(UnbrokenError):
    """The query, as written, cannot run; the message starts with `file:line`."""


class SchemaError(DefinitionError):
    """A schema that cannot be read."""


class RowError(UnbrokenError):
    """Rows that do not fit the schema of their stream; none of them was taken."""


class BackpressureError(UnbrokenError):
    """A log has reached its limit; the message names the consumer that holds it."""


class EpochGone(UnbrokenError):
    """An epoch was asked for that has been trimmed."""


class DivergenceError(UnbrokenError):
    """Two different contents claim the same stable number of one stream."""


class FenceError(UnbrokenError):
    """A promise was made under a term that is no longer current."""


class MisalignedBatch(UnbrokenError):
    """A micro-batch does not go from epoch n-1 to n on every input."""


class CheckpointLost(UnbrokenError):
    """A fragment cannot go on from where it stopped, and its inputs no longer reach back."""


class FragmentFailed(UnbrokenError):
    """The fragment's code failed inside Spark; its node and the other fragments go on."""

    #: Whether the reason is outside the user's code, and may be gone next time.
    passing = False


class DiskError(UnbrokenError):
    """A disk is full or cannot be written; nothing half-written is visible."""


class PortInUse(UnbrokenError):
    """Another process listens where a door should open."""


class Unreachable(UnbrokenError):
    """Nobody answers at an address within the time allowed."""


class JavaMissing(UnbrokenError):
    """No Java that Spark can use was found."""


#: What travels over the wire is the name of one of these and two strings, never an object.
BY_NAME: dict[str, type[UnbrokenError]] = {
    kind.__name__: kind
    for kind in (
        UnbrokenError, DefinitionError, SchemaError, RowError, BackpressureError, EpochGone,
        DivergenceError, FenceError, MisalignedBatch, CheckpointLost, FragmentFailed, DiskError,
        PortInUse, Unreachable, JavaMissing,
    )
}  # fmt: skip
