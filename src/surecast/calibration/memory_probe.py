"""The memory that a broker needs for what it keeps: connections, sessions, queued and retained messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from surecast.load import BrokerAccess, BrokerConnection, LoadError, processes_use
from surecast.profile import Interval, MemoryCosts

__all__ = ["measure_memory"]

_CONNECTIONS: Final = 300
_SESSIONS: Final = 100
_QUEUED_EACH: Final = 50
_RETAINED: Final = 2000
_PAYLOAD: Final = bytes(200)
_SESSION_S: Final = 900

OnProgress = Callable[[str, float, float], None]


def measure_memory(
    access: BrokerAccess, pids: Sequence[int], prefix: str, on_progress: OnProgress, problems: list[str]
) -> MemoryCosts:
    """Returns the memory of one of each; all is removed again, also when it fails. `problems` gets what stays.

    A broker that refuses to keep something has no cost for it, and `problems` says so.
    """
    probe = _Probe(access, pids, prefix, on_progress)
    costs = {"base": Interval.exactly(probe.memory())}
    with ExitStack() as kept:  # all of it stays until the end: what is freed would be used again, and cost nothing
        for name, count, put in (
            ("connection", _CONNECTIONS, probe.connections),
            ("session", _SESSIONS, probe.sessions),
            ("queued", _SESSIONS * _QUEUED_EACH, probe.queued),
            ("retained", _RETAINED, probe.retained),
        ):
            before = probe.memory()
            try:
                kept.enter_context(put())
                costs[name] = Interval.exactly(max(0.0, (probe.memory() - before) / count))
            except LoadError as error:
                problems.append(f"memory of one {name}: not measured: {error}")
    problems += probe.problems
    return MemoryCosts(**costs)


class _Probe:
    def __init__(self, access: BrokerAccess, pids: Sequence[int], prefix: str, on_progress: OnProgress):
        self._access, self._pids, self._prefix, self._progress = access, pids, prefix, on_progress
        self.problems: list[str] = []

    def memory(self) -> float:
        """Returns the memory of the broker now, after one more round trip: what was asked before is done then."""
        BrokerConnection(self._access, f"{self._prefix}-look").close()
        return float(processes_use(self._pids).memory_bytes)

    def _name(self, number: int) -> str:
        return f"{self._prefix}-m{number}"

    @contextmanager
    def connections(self) -> Iterator[None]:
        open_ones: list[BrokerConnection] = []
        try:
            for number in range(_CONNECTIONS):
                open_ones.append(BrokerConnection(self._access, f"{self._prefix}-c{number}"))
                self._progress("memory of connections", number + 1, _CONNECTIONS)
            yield
        finally:
            for each in open_ones:
                each.close()

    @contextmanager
    def sessions(self) -> Iterator[None]:
        """Sessions without connections, each with a subscription."""
        made = 0
        try:
            for number in range(_SESSIONS):
                connection = BrokerConnection(self._access, self._name(number), clean=False, session_s=_SESSION_S)
                made = number + 1
                connection.subscribe([self._topic(number)], 1)
                connection.close()
                self._progress("memory of sessions", made, _SESSIONS)
            yield
        finally:
            self._remove(made)

    def _remove(self, made: int) -> None:
        for number in range(made):
            try:
                BrokerConnection(self._access, self._name(number)).close()
            except (LoadError, OSError) as error:
                self.problems.append(f"the sessions {self._name(number)} to {self._name(made - 1)} may stay: {error}")
                return

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Messages that wait in the sessions, and go with them."""
        publisher = BrokerConnection(self._access, f"{self._prefix}-p")
        try:
            for number in range(_SESSIONS):
                for _ in range(_QUEUED_EACH):
                    publisher.publish(self._topic(number), _PAYLOAD, 1, False)
                self._progress("memory of queued messages", number + 1, _SESSIONS)
        finally:
            publisher.close()
        yield

    @contextmanager
    def retained(self) -> Iterator[None]:
        put, publisher = 0, BrokerConnection(self._access, f"{self._prefix}-p")
        try:
            for number in range(_RETAINED):
                put = number + 1
                publisher.publish(f"{self._prefix}/r/{number}", _PAYLOAD, 1, True)
                self._progress("memory of retained messages", put, _RETAINED)
            yield
        finally:
            with suppress(LoadError, OSError):
                publisher.close()
            self._clear(put)

    def _clear(self, put: int) -> None:
        try:
            publisher = BrokerConnection(self._access, f"{self._prefix}-p")
            for number in range(put):
                publisher.publish(f"{self._prefix}/r/{number}", b"", 1, True)
            publisher.close()
        except (LoadError, OSError) as error:
            self.problems.append(f"retained messages below {self._prefix}/r/ may stay: {error}")

    def _topic(self, number: int) -> str:
        return f"{self._prefix}/q/{number}"
