"""The records of the event log, and how each becomes a line. docs/logs.md says the same to readers.

A record is a named tuple, the cheapest object there is with names, and each kind writes its own line from a template:
this runs several times for every message, and takes less than half of what a general JSON encoder does.
The log hands in the time as text, because the many records of one turn have the same. Values that are not known are
None and are left out of the line.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as _quoted
from math import isfinite
from typing import NamedTuple, TypeAlias

__all__ = [
    "PROBE_TOPICS",
    "RECORD_TYPES",
    "Alive",
    "Connected",
    "Delivered",
    "Disconnected",
    "Dropped",
    "Expired",
    "Lost",
    "Published",
    "Record",
    "Started",
    "Stopped",
    "Subscribed",
    "Unsubscribed",
]


PROBE_TOPICS = "surecast-run/"
"""Topics that begin so are those of probes: they ask whether a broker answers, and are nobody's workload."""


class Started(NamedTuple):
    """The broker is ready for clients. A replica says of which group, its number there, and how many there are."""

    time: float
    broker: str
    reason: str | None = None
    group: str | None = None
    replica: int | None = None
    replicas: int | None = None

    def line(self, offset: int, time: str) -> str:
        return (
            f"{_head(offset, time, 'started')}{_text('broker', self.broker)}{_text('reason', self.reason)}"
            f"{_text('group', self.group)}{_whole('replica', self.replica)}{_whole('replicas', self.replicas)}}}\n"
        )


class Stopped(NamedTuple):
    """The broker ends as it was asked to. Where this is missing before the next `started`, it crashed."""

    time: float
    broker: str
    reason: str | None = None

    def line(self, offset: int, time: str) -> str:
        return f"{_head(offset, time, 'stopped')}{_text('broker', self.broker)}{_text('reason', self.reason)}}}\n"


class Alive(NamedTuple):
    """The broker is up: written now and then, so that the time of a crash is known to that precision."""

    time: float
    broker: str

    def line(self, offset: int, time: str) -> str:
        return f"{_head(offset, time, 'alive')}{_text('broker', self.broker)}}}\n"


class Lost(NamedTuple):
    """This many records before this one could not be written; `reason` says why."""

    time: float
    records: int
    reason: str

    def line(self, offset: int, time: str) -> str:
        return f'{_head(offset, time, "lost")},"records":{self.records}{_text("reason", self.reason)}}}\n'


class Connected(NamedTuple):
    """A client's CONNECT was accepted."""

    time: float
    client: str
    user: str | None = None
    address: str | None = None
    queue_length: int | None = None

    def line(self, offset: int, time: str) -> str:
        return (
            f"{_head(offset, time, 'connected')}{_who(self.client, self.user)}{_text('address', self.address)}"
            f"{_whole('queue_length', self.queue_length)}}}\n"
        )


class Disconnected(NamedTuple):
    """A client's connection ended; `reason` is `client` where it said goodbye, and otherwise says what happened."""

    time: float
    client: str
    reason: str
    user: str | None = None
    queue_length: int | None = None

    def line(self, offset: int, time: str) -> str:
        return (
            f"{_head(offset, time, 'disconnected')}{_who(self.client, self.user)}"
            f"{_whole('queue_length', self.queue_length)}{_text('reason', self.reason)}}}\n"
        )


class Subscribed(NamedTuple):
    """A subscription was made or changed; `qos` is the one granted."""

    time: float
    client: str
    filter: str
    qos: int
    user: str | None = None

    def line(self, offset: int, time: str) -> str:
        return (
            f"{_head(offset, time, 'subscribed')}{_who(self.client, self.user)}{_text('filter', self.filter)}"
            f',"qos":{self.qos}}}\n'
        )


class Unsubscribed(NamedTuple):
    """A subscription ended; `reason` is `client`, `administrator`, or `session` where it ended with its session."""

    time: float
    client: str
    filter: str
    reason: str
    user: str | None = None

    def line(self, offset: int, time: str) -> str:
        return (
            f"{_head(offset, time, 'unsubscribed')}{_who(self.client, self.user)}{_text('filter', self.filter)}"
            f"{_text('reason', self.reason)}}}\n"
        )


class Published(NamedTuple):
    """The broker took a message. `receivers` is how many sessions it is meant for."""

    time: float
    client: str
    topic: str
    message: int
    qos: int
    bytes: int
    receivers: int
    user: str | None = None
    publication_time: float | None = None
    deadline_s: float | None = None

    def line(self, offset: int, time: str) -> str:
        _, client, topic, message, qos, size, receivers, user, publication_time, deadline_s = self
        timing = "" if publication_time is None and deadline_s is None else _timing(publication_time, deadline_s)
        name = "" if user is None else _text("user", user)
        return (
            f'{{"offset":{offset},"time":{time},"type":"published","client":{_quoted(client)}{name}'
            f',"topic":{_quoted(topic)},"message":{message},"qos":{qos},"bytes":{size},"receivers":{receivers}{timing}}}\n'
        )


class Delivered(NamedTuple):
    """A message is done with for one subscriber: sent (QoS 0), or acknowledged by it (QoS 1 and 2)."""

    time: float
    client: str
    topic: str
    message: int
    qos: int
    bytes: int
    queue_length: int
    user: str | None = None
    publication_time: float | None = None
    deadline_s: float | None = None

    def line(self, offset: int, time: str) -> str:
        return _fate(offset, time, "delivered", self, "")


class Dropped(NamedTuple):
    """A message will not reach one subscriber; `reason` says why."""

    time: float
    client: str
    topic: str
    message: int
    qos: int
    bytes: int
    queue_length: int
    reason: str
    user: str | None = None
    publication_time: float | None = None
    deadline_s: float | None = None

    def line(self, offset: int, time: str) -> str:
        return _fate(offset, time, "dropped", (*self[:7], *self[8:]), _text("reason", self.reason))


class Expired(NamedTuple):
    """A message waited for one subscriber past its expiry, and was taken out of the queue."""

    time: float
    client: str
    topic: str
    message: int
    qos: int
    bytes: int
    queue_length: int
    user: str | None = None
    publication_time: float | None = None
    deadline_s: float | None = None

    def line(self, offset: int, time: str) -> str:
        return _fate(offset, time, "expired", self, "")


Record: TypeAlias = (
    Started
    | Stopped
    | Alive
    | Lost
    | Connected
    | Disconnected
    | Subscribed
    | Unsubscribed
    | Published
    | Delivered
    | Dropped
    | Expired
)

RECORD_TYPES: dict[str, type[Record]] = {
    "started": Started,
    "stopped": Stopped,
    "alive": Alive,
    "lost": Lost,
    "connected": Connected,
    "disconnected": Disconnected,
    "subscribed": Subscribed,
    "unsubscribed": Unsubscribed,
    "published": Published,
    "delivered": Delivered,
    "dropped": Dropped,
    "expired": Expired,
}

_Fate: TypeAlias = tuple[float, str, str, int, int, int, int, str | None, float | None, float | None]


def _fate(offset: int, time: str, kind: str, fields: _Fate, reason: str) -> str:
    _, client, topic, message, qos, size, queue_length, user, publication_time, deadline_s = fields
    timing = "" if publication_time is None and deadline_s is None else _timing(publication_time, deadline_s)
    name = "" if user is None else _text("user", user)
    return (
        f'{{"offset":{offset},"time":{time},"type":"{kind}","client":{_quoted(client)}{name},"topic":{_quoted(topic)}'
        f',"message":{message},"qos":{qos},"bytes":{size},"queue_length":{queue_length}{timing}{reason}}}\n'
    )


def _head(offset: int, time: str, kind: str) -> str:
    return f'{{"offset":{offset},"time":{time},"type":"{kind}"'


def _who(client: str, user: str | None) -> str:
    return _text("client", client) + _text("user", user)


def _text(name: str, value: str | None) -> str:
    return "" if value is None else f',"{name}":{_quoted(value)}'


def _whole(name: str, value: int | None) -> str:
    return "" if value is None else f',"{name}":{value}'


def _timing(publication_time: float | None, deadline_s: float | None) -> str:
    """What the publisher gave; JSON has no word for an infinite deadline, which is as good as none."""
    text = ""
    if publication_time is not None and isfinite(publication_time):
        text = f',"publication_time":{publication_time:.6f}'
    if deadline_s is not None and isfinite(deadline_s):
        text += f',"deadline_s":{deadline_s:.6f}'
    return text
