"""Reading a query: Spark says what its fragments are, before anything runs."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from unbroken.engine.plan import Plan, analyze_all
from unbroken.engine.session import session
from unbroken.engine.source import EpochSource
from unbroken.errors import UnbrokenError
from unbroken.query import Query


def read(query: Query) -> dict[str, Plan]:
    """What Spark says about every fragment, by a session that ends at once."""
    query.check()  # Before Spark is started for nothing.
    with tempfile.TemporaryDirectory(prefix="unbroken-") as scratch, _quiet():
        spark = session(
            f"explain {query.name}", master="local[1]", scratch=Path(scratch), memory="512m"
        )
        try:
            spark.dataSource.register(EpochSource)
            plans = analyze_all(spark, query)
        finally:
            spark.stop()
    return plans


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What the JVM writes to stderr goes to a file, and is shown only if it could not start."""
    with tempfile.TemporaryFile() as log:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield
        except UnbrokenError:
            raise  # Says all there is to say.
        except Exception as error:
            raise UnbrokenError(
                f"Spark could not read the query: {type(error).__name__}: {error}", hint=_tail(log)
            ) from error
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def _tail(log: IO[bytes], lines_max: int = 15) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return "its last words:\n    " + "\n    ".join(lines[-lines_max:])
