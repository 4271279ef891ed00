"""Lines of text in no language, whose words are as unevenly common as in a real one.

The word of rank r is r times rarer than the most common word (Zipf's law), and the most common ones
are the shortest.  A line begins with a capital and ends with a full stop, so a word count has to
fold the case and find the words.

>>> table = next(lines(seed=7, count=3))
>>> table["number"].to_pylist()
[0, 1, 2]
>>> table["line"][0].as_py()
'Fe razi fito ve kulu re ta mo fa ma tevi tute.'
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema([("number", pa.int64()), ("line", pa.string())])

LINES_PER_TABLE_MAX = 1000
WORDS_PER_LINE_MIN = 4
WORDS_PER_LINE_MAX = 12

_SYLLABLES = [consonant + vowel for vowel in "aeiou" for consonant in "bdfgklmnprstvz"]
_PAIRS = [first + second for first in _SYLLABLES for second in _SYLLABLES]

# The factor has no common divisor with the 4,900 pairs, so it visits each at most once, and
# neighbours in rank do not look alike.
VOCABULARY = _SYLLABLES + [_PAIRS[1709 * rank % len(_PAIRS)] for rank in range(1930)]
"""2,000 words, the most common first."""


def lines(seed: int, count: int) -> Iterator[pa.Table]:
    """Lines 0 to `count` - 1, in tables of at most a thousand.

    >>> [table.num_rows for table in lines(seed=1, count=2500)]
    [1000, 1000, 500]
    >>> short, long = next(lines(seed=1, count=10)), next(lines(seed=1, count=2500))
    >>> short.equals(long.slice(0, 10).combine_chunks())
    True
    """
    for first in range(0, count, LINES_PER_TABLE_MAX):
        # A whole table is made even if less is asked for: then a short text begins a longer one.
        whole = _table(seed, first)
        yield whole.slice(0, min(count - first, LINES_PER_TABLE_MAX))


def _table(seed: int, first: int) -> pa.Table:
    rng = np.random.default_rng([seed, first])
    lengths = rng.integers(WORDS_PER_LINE_MIN, WORDS_PER_LINE_MAX + 1, LINES_PER_TABLE_MAX)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    ranks = np.searchsorted(_zipf_shares(), rng.random(int(offsets[-1])), side="right")
    words = pa.array(VOCABULARY).take(pa.array(ranks))
    sentences = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words), " ")
    text = pc.binary_join_element_wise(pc.utf8_capitalize(sentences), ".", "")
    numbers = pa.array(np.arange(first, first + LINES_PER_TABLE_MAX, dtype=np.int64))
    return pa.Table.from_arrays([numbers, text], schema=SCHEMA)


def _zipf_shares() -> npt.NDArray[np.float64]:
    sums = np.cumsum(1.0 / np.arange(1, len(VOCABULARY) + 1))
    return np.asarray(sums / sums[-1])
