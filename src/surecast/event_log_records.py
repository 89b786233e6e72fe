"""The records of the event log: each column and each record type once, for writer, readers, Spark and docs/logs.md.

A record is a named tuple, the cheapest object there is with names. A function that writes its line is made for each
type from the columns, as `dataclasses` makes methods: this runs several times for every message, and takes less than
half of what a general JSON encoder does. The log passes the time as text, because the many records of one turn have
the same. Values that are not known are None and are left out of the line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "COLUMNS",
    "FATES",
    "LINE_WRITERS",
    "PROBE_TOPICS",
    "RECORD_TYPES",
    "SPARK_SCHEMA",
    "Alive",
    "Column",
    "Connected",
    "Decided",
    "Delivered",
    "Disconnected",
    "Dropped",
    "Expired",
    "LinkDown",
    "LinkUp",
    "Lost",
    "Published",
    "Record",
    "Started",
    "Stopped",
    "Subscribed",
    "Unsubscribed",
    "optional_columns",
    "required_columns",
]


PROBE_TOPICS = "surecast-run/"
"""Topics that begin so are those of probes: they ask whether a broker answers, and are nobody's workload."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the log. A record with a value below `minimum`, or none of the `allowed`, is unusable."""

    name: str
    type: Literal["BIGINT", "INT", "DOUBLE", "STRING"]
    """The type in Spark's words; on a line, a number or a string of JSON."""
    meaning: str
    unit: str = ""
    minimum: int | None = None
    allowed: tuple[int, ...] = ()
    since: str = "0.1.0"
    """The version that writes it first."""


COLUMNS: Final[dict[str, Column]] = {
    each.name: each
    for each in (
        Column("offset", "BIGINT", "number of the record in this log, consecutive", minimum=0),
        Column(
            "time",
            "DOUBLE",
            "when it happened, since 1970, by the broker's clock, or by the clocks of a majority of a group's "
            "replicas, to the microsecond",
            "s",
        ),
        Column("type", "STRING", "one of the record types below"),
        Column("broker", "STRING", "name of the broker"),
        Column(
            "client",
            "STRING",
            "client identifier, unique among those of its `user`: of the publisher in `published`, of the subscriber "
            "in `delivered`, `dropped` and `expired`",
        ),
        Column("user", "STRING", "name the client has logged in with"),
        Column("address", "STRING", "network address and port of the client"),
        Column("filter", "STRING", "topic filter of the subscription"),
        Column("topic", "STRING", "topic of the message"),
        Column(
            "message",
            "BIGINT",
            "number of the message, unique in this broker: joins `published` with what became of it",
            minimum=0,
        ),
        Column("qos", "INT", "quality of service: as published, as granted, or as delivered", allowed=(0, 1, 2)),
        Column("bytes", "BIGINT", "size of the payload", "B", minimum=0),
        Column("receivers", "BIGINT", "sessions that the message is meant for", minimum=0),
        Column("queue_length", "BIGINT", "messages that wait for this client after the event", minimum=0),
        Column("publication_time", "DOUBLE", "when the publisher says it published, since 1970, by its own clock", "s"),
        Column("deadline_s", "DOUBLE", "how long after its publication the message is of use", "s", minimum=0),
        Column("reason", "STRING", "why; a word or a few"),
        Column("records", "BIGINT", "how many records could not be written", minimum=0),
        Column("group", "STRING", "name of the group that the broker is a replica of"),
        Column("replica", "INT", "number of the replica in its group, from 1"),
        Column("replicas", "INT", "how many replicas the group was founded with"),
        Column("neighbour", "STRING", "name of the broker at the other end of a link of an overlay"),
        Column("events", "BIGINT", "events of an overlay that were lost", minimum=0),
        Column("target", "STRING", "response target of a subscriber, in words, such as `a mean of 7 s`"),
        Column("policy", "STRING", "what is done to keep a response target, with its parameter"),
        Column("expected_s", "DOUBLE", "response time that the policy is expected to give", "s", minimum=0),
        Column("expected_success", "DOUBLE", "share of the messages that the policy is expected to deliver", minimum=0),
    )
}
"""The columns in the order of Spark's schema. A line has those of its record in the same order."""

SPARK_SCHEMA: Final = ", ".join(f"{column.name} {column.type}" for column in COLUMNS.values())
"""The schema of a table of all records, for `spark.read.schema`."""


class Started(NamedTuple):
    """The broker is ready for clients. A replica says of which group, its number there, and how many there are."""

    time: float
    broker: str
    reason: str | None = None
    group: str | None = None
    replica: int | None = None
    replicas: int | None = None


class Stopped(NamedTuple):
    """The broker ends as it was asked to. Where this is missing before the next `started`, it crashed."""

    time: float
    broker: str
    reason: str | None = None


class Alive(NamedTuple):
    """The broker is up: written now and then, so that the time of a crash is known to that precision."""

    time: float
    broker: str


class Lost(NamedTuple):
    """This many records before this one could not be written; `reason` says why."""

    time: float
    records: int
    reason: str


class Connected(NamedTuple):
    """A client's CONNECT was accepted."""

    time: float
    client: str
    user: str | None = None
    address: str | None = None
    queue_length: int | None = None


class Disconnected(NamedTuple):
    """A client's connection ended; `reason` is `client` where it said goodbye, and otherwise says what happened."""

    time: float
    client: str
    reason: str
    user: str | None = None
    queue_length: int | None = None


class Subscribed(NamedTuple):
    """A subscription was made or changed; `qos` is the one granted."""

    time: float
    client: str
    filter: str
    qos: int
    user: str | None = None


class Unsubscribed(NamedTuple):
    """A subscription ended; `reason` is `client`, `administrator`, or `session` where it ended with its session."""

    time: float
    client: str
    filter: str
    reason: str
    user: str | None = None


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


class Decided(NamedTuple):
    """The policy for a subscriber's response target was decided, or decided anew; `reason` says why the target cannot
    be met, and is left out where it can."""

    time: float
    client: str
    target: str
    policy: str
    expected_success: float
    user: str | None = None
    expected_s: float | None = None
    reason: str | None = None


class LinkUp(NamedTuple):
    """A link to a neighbour in an overlay is up. `reason` is `resumed` where its session goes on, so that nothing was
    lost, and `new` where it begins anew; then `events` were lost with the session before, if there were any."""

    time: float
    neighbour: str
    reason: str
    events: int | None = None


class LinkDown(NamedTuple):
    """A link to a neighbour in an overlay is down. `reason` is `hung up`, `suspected`, `replaced`, `stopped`, or `broke
    the rules`."""

    time: float
    neighbour: str
    reason: str


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
    | Decided
    | LinkUp
    | LinkDown
)

RECORD_TYPES: Final[dict[str, type[Record]]] = {
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
    "decided": Decided,
    "link-up": LinkUp,
    "link-down": LinkDown,
}


FATES: Final = ("delivered", "dropped", "expired")
"""The record types that say what became of a message for one of its receivers; each receiver has one of them."""


def required_columns(kind: str) -> tuple[str, ...]:
    """Returns the columns that a record of a type always has besides offset, time and type.

    >>> required_columns("lost")
    ('records', 'reason')
    """
    record_type = RECORD_TYPES[kind]
    return tuple(name for name in record_type._fields[1:] if name not in record_type._field_defaults)


def optional_columns(kind: str) -> tuple[str, ...]:
    """Returns the columns that a record of a type may have.

    >>> optional_columns("connected")
    ('user', 'address', 'queue_length')
    """
    return tuple(RECORD_TYPES[kind]._field_defaults)


def _line_writer(kind: str, record_type: type[Record]) -> Callable[[Any, int, str], str]:
    """Makes the function that writes the lines of a record type: one f-string of its columns.

    A DOUBLE that JSON cannot express is left out: an infinite deadline is as good as none.
    """
    fields, optional = record_type._fields, record_type._field_defaults
    source = []
    line = always = f'{{{{"offset":{{offset}},"time":{{time}},"type":"{kind}"'
    for column in COLUMNS.values():
        name = column.name
        if name not in fields or name == "time":
            continue
        value = {"STRING": f"{{quoted({name})}}", "DOUBLE": f"{{{name}:.6f}}"}.get(column.type, f"{{{name}}}")
        if name in optional:
            is_absent = f"{name} is None" + (f" or not isfinite({name})" if column.type == "DOUBLE" else "")
            source.append(f"    {name} = '' if {is_absent} else f',\"{name}\":{value}'")
            line += f"{{{name}}}"
        else:
            line += f',"{name}":{value}'
            always += f',"{name}":{value}'
    if optional:  # the usual line has none of these
        source.insert(0, f"    if {' and '.join(f'{name} is None' for name in optional)}: return f'{always}}}}}\\n'")
    names = ", ".join("_" if name == "time" else name for name in fields)
    source = ["def write(record, offset, time):", f"    {names} = record", *source, f"    return f'{line}}}}}\\n'"]
    namespace: dict[str, Any] = {"quoted": encode_basestring_ascii, "isfinite": isfinite}
    exec("\n".join(source), namespace)
    writer: Callable[[Any, int, str], str] = namespace["write"]
    return writer


LINE_WRITERS: Final[dict[type[Record], Callable[[Any, int, str], str]]] = {
    record_type: _line_writer(kind, record_type) for kind, record_type in RECORD_TYPES.items()
}
"""For each record type the function that returns the line of a record at an offset; the time is given as text.

>>> LINE_WRITERS[Alive](Alive(1700000000.0, "b1"), 7, "1700000000.000000")
'{"offset":7,"time":1700000000.000000,"type":"alive","broker":"b1"}\\n'
"""
