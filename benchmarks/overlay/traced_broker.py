"""A broker of an overlay that writes down when it noticed a failure, what it did then, and when it was not run itself.

    python benchmarks/overlay/traced_broker.py OVERLAY NAME TRACE

It is `surecast broker --overlay OVERLAY --name NAME` with a few methods wrapped. Each line of TRACE is a list in JSON:
the time (of the clock that all processes of a machine share), what happened, and a detail:

| what | detail |
|---|---|
| down, up | neighbour, and why |
| flood | neighbours that are told of a changed state |
| detour | around whom, events, over whom; the first of a turn |
| pass | events of a detour that are passed on; the first of a turn |
| take | events that came by a detour, from whom; the first of a turn |
| again | events in custody that are put on a link that has come up; the first of a turn |
| commit, turn, gc | milliseconds, if they were more than 5 |
| late | milliseconds by which a timer of the loop was late, and those in which the process waited for a processor |
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surecast.broker.overlay.overlay_links import OverlayLinks
from surecast.broker.overlay.overlay_server import OverlayServer
from surecast.broker.overlay.overlay_service import run_overlay_broker
from surecast.protocol.overlay.node_detours import NodeDetours
from surecast.protocol.overlay.node_events import NodeEvents
from surecast.protocol.overlay.overlay_node import OverlayNode

_BEAT_S = 0.005
_LONG_S = 0.005
_LATE_S = 0.002


class Trace:
    """The lines of one process. What may happen for every event is written once in a turn of the loop, with its sum."""

    def __init__(self, path: Path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._schedule = os.open("/proc/self/schedstat", os.O_RDONLY)
        self._sums: dict[tuple[str, ...], int] = {}
        self._begun_s: dict[tuple[str, ...], float] = {}

    def say(self, what: str, *detail: object, at: float | None = None) -> None:
        """Writes a line."""
        line = json.dumps([round(time.perf_counter() if at is None else at, 6), what, *detail])
        os.write(self._file, line.encode() + b"\n")

    def count(self, what: str, about: str, count: int) -> None:
        """Adds to what is written at the end of the turn."""
        key = (what, about)
        self._sums[key] = self._sums.get(key, 0) + count
        self._begun_s.setdefault(key, time.perf_counter())

    def end_turn(self) -> None:
        """Writes what was counted."""
        for (what, about), count in self._sums.items():
            self.say(what, about, count, at=self._begun_s[what, about])
        self._sums.clear()
        self._begun_s.clear()

    def waited_s(self) -> float:
        """Returns for how long this process has been ready and was not run."""
        return int(os.pread(self._schedule, 64, 0).split()[1]) / 1e9

    def beat(self, due_s: float, waited_s: float) -> None:
        """Looks whether the loop is on time."""
        now, waits_s = time.perf_counter(), self.waited_s()
        if now - due_s > _LATE_S or waits_s - waited_s > _LATE_S:
            self.say("late", round(1e3 * (now - due_s), 1), round(1e3 * (waits_s - waited_s), 1))
        asyncio.get_running_loop().call_later(_BEAT_S, self.beat, now + _BEAT_S, waits_s)

    def timed(self, what: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a method that is written down where it takes long."""

        def call(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                took_s = time.perf_counter() - begin
                if took_s > _LONG_S:
                    self.say(what, round(1e3 * took_s, 1), at=begin)

        return call

    def collected(self, phase: str, _: dict[str, int]) -> None:
        """Writes down a long collection of garbage."""
        now = time.perf_counter()
        if phase == "start":
            self._collecting_s = now
        elif now - self._collecting_s > _LONG_S:
            self.say("gc", round(1e3 * (now - self._collecting_s), 1), at=self._collecting_s)


def before(owner: type, name: str, note: Callable[..., None]) -> None:
    """Has `note` see the arguments of a method before it is called."""
    method = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        note(*arguments, **options)
        return method(*arguments, **options)

    setattr(owner, name, call)


def watch(trace: Trace) -> None:
    """Wraps what is written down."""

    def started(server: OverlayServer) -> None:
        server.store.commit = trace.timed("commit", server.store.commit)  # type: ignore[method-assign]
        trace.beat(time.perf_counter(), trace.waited_s())

    before(OverlayServer, "_restore", lambda server, now: started(server))
    before(OverlayServer, "end_turn", lambda server: trace.end_turn())
    OverlayServer.end_turn = trace.timed("turn", OverlayServer.end_turn)  # type: ignore[method-assign]
    before(OverlayLinks, "ended", lambda links, way, kind, why: trace.say("down", way.neighbour, f"{kind}: {why}"))
    before(OverlayLinks, "_opened", lambda links, link, way: trace.say("up", link.neighbour))
    before(OverlayNode, "_flood", lambda node, states, besides: trace.say("flood", node._links.up()))
    before(NodeDetours, "send", lambda detours, hop, events, went: trace.count("detour", hop, events.batch.count))
    before(OverlayNode, "_pass_detour", lambda node, detour, now: trace.count("pass", detour.path[0], 1))
    before(OverlayNode, "_take_detour", lambda node, detour, now: detour.path or trace.count("take", detour.sender, 1))
    before(NodeEvents, "_put_held", lambda node, held, hop: hop in held.untried or trace.count("again", hop, 1))
    gc.callbacks.append(trace.collected)


if __name__ == "__main__":
    trace = Trace(Path(sys.argv[3]))
    watch(trace)
    trace.say("start")
    sys.exit(run_overlay_broker(Path(sys.argv[1]), sys.argv[2]))
