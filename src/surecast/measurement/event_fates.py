"""The fate of each event, from the event logs of all processes together.

Every replica of a group logs what it applies, and nothing while it is down; together their logs are complete. The log
of a single broker is complete by itself, and so is that of each broker of an overlay for its own clients.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from surecast.broker.event_log import read_from

__all__ = ["EventFate", "EventFates", "read_fates", "stamp"]

_STEP: Final = 10_000


@dataclass(frozen=True, slots=True)
class EventFate:
    """The fate of an event in one session: `delivered`, `expired` or a reason for a drop; and its time."""

    outcome: str
    time_s: float


@dataclass(slots=True)
class EventFates:
    """`accepted` has when the first broker took each event over, `reached` when each of them did, in their order, and
    `fates` what became of it by client and event.

    `changes` has the times at which clients came (True) and went; `missing_records` counts what could not be logged.
    """

    accepted: dict[int, float] = field(default_factory=dict)
    fates: dict[str, dict[int, EventFate]] = field(default_factory=dict)
    changes: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)
    missing_records: int = 0
    reached: list[dict[int, float]] = field(default_factory=list)

    def of(self, client: str) -> Mapping[int, EventFate]:
        """Returns the fates of the events for one client."""
        return self.fates.get(client, {})

    def was_connected(self, client: str, time_s: float) -> bool:
        """Returns whether a client was connected at a time.

        >>> EventFates(changes={"c": [(1.0, True), (5.0, False)]}).was_connected("c", 3.0)
        True
        """
        changes = self.changes.get(client, [])
        before = bisect_right(changes, (time_s, True))
        return before > 0 and changes[before - 1][1]


def stamp(time_s: float) -> int:
    """Returns the key of an event: its publication time in whole microseconds, as in logs.

    >>> stamp(1700000000.0000012)
    1700000000000001
    """
    return round(time_s * 1e6)


def read_fates(brokers: Sequence[Sequence[Path]], events: Mapping[int, int]) -> EventFates:
    """Reads the logs in the folders of each broker: one, or those of the replicas that it has. `events` has the number
    of the event with a stamp; others do not count."""
    event_fates = EventFates()
    for folders in brokers:
        event_fates.reached.append({})
        for folder in folders:
            starts, clients = _read(folder, events, event_fates)
            if len(folders) == 1:  # a crash ends all connections of a broker; those of a replica are in other logs
                for client in clients:
                    event_fates.changes[client] += [(moment, False) for moment in starts]
    for changes in event_fates.changes.values():
        changes.sort()
    return event_fates


def _read(folder: Path, events: Mapping[int, int], event_fates: EventFates) -> tuple[list[float], list[str]]:
    """Reads the log in a folder; returns when its process was started, and the clients that it had."""
    offset = 0
    starts, clients = list[float](), dict[str, None]()
    while folder.is_dir() and (records := read_from(folder, offset, _STEP)):
        for record in records:
            if record["type"] == "started":
                starts.append(record["time"])
            elif record["type"] == "connected":
                clients[record["client"]] = None
            _note(record, events, event_fates)
        offset = int(records[-1]["offset"]) + 1
    return starts, list(clients)


def _note(record: dict[str, Any], events: Mapping[int, int], event_fates: EventFates) -> None:
    kind, client = record["type"], record.get("client", "")
    if kind in ("connected", "disconnected"):
        event_fates.changes.setdefault(client, []).append((record["time"], kind == "connected"))
    elif kind == "lost":
        event_fates.missing_records += int(record["records"])
    elif kind in ("published", "delivered", "dropped", "expired"):
        number = events.get(stamp(record.get("publication_time") or 0.0))
        if number is None:
            return
        if kind == "published":
            # Each broker of an overlay logs an event when it has it; the first one took it over.
            event_fates.accepted[number] = min(record["time"], event_fates.accepted.get(number, record["time"]))
            reached = event_fates.reached[-1]
            reached[number] = min(record["time"], reached.get(number, record["time"]))
        else:
            reason = record["reason"] if kind == "dropped" else kind
            event_fates.fates.setdefault(client, {}).setdefault(number, EventFate(reason, record["time"]))
