"""Where a door may be: not where one of this process was."""

from __future__ import annotations

import pytest

from unbroken.streams import ports


def test_a_process_does_not_claim_a_port_twice(monkeypatch: pytest.MonkeyPatch):
    """Whoever still knocks at the old door from here would have the new one look closed.

    Seen: gRPC shares connections by address within a process, and answers with the last refusal.
    """
    had, other = ports.Claim("127.0.0.1").port, ports._any_port("127.0.0.1")
    answers = iter([had, had, other])
    monkeypatch.setattr(ports, "_any_port", lambda host: next(answers))
    assert ports.Claim("127.0.0.1").port == other
    monkeypatch.setattr(ports, "_any_port", lambda host: had)
    monkeypatch.setattr(ports, "LEFT_OUT_MAX", 0)
    monkeypatch.setattr(ports, "_had", {})
    assert [ports.Claim("127.0.0.1").port for _ in range(2)] == [had, had], "only so many"
