"""What is said of a query that stopped: whatever a user can act on."""

from __future__ import annotations

from unbroken.engine.run import _PASSING, _last_words

PY4J = """py4j.Py4JException: An exception was raised by the Python Proxy. Message:
Traceback (most recent call last):
  File "run.py", line 1, in _rows
    return output.collect(frame)
py4j.protocol.Py4JJavaError: An error occurred while calling o801.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.ThreadUtils$.awaitResult(ThreadUtils.scala:1)
Caused by: java.net.SocketTimeoutException: Accept timed out
\tat java.base/java.net.ServerSocket.accept(ServerSocket.java:1)
"""


def test_java_says_why_when_python_only_says_where():
    assert _last_words(PY4J) == "java.net.SocketTimeoutException: Accept timed out"


def test_a_process_that_was_not_given_the_time_may_have_it_the_next_time():
    assert _PASSING.search(PY4J)
    assert not _PASSING.search("ValueError: no such column")


def test_an_error_of_the_users_own_function_is_said_as_it_is():
    text = PY4J + "Traceback (most recent call last):\nValueError: no such column\n"
    assert _last_words(text) == "ValueError: no such column"
