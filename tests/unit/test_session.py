"""The settings of a node's Spark session that depend on where it runs; no Spark is started."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

from unbroken.engine import session

ENABLED = "spark.python.unix.domain.socket.enabled"


def test_spark_talks_to_its_python_processes_by_files_where_their_names_fit():
    """A socket's name has 107 bytes; who may open one is a matter of the folder."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        settings = session._sockets("local[2]", Path(short) / "scratch")
        assert settings[ENABLED] == "true"
        assert settings["spark.python.unix.domain.socket.dir"] == f"{short}/scratch"
        assert stat.S_IMODE((Path(short) / "scratch").stat().st_mode) == 0o700


def test_spark_talks_over_tcp_where_names_are_long_or_executors_are_elsewhere(tmp_path: Path):
    long = tmp_path / ("x" * session.SOCKET_FOLDER_BYTES_MAX)
    assert session._sockets("local[2]", long) == {}
    assert session._sockets("spark://127.0.0.1:7077", Path("/tmp/short")) == {}
    assert not long.exists()
