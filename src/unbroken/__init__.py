"""Unbroken keeps Spark streaming queries answering through crashes, partitions and load spikes.

>>> import unbroken as ub
>>> query = ub.Query("shop", epoch="1s")
>>> clicks = query.source("clicks", "ts TIMESTAMP, page STRING", event_time="ts")
>>> @query.fragment(clicks)
... def pages(clicks):
...     return clicks.select("page")
>>> query.sink(pages)
"""

from unbroken.client.cluster import Cluster, connect
from unbroken.epochs import Epoch, Header
from unbroken.errors import UnbrokenError
from unbroken.local import LocalCluster
from unbroken.policies import Active, Gap, Passive, Upstream
from unbroken.query import Fragment, Query, Source
from unbroken.running import run

__all__ = [
    "Active", "Cluster", "Epoch", "Fragment", "Gap", "Header", "LocalCluster", "Passive", "Query",
    "Source", "UnbrokenError", "Upstream", "connect", "run",
]  # fmt: skip
