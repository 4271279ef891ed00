"""How things begin on a node: one at a time, beside the beat, and again if they fail.

    beat ── control's word ──▶ apart ──▶ done
              ▲                  └─ failed: left, says why (`tries`) ─┐
              └───────────────── said anew with every beat ◀──────────┘

* Whoever beats must never wait for Spark, or control takes the node for dead.
* What finds the fragment busy is left out; control says it anew with every beat.
* A full disk is a failure as well: the checkpoint is as good as before.
* What is of no use here is *lost*: another node may have it, and control is told.
* A replica that runs and stumbles is picked up, a few times.

What begins is in `hosted`.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from unbroken.errors import DiskError, UnbrokenError, Unreachable
from unbroken.node.replica import Replica
from unbroken.node.telling import Telling
from unbroken.policies import Restart
from unbroken.streams.serve import StreamDoor

#: A replica that stumbles more often than this within `STUMBLES_S` has failed.
STUMBLES_MAX = 6
STUMBLES_S = 300.0


class Beginnings(Telling):
    """What is begun about the fragments of one node, and begun again."""

    def __init__(self, streams: StreamDoor) -> None:
        super().__init__(streams)
        self._beginning = threading.Lock()
        self._stumbles: dict[str, list[float]] = {}

    def leave(self, name: str, why: str) -> None:
        """Ends what is hosted of a fragment."""
        raise NotImplementedError

    def _start_again(self, name: str, replica: Replica) -> None:
        raise NotImplementedError

    def apart(self, name: str, do: Callable[..., None], *arguments: Any) -> None:
        """Does something about a fragment beside the caller, unless something is being done."""
        with self._beginning:
            if name in self.under_way:
                return
            self.under_way[name] = f"about to {do.__name__.strip('_').replace('_', ' ')} {name}"

        def act() -> None:
            try:
                do(name, *arguments)
            except DiskError as error:
                self._try_later(name, f"{name} cannot be started", error)
            except UnbrokenError as error:
                print(f"{name} cannot be started: {error}", file=sys.stderr, flush=True)
                self.lost.add(name)
            except Exception as error:  # Of Spark or py4j: it must not stay half started.
                traceback.print_exc()
                mistake = UnbrokenError(f"{type(error).__name__} {error}"[:500])
                self._try_later(name, f"{name} cannot be started", mistake)
            finally:
                del self.under_way[name]

        threading.Thread(target=act, daemon=True, name=f"{do.__name__}-{name}").start()

    def may_begin(self, name: str) -> bool:
        """Whether `name` may be started here now."""
        return self._tries.may_begin(name, now_s=time.monotonic())

    def _try_later(self, name: str, what: str, error: UnbrokenError) -> None:
        """Leaves what could not be started; control asks again with its next answer."""
        print(f"{what}: {error}", file=sys.stderr, flush=True)
        if not isinstance(error, Unreachable):
            self._empty.discard(name)
        self._tries.failed(name, f"{what}: {error.what}", now_s=time.monotonic())
        self.leave(name, "it could not be started")

    def _succeeded(self, name: str) -> None:
        self._empty.discard(name)
        self._tries.done(name, now_s=time.monotonic())

    def _give_up(self, name: str, error: UnbrokenError | str) -> None:
        print(error, file=sys.stderr, flush=True)
        self.lost.add(name)
        self.leave(name, "it has to be taken from another node")

    def pick_up(self) -> None:
        """Starts replicas again that have stumbled: from a fork of their last commit, as ever."""
        for name, replica in list(self.replicas.items()):
            if name in self.under_way:
                continue
            if replica.lost and not isinstance(replica.fragment.policy, Restart):
                self.apart(name, self._give_up, replica.failed)
            elif replica.stumbled and not replica.given_up:
                self._pick_up(name, replica)

    def _pick_up(self, name: str, replica: Replica) -> None:
        now_s = time.monotonic()
        recent = [t for t in self._stumbles.get(name, []) if t > now_s - STUMBLES_S]
        # A busy machine is the usual reason: being in a hurry makes it busier.
        if recent and now_s - recent[-1] < 2.0 ** len(recent):
            return
        self._stumbles[name] = [*recent, now_s]
        if len(recent) >= STUMBLES_MAX:
            replica.give_up()
            return
        print(f"{name} has stumbled and is started again: {replica.stumbled}",
              file=sys.stderr, flush=True)  # fmt: skip
        self.apart(name, self._start_again, replica)
