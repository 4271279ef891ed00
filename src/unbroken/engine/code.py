"""The user's functions on their way to another process of this machine, as Spark does it.

Functions travel by value: a child cannot import a test, a notebook or a loose file by name.  What
is read here was written by the process that started the cluster, never received over the network.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle

from unbroken.query import Query

_pickle: Any = cloudpickle  # It has no types.


def dumps(query: Query) -> bytes:
    """The query with its functions."""
    # What the user has registered stays so.
    known = _pickle.list_registry_pickle_by_value()
    names = {f.function.__module__ for f in query.fragments.values()} - {"__main__", *known}
    modules = [
        sys.modules[name]
        for name in names
        if name in sys.modules and not name.startswith("unbroken.")
    ]
    for module in modules:
        _pickle.register_pickle_by_value(module)
    try:
        pickled: bytes = _pickle.dumps(query)
        return pickled
    finally:
        for module in modules:
            _pickle.unregister_pickle_by_value(module)


def loads(pickled: bytes) -> Query:
    """What `dumps` made."""
    query: Query = _pickle.loads(pickled)
    return query
