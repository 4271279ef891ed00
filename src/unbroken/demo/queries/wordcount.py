"""How often does each word occur?

    lines ─▶ words ─▶ counts ─▶ sink

`counts` writes the new count of every word that occurred in an epoch; the latest one is true.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import unbroken as ub

PROTECTED = ub.Active(replicas=2)

query = ub.Query("wordcount", epoch="1s")

lines = query.source("lines", "number BIGINT, line STRING")


@query.fragment(lines, policy=PROTECTED)
def words(lines: DataFrame) -> DataFrame:
    """One row per word; a word is a run of letters, in lower case."""
    found = F.regexp_extract_all(F.lower("line"), F.lit("[a-z]+"), F.lit(0))
    return lines.select(F.explode(found).alias("word"))


@query.fragment(words, output_mode="update", policy=PROTECTED)
def counts(words: DataFrame) -> DataFrame:
    """How often each word has occurred so far."""
    return words.groupBy("word").count()


query.sink(counts)
