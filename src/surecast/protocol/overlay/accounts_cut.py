"""The accounts of all brokers as of one cut through the running overlay (Chandy and Lamport, 1985).

A broker that begins a cut writes down its accounts and sends a marker over every link, before all else that it sends
from then on. A broker that hears of a cut first by a marker does the same. From then on it counts the events that come
over each link until the marker of that link has come: these were in transit. Links keep the order of frames, so over
each link: sent before the cut = received before the cut + in transit.

Markers are numbered frames. So they survive a connection that breaks; over a link that is down they go when it is back,
before all else. A session that ends while a cut goes on ends the cut on this link: what it had in memory is in the
accounts as lost, or still in custody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from surecast.protocol.link import LinkAck, LinkSession, Resumption, SessionName
from surecast.protocol.overlay.custody import Custody
from surecast.protocol.overlay.frame_sizes import frame_bytes
from surecast.protocol.overlay.node_accounts import NodeAccounts
from surecast.protocol.overlay.overlay_frames import Frame, Marker, Written, events_of

__all__ = ["AccountsCuts", "balance"]

_KEPT: Final = 8
_MARKS_MAX: Final = 64
_NO_SESSION: Final = SessionName()
_TOTALS: Final = ("published", "received", "delivered", "duplicates", "too_old", "expired", "refused")
_FATES: Final = ("offered", "acknowledged", "lost", "detoured", "on_link")


@dataclass(slots=True)
class _Way:
    """The events on a link in the session that goes on, in each direction; `number` is the last frame counted. `marks`
    are the markers that were not acknowledged, by the session and the number of their frame."""

    sending: SessionName = _NO_SESSION
    number: int = 0
    sent: int = 0
    receiving: SessionName = _NO_SESSION
    received: int = 0
    marks: list[tuple[SessionName, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Cut:
    """A cut at this broker. `waits_for` are the neighbours whose marker has not come, and `unmarked` those to whom none
    was sent; `in_transit` counts the events between the cut and the marker of a neighbour."""

    marker: Marker
    report: dict[str, Any]
    waits_for: dict[str, None]
    in_transit: dict[str, int]
    unmarked: dict[str, None]
    ended: dict[str, None] = field(default_factory=dict)


class AccountsCuts:
    """A broker's part in cuts; it keeps the reports of the last few."""

    def __init__(
        self,
        broker: str,
        incarnation: int,
        sessions: Mapping[str, LinkSession[Frame]],
        accounts: NodeAccounts,
        custody: Custody,
    ):
        self._broker, self._incarnation = broker, incarnation
        self._sessions, self._accounts, self._custody = sessions, accounts, custody
        self._ways = {hop: _Way() for hop in sessions}
        self._cuts: dict[Marker, _Cut] = {}
        self._heard: dict[str, tuple[int, int]] = {}
        self._count = 0

    @property
    def next_marker(self) -> Marker:
        """The name of the next cut that begins here."""
        return Marker(self._broker, self._incarnation, self._count + 1)

    def begin(self) -> Marker:
        """Begins a cut; returns its name."""
        marker = self.next_marker
        self._count += 1
        self._record(marker)
        return marker

    def take(self, neighbour: str, marker: Marker) -> None:
        """Takes the marker of a neighbour: all that it sent before the cut has come."""
        if marker.age > self._heard.get(marker.initiator, (0, 0)):
            self._record(marker)
        cut = self._cuts.get(marker)
        if cut is not None:
            cut.waits_for.pop(neighbour, None)

    def report(self, marker: Marker) -> dict[str, Any] | None:
        """Returns the accounts of this broker as of a cut; None where it has not heard of it, or has forgotten it."""
        cut = self._cuts.get(marker)
        if cut is None:
            return None
        links = {
            hop: {**link, "in_transit": cut.in_transit[hop], "is_open": hop in cut.waits_for, "ended": hop in cut.ended}
            for hop, link in cut.report["links"].items()
        }
        return {**cut.report, "links": links, "is_complete": not cut.waits_for}

    # What goes over links

    def sent(self, neighbour: str, written: Iterable[Written]) -> None:
        """Counts frames that are written; those that are written again were counted before."""
        way, sending = self._ways[neighbour], self._sessions[neighbour].sending
        if way.sending != sending:
            way.sending, way.number, way.sent = sending, 0, 0
        for each in written:
            if not isinstance(each, LinkAck) and each.number > way.number:
                way.number = each.number
                way.sent += events_of(each.content)

    def came(self, neighbour: str, frame: Frame) -> None:
        """Counts a frame that came, before it is handled."""
        way, receiving = self._ways[neighbour], self._sessions[neighbour].received
        if way.receiving != receiving:
            way.receiving, way.received = receiving, 0
        count = events_of(frame)
        way.received += count
        if count:
            for cut in self._cuts.values():
                if neighbour in cut.waits_for:
                    cut.in_transit[neighbour] += count

    def connected(self, neighbour: str, resumption: Resumption[Frame]) -> None:
        """A connection was made. Where a session has ended, the cuts that go on end on this link."""
        for cut in self._cuts.values():
            if not resumption.is_received_resumed and cut.waits_for.pop(neighbour, "") is None:
                cut.ended[neighbour] = None
            if neighbour in cut.unmarked or not resumption.is_resumed:
                self._mark(cut, neighbour)

    def _record(self, marker: Marker) -> None:
        self._heard[marker.initiator] = marker.age
        accounts = self._accounts
        links: dict[str, dict[str, Any]] = {}
        for hop, way in self._ways.items():
            fates, in_custody = accounts.hops[hop], self._custody.events_unsent(hop)
            session = self._sessions[hop]
            links[hop] = {
                **{name: getattr(fates, name) for name in _FATES},
                "dropped": {reason: count for reason, count in sorted(fates.dropped.items()) if count},
                "in_custody": in_custody,
                "problem": fates.problem(in_custody),
                "sending": list(session.sending),
                "sent": way.sent if way.sending == session.sending else 0,
                "receiving": list(session.received),
                "link_received": way.received if way.receiving == session.received else 0,
            }
        totals = {name: getattr(accounts, name) for name in _TOTALS}
        report = {"broker": self._broker, "incarnation": self._incarnation, **totals, "links": links}
        hops = dict.fromkeys(self._ways)
        cut = self._cuts[marker] = _Cut(marker, report, {**hops}, dict.fromkeys(hops, 0), {**hops})
        if len(self._cuts) > _KEPT:
            del self._cuts[next(iter(self._cuts))]
        for hop in hops:
            if self._sessions[hop].is_connected:
                self._mark(cut, hop)

    def _mark(self, cut: _Cut, hop: str) -> None:
        """Sends a marker; not where a neighbour has acknowledged none of the last ones, which must not fill memory."""
        session, way = self._sessions[hop], self._ways[hop]
        way.marks = [mark for mark in way.marks if mark[0] == session.sending and mark[1] > session.number_acked]
        if len(way.marks) < _MARKS_MAX:
            cut.unmarked.pop(hop, None)
            way.marks.append((session.sending, session.mark(frame_bytes(cut.marker), cut.marker)))


def balance(reports: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """Returns what goes over each link by the reports of its ends as of one cut, and all that does not add up.

    >>> link = {"sending": [1, 0], "sent": 7, "receiving": [1, 0], "link_received": 4, "in_transit": 0,
    ...         "is_open": False, "ended": False, "problem": ""}
    >>> b1 = {"links": {"b2": link}}
    >>> b2 = {"links": {"b1": {**link, "sent": 4, "in_transit": 2}}}
    >>> balance({"b1": b1, "b2": b2})["problems"]
    ['b1 to b2: 7 events sent, 4 received and 2 in transit']
    """
    links: list[dict[str, Any]] = []
    problems: list[str] = []
    for name, report in reports.items():
        for hop, own in report["links"].items() if report is not None else ():
            if own["problem"]:
                problems.append(f"{name} for {hop}: {own['problem']}")
            other = reports.get(hop)
            there = other["links"][name] if other is not None else None
            row = {"from": name, "to": hop, "sent": own["sent"], "received": None, "in_transit": None, "note": ""}
            if there is None:
                row["note"] = f"{hop} has no report"
            elif there["is_open"]:
                row["note"] = f"the link is down, or slow: the marker of {name} has not come to {hop}"
            elif there["ended"] or there["receiving"] != own["sending"]:
                row["note"] = "the session of the link ended"
            else:
                row |= {"received": there["link_received"], "in_transit": there["in_transit"]}
                if own["sent"] != there["link_received"] + there["in_transit"]:
                    problems.append(
                        f"{name} to {hop}: {own['sent']} events sent, {there['link_received']} received and "
                        f"{there['in_transit']} in transit"
                    )
            links.append(row)
    return {"links": links, "problems": problems}
