"""Everything that can be wrong with a query is said before it starts, with the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from unbroken.errors import DefinitionError, SchemaError
from unbroken.policies import Active
from unbroken.query import Query
from unbroken.tentative.branch import DELAY, Bound

WORDS = "ts TIMESTAMP, word STRING"


def one(stream):
    """A fragment of one stream.

    The rest is not shown.
    """
    return stream


def two(left, right):
    return left


def query_with_words(**options: str) -> Query:
    query = Query("shop", **options)
    query.source("words", WORDS, event_time="ts")
    return query


def fragment(*inputs: object, function: object = one, name: str = "made", **options: str) -> None:
    query_with_words().fragment(*inputs, **options)(function, name=name)


class NotAFunction:
    def __init__(self, stream: object) -> None: ...


MISTAKES: dict[str, tuple[Callable[[], object], str, str]] = {
    "a delay without a unit": (
        lambda: fragment("words", max_delay="3"), "'3' is not a delay", '"500ms"'),
    "a delay of nothing": (
        lambda: fragment("words", max_delay="0s"), "'0s' is not a delay", "100 ms to 24 h"),
    "another way to be cut off": (
        lambda: fragment("words", max_delay="3s", when_cut="panic"),
        "when_cut='panic' is unknown", "process, delay, suspend"),
    "a way to be cut off without a delay": (
        lambda: fragment("words", when_cut="delay"),
        "when_cut='delay' without max_delay", 'max_delay="3s"'),
    "an unknown choice when healed": (
        lambda: fragment("words", max_delay="3s", when_healed="forget"),
        "when_healed='forget' is unknown", "correct, converge"),
    "converging from nothing": (
        lambda: fragment("words", when_healed="converge"),
        "nothing is ever tentative", "leave out when_healed"),
    "converging from what is suspended": (
        lambda: fragment("words", max_delay="3s", when_cut="suspend", when_healed="converge"),
        "nothing is ever tentative", "leave out when_cut='suspend'"),
    "converging copies": (
        lambda: fragment("words", max_delay="3s", when_healed="converge", policy=Active()),
        "consumers would disagree", "leave out the policy"),
    "a query without a proper name": (
        lambda: Query("../etc"), "'../etc' is not a name", "letters, digits"),
    "an epoch length without a unit": (
        lambda: Query("q", epoch="5"), "'5' is not an epoch length", '"500ms"'),
    "an epoch length that is no text": (
        lambda: Query("q", epoch=5), "5 is not an epoch length", '"1s"'),
    "an epoch length of nothing": (
        lambda: Query("q", epoch="0s"), "'0s' is not an epoch length", "10 ms to 24 h"),
    "an epoch of a week": (
        lambda: Query("q", epoch="168h"), "'168h' is not an epoch length", "24 h"),
    "a source without a proper name": (
        lambda: Query("q").source("my words", WORDS), "'my words' is not a name", "letters"),
    "a schema with a typing mistake": (
        lambda: Query("q").source("s", "word STRONG"),
        "source 's': schema, column 'word', position 6: unknown type 'STRONG'", "STRING?"),
    "a schema that is no text": (
        lambda: Query("q").source("s", {"word": "STRING"}),
        "the schema of source 's' is dict, not text", "DDL"),
    "an empty schema": (
        lambda: Query("q").source("s", ""), "expected a column name", "ts TIMESTAMP"),
    "an event time that is no column": (
        lambda: Query("q").source("s", WORDS, event_time="when"),
        "source 's' has no column 'when' for its event time", "ts, word"),
    "an event time that is no time": (
        lambda: Query("q").source("s", WORDS, event_time="word"),
        "the event time 'word' of source 's' is not a TIMESTAMP", "TIMESTAMP"),
    "a future without an end": (
        lambda: Query("q").source("s", WORDS, future_s_max=float("inf")),
        "source 's' has future_s_max=inf", "seconds"),
    "a future that is no number": (
        lambda: Query("q").source("s", WORDS, future_s_max=float("nan")),
        "future_s_max=nan", "seconds"),
    "a fragment without inputs": (
        lambda: fragment(), "a fragment without inputs", "@query.fragment(connections)"),
    "a decorator without its inputs": (
        lambda: query_with_words().fragment(one), "is not a stream", "a stream's name"),
    "an input that is no stream": (
        lambda: fragment(7), "7 is not a stream", "query.source"),
    "an input twice": (
        lambda: fragment("words", "words", function=two),
        "the stream 'words' is an input twice", "use its DataFrame twice"),
    "a stream of another query": (
        lambda: fragment(query_with_words()["words"]),
        "stream 'words' belongs to another query", "define it on query 'shop'"),
    "an output mode that repeats everything": (
        lambda: fragment("words", output_mode="complete"),
        "output mode 'complete' is unknown", "append, update"),
    "state in a place that is unknown": (
        lambda: fragment("words", state="disk"), "state in 'disk' is unknown", "rocksdb, memory"),
    "no function": (
        lambda: fragment("words", function="count"),
        "'count' is not a function of streaming DataFrames", "decorate a function"),
    "no function and no name": (
        lambda: query_with_words().fragment("words")(42),
        "42 is not a function of streaming DataFrames", "decorate a function"),
    "a class": (
        lambda: fragment("words", function=NotAFunction), "is not a function", "decorate"),
    "too many parameters": (
        lambda: fragment("words", function=two),
        "fragment 'two' reads 1 streams, but its function cannot take them: missing", "one param"),
    "too few parameters": (
        lambda: fragment("words", "others", function=one),
        "fragment 'one' reads 2 streams, but its function cannot take them: too many", "one param"),
    "a fragment without a name": (
        lambda: query_with_words().fragment("words")(lambda words: words),
        "'<lambda>' is not a name", "letters"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_its_line_and_the_way_out(mistake: str):
    """Goal: `file:line` of the user's file first, what is wrong, and what to write instead."""
    define, what, hint = MISTAKES[mistake]
    with pytest.raises(DefinitionError) as caught:
        define()
    assert caught.value.what.startswith("test_query.py:")
    assert caught.value.what.split(":")[1].isdigit()
    assert what in caught.value.what
    assert hint in caught.value.hint


def here() -> int:
    """The line that called this function."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_the_line_is_the_very_line():
    """Not the line of the query, of a helper of ours, or of the check."""
    query = Query("q")
    line = here() + 2
    with pytest.raises(SchemaError) as caught:
        query.source("s", "word STRONG")
    assert caught.value.what.startswith(f"test_query.py:{line}: ")


def test_two_streams_of_one_name_and_both_lines():
    """A source and a fragment share one space of names: both ends are told."""
    query = query_with_words()
    first = query["words"].where
    for define in (
        lambda: query.source("words", WORDS),
        lambda: query.fragment("words")(one, name="words"),
    ):
        with pytest.raises(DefinitionError, match="a second stream called 'words'") as caught:
            define()
        assert f"the first is at {first}" in caught.value.what


def test_an_unknown_stream_is_told_when_the_graph_is_whole():
    """Names may be defined later in the file, so only `check` can know."""
    query = query_with_words()
    made = query.fragment("wrods")(one)
    query.sink("one")
    with pytest.raises(DefinitionError) as caught:
        query.check()
    assert caught.value.what == f"{made.where}: fragment 'one' reads the unknown stream 'wrods'"
    assert caught.value.hint == "the streams are: words, one"


def test_an_unknown_sink_names_the_line_of_the_sink():
    """Not the line of the query, which may be pages away."""
    query = query_with_words()
    line = here() + 1
    query.sink("nothing")
    with pytest.raises(DefinitionError, match="a sink reads the unknown stream") as caught:
        query.check()
    assert caught.value.what.startswith(f"test_query.py:{line}: ")


def test_a_query_without_a_sink_would_compute_for_nobody():
    """The line is that of the query."""
    query = query_with_words()
    with pytest.raises(DefinitionError, match="query 'shop' has no sink") as caught:
        query.check()
    assert caught.value.what.startswith(f"{query.where}: ")


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ({"a": "a"}, "a"),
        ({"a": "b", "b": "a"}, "b, a"),
        ({"after": "b", "a": "b", "b": "a", "fine": "words"}, "a, b"),
        ({"a": "c", "b": "a", "c": "b"}, "b, c, a"),
    ],
)
def test_a_cycle_is_told_with_the_fragments_on_it_and_no_others(edges: dict[str, str], cycle: str):
    """Whoever merely reads from a cycle is not part of it."""
    query = query_with_words()
    for name, reads in edges.items():
        query.fragment(reads)(one, name=name)
    query.sink("words")
    with pytest.raises(DefinitionError) as caught:
        query.check()
    where = query[cycle.split(", ")[0]].where
    assert caught.value.what == f"{where}: a cycle through {cycle}"


def test_streams_come_in_the_order_of_the_data_however_they_were_written():
    """Names that are defined later are fine, if there is a way through."""
    query = query_with_words()
    query.fragment("second")(one, name="third")
    query.fragment("words", "third")(two, name="fourth")
    query.fragment("words")(one, name="second")
    query.sink("fourth")
    query.sink("fourth")
    assert [stream.name for stream in query.check()] == ["words", "second", "third", "fourth"]
    assert query.consumers("words") == ["fourth", "second"]
    assert query.sinks == ["fourth"]
    assert query["second"].about == "A fragment of one stream."


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("500ms", 0.5), (" 2 min ", 120),
                                               ("0.5h", 1800), ("24h", 86_400)])  # fmt: skip
def test_epoch_lengths_that_are_fine(text: str, seconds: float):
    """With a unit, with or without blanks and fractions."""
    assert Query("q", epoch=text).epoch_s == seconds


def test_a_manual_query_has_no_length():
    """Then producers say when an epoch ends."""
    assert Query("q", epoch="manual").epoch_s is None


def test_a_bound_is_only_there_where_results_may_be_tentative():
    """Without `max_delay`, and with `suspend`, a fragment waits, as it always did."""
    query = query_with_words()
    for name, options in {
        "waits": {},
        "suspends": {"max_delay": "3s", "when_cut": "suspend"},
        "goes_on": {"max_delay": "3s"},
        "delays": {"max_delay": "500ms", "when_cut": "delay"},
    }.items():
        query.fragment("words", **options)(one, name=name)
    bounds = {name: made.bound for name, made in query.fragments.items()}
    assert bounds == {
        "waits": None, "suspends": None, "goes_on": Bound(3.0), "delays": Bound(0.5, DELAY),
    }  # fmt: skip
