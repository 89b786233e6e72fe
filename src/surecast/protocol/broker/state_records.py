"""The records of a broker's state, each a key and a value: what the store keeps, and what a snapshot has besides.

Of the durable state, written by the journal as it changes and by a snapshot as it is:

    m NUMBER             a message
    s SESSION            a session, by its key (user and client identifier), with what was seen of its client
    f SESSION FILTER     a subscription of it
    q SESSION SEQUENCE   a message queued for it
    p SESSION IDENTIFIER a QoS 2 message that it sent and did not release
    w SESSION            the will of its client, connected or gone; of a session that ends with its connection too
    r TOPIC              a retained message
    i USER TOKEN         the outcomes of the last requests with a token

Of a broker that runs, in snapshots alone, so that another goes on exactly where it stands:

    B                    counters, and what is numbered next
    L NUMBER             limits, numbered by their first use
    A SESSION            a session beyond what is durable
    U USER TOKEN         outcomes of requests that are not durable
    V TOPIC              a retained message under `$`
    K PLACE              the order of retained topics, from this place on, as places in the order of their records
    O PLACE              the order of those who are filed under one filter
    C NUMBER             a connection
    T NUMBER             an appointment

Numbers have eight bytes, texts two bytes of length in front. Times are seconds since the epoch. Messages and queue
entries are written by hand, because every message that must survive a crash writes one of each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from surecast.protocol.broker.accounts import Accounts
from surecast.protocol.broker.broker_settings import OVERFLOWS
from surecast.protocol.broker.limits import Limits
from surecast.protocol.broker.message import Delivery, Message, text_field
from surecast.protocol.broker.period_monitor import Estimates, PeriodMoments, PeriodMonitor
from surecast.protocol.broker.response_target import POLICIES, Decision, ResponseTarget
from surecast.protocol.broker.session import Session, SessionWill, Subscription, split_key
from surecast.protocol.broker.target_results import TargetResults
from surecast.protocol.broker.target_state import TargetState
from surecast.protocol.codec import (
    BOOL,
    F64,
    REST,
    REST_TEXT,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    Layout,
    choice,
    many,
    numbers,
    optional,
    pairs,
    sized,
)
from surecast.protocol.filters import Filter, parse

__all__ = [
    "ACCOUNTS",
    "APPOINTMENT",
    "BROKER",
    "DECISION",
    "FILED",
    "LIMITS",
    "RUNNING_SESSION",
    "TARGET",
    "Appointment",
    "BrokerRow",
    "Filed",
    "Record",
    "RunningSession",
    "message_key",
    "message_record",
    "message_records",
    "queued_record",
    "queued_records",
    "read_message",
    "read_queued",
    "read_received",
    "read_request",
    "read_retained",
    "read_session",
    "read_subscription",
    "read_will",
    "received_key",
    "request_value",
    "retained_key",
    "session_record",
    "subscription_key",
    "subscription_record",
    "will_key",
    "will_record",
]

Record = tuple[bytes, bytes | None]

_MESSAGE: Final = struct.Struct(">BBddd")
_QUEUED: Final = struct.Struct(">QBBBH")
_EVENT: Final = struct.Struct(">QQ")
_pack_queued: Final = _QUEUED.pack
_RETAIN, _SHARED = 1, 2
_HAS_EVENT = 2
_NO_LOCAL, _AS_PUBLISHED = 1, 2


class StoredEvent(NamedTuple):
    """The identity of a message among the brokers of an overlay, as it is on disk."""

    origin: str
    incarnation: int
    number: int

    def plus(self, count: int) -> StoredEvent:
        """Returns the identity of the message so many places further on."""
        return StoredEvent(self.origin, self.incarnation, self.number + count)


class _StoredSubscription(NamedTuple):
    qos: int
    flags: int
    spare: int
    identifier: int
    share: str
    filter: str
    content_text: str


class _StoredWill(NamedTuple):
    message: int
    due_at: float
    delay_s: int
    lifetime_s: float
    interval_s: float


class _StoredRequest(NamedTuple):
    used_at: float
    highest: int
    outcomes: bytes


class RunningSession(NamedTuple):
    """The part of a session that is in a snapshot and not in its durable state.

    `own` are attributes of the session, `connection` is 0 where there is none. Of what is in flight and will never be
    sent again only identifiers and sizes are known; `resend` are the identifiers of what must be sent again.
    """

    own: Any
    limits: int
    connection: int
    identifiers: tuple[int, ...]
    sizes: tuple[int, ...]
    resend: tuple[int, ...]


class BrokerRow(NamedTuple):
    """The state of the broker as a whole that is in a snapshot."""

    next_connection: int
    identifiers_given: int
    next_message: int
    serial: int
    appointments: int
    started_at: float | None
    retained_expiry_check_at: float
    counts: tuple[int, ...]
    past: Accounts
    checking: tuple[int, ...]


class Filed(NamedTuple):
    """Sessions, by their serial numbers, that are filed under a filter one after the other: by themselves, or as the
    members of a share, of whom the one at `turn` is next."""

    filter: str
    share: str
    turn: int
    members: tuple[int, ...]


class Appointment(NamedTuple):
    """An entry of the timers; `by_number` says that the key is a number."""

    at: float
    kind: str
    key: str
    by_number: bool
    is_planned: bool


_SUBSCRIPTION: Final = Layout(
    "subscription",
    _StoredSubscription,
    qos=U8,
    flags=U8,
    spare=U8,
    identifier=U32,
    share=TEXT,
    filter=TEXT,
    content_text=REST_TEXT,
)
_WILL: Final = Layout("will", _StoredWill, message=U64, due_at=F64, delay_s=U32, lifetime_s=F64, interval_s=F64)
_REQUEST: Final = Layout("request", _StoredRequest, used_at=F64, highest=U64, outcomes=REST)
TARGET: Final = Layout(
    "target",
    ResponseTarget,
    time_s=F64,
    quantile=F64,
    success_min=F64,
    policy=choice(POLICIES),
    is_required=BOOL,
    keep_first=many(TEXT),
)
DECISION: Final = Layout(
    "decision",
    Decision,
    policy=TEXT,
    join_probability=F64,
    join_threshold=F64,
    queue_messages_max=U64,
    queue_lifetime_s=F64,
    response_s=F64,
    response_high_s=F64,
    success=F64,
    success_low=F64,
    is_met=BOOL,
    reason=TEXT,
)
_MOMENTS: Final = Layout("moments", PeriodMoments, seen=F64, mean_s=F64, second=F64, third=F64)
_ESTIMATES: Final = Layout(
    "estimates",
    Estimates,
    on=_MOMENTS,
    off=_MOMENTS,
    arrival_per_s=F64,
    arrived=F64,
    service_per_s=F64,
    served=F64,
)
_RESULTS: Final = Layout(
    "results",
    TargetResults,
    delivered_count=U64,
    response_sum_s=F64,
    histogram=many(U64, make=list),
    cycle_count=F64,
    cycle_sum=F64,
    cycles=F64,
    counts=F64,
    sums=F64,
    count_squares=F64,
    products=F64,
    sum_squares=F64,
)
_MONITOR: Final = Layout(
    "monitor",
    PeriodMonitor,
    is_connected=BOOL,
    changed_at=F64,
    on_count=F64,
    on_sum=F64,
    on_squares=F64,
    on_cubes=F64,
    off_count=F64,
    off_sum=F64,
    off_squares=F64,
    off_cubes=F64,
    arrived=F64,
    watched_s=F64,
    served=F64,
    busy_s=F64,
    busy_since=F64,
    matched_before=U64,
)
_TARGET_STATE: Final = Layout(
    "target state",
    TargetState,
    target=TARGET,
    is_own=BOOL,
    revision=U64,
    decided=U64,
    decision=DECISION,
    basis=optional(_ESTIMATES),
    connection=U64,
    packet=sized(),
    results=_RESULTS,
)
_SESSION: Final[Layout[Any]] = Layout(
    "session",
    dict,
    lifetime_s=F64,
    ends_at=F64,
    next_identifier=U16,
    user=TEXT,
    listener=TEXT,
    address=TEXT,
    monitor=optional(_MONITOR),
    target=optional(_TARGET_STATE),
)
ACCOUNTS: Final = Layout(
    "accounts", Accounts, matched=U64, delivered=U64, expired=U64, dropped=pairs(TEXT, U64, is_sorted=True)
)
LIMITS: Final = Layout(
    "limits",
    Limits,
    queue_messages_max=U64,
    queue_bytes_max=U64,
    overflow=choice(OVERFLOWS),
    inflight_max=U16,
    receive_maximum=U16,
    packet_bytes_max=U64,
    subscriptions_max=U64,
    publish_rate_per_s=F64,
    join_probability=F64,
    join_threshold=F64,
    queue_lifetime_s=F64,
    response_target=optional(TARGET),
    connected_prior_s=F64,
    disconnected_prior_s=F64,
)
RUNNING_SESSION: Final[Layout[Any]] = Layout(
    "session",
    RunningSession,
    own=Layout("session", dict, serial=U64, expiry_check_at=F64, next_sequence=U64, warned=BOOL, window=U16,
               accounts=ACCOUNTS),
    limits=U32,
    connection=U64,
    identifiers=numbers(U16),
    sizes=numbers(U32),
    resend=numbers(U16),
)  # fmt: skip
BROKER: Final = Layout(
    "broker",
    BrokerRow,
    next_connection=U64,
    identifiers_given=U64,
    next_message=U64,
    serial=U64,
    appointments=U64,
    started_at=optional(F64),
    retained_expiry_check_at=F64,
    counts=numbers(U64),
    past=ACCOUNTS,
    checking=numbers(U64),
)
FILED: Final = Layout("order of a filter", Filed, filter=TEXT, share=TEXT, turn=U32, members=numbers(U64))
APPOINTMENT: Final = Layout("appointment", Appointment, at=F64, kind=TEXT, key=TEXT, by_number=BOOL, is_planned=BOOL)


def _take_text(data: bytes, at: int) -> tuple[str, int]:
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    return data[at + 2 : end].decode(), end


def message_key(number: int) -> bytes:
    """Returns the key of a message."""
    return b"m" + number.to_bytes(8, "big")


def message_record(message: Message) -> tuple[bytes, bytes]:
    """Returns the record of a message."""
    return message_records((message,))[0]


def message_records(messages: Iterable[Message]) -> list[tuple[bytes, bytes]]:
    """Returns the records of messages that came together: most of them have one publisher."""
    records: list[tuple[bytes, bytes]] = []
    publisher, field = "", text_field("")
    for each in messages:
        if each.publisher != publisher:
            publisher = each.publisher
            field = text_field(publisher)
        flags, event = int(each.retain), b""
        if each.event is not None:
            flags |= _HAS_EVENT
            name = each.event
            event = text_field(name.origin) + _EVENT.pack(name.incarnation, name.number)
        value = (
            _MESSAGE.pack(each.qos, flags, each.expires_at, each.published_at, each.interval_end)
            + each.topic_field + field + event + len(each.properties).to_bytes(4, "big") + each.properties
            + each.payload
        )  # fmt: skip
        records.append((b"m" + each.number.to_bytes(8, "big"), value))
    return records


def read_message(key: bytes, value: bytes) -> Message:
    """Returns a message as it was written; a key that is no number is that of a message without one."""
    qos, flags, expires_at, published_at, interval_end = _MESSAGE.unpack_from(value)
    at = _MESSAGE.size
    topic, end = _take_text(value, at)
    topic_field = value[at:end]
    publisher, end = _take_text(value, end)
    event = None
    if flags & _HAS_EVENT:
        origin, end = _take_text(value, end)
        event = StoredEvent(origin, *_EVENT.unpack_from(value, end))
        end += _EVENT.size
    size = int.from_bytes(value[end : end + 4], "big")
    properties, payload = value[end + 4 : end + 4 + size], value[end + 4 + size :]
    number = int.from_bytes(key[1:], "big") if key[:1] == b"m" else 0
    message = Message(
        *(number, topic, topic_field, payload, qos, bool(flags & _RETAIN), properties),
        *(expires_at, published_at, publisher, interval_end),
    )
    message.event = event
    return message


def session_record(session: Session) -> tuple[bytes, bytes]:
    """Returns the record of a session as it is."""
    return b"s" + session.key_field, _SESSION.encode(session)


def read_session(key: bytes, value: bytes) -> Session:
    """Returns a session as it was written, without its queue and its subscriptions."""
    name, _ = _take_text(key, 1)
    fields = _SESSION.decode(value)
    session = Session(split_key(name)[1], 0, fields["lifetime_s"], fields["user"])
    session.ends_at, session.next_identifier = fields["ends_at"], fields["next_identifier"]
    session.listener, session.address = fields["listener"], fields["address"]
    session.monitor, session.target = fields["monitor"], fields["target"]
    return session


def subscription_key(session: Session, subscription: Subscription) -> bytes:
    """Returns the key of a subscription's record."""
    return b"f" + session.key_field + subscription.key.encode()


def subscription_record(session: Session, subscription: Subscription) -> tuple[bytes, bytes]:
    """Returns the record of a subscription."""
    flags = _NO_LOCAL * subscription.no_local | _AS_PUBLISHED * subscription.retain_as_published
    row = _StoredSubscription(
        subscription.qos,
        flags,
        0,
        subscription.identifier,
        subscription.share,
        subscription.filter,
        subscription.content_text,
    )
    return subscription_key(session, subscription), _SUBSCRIPTION.encode(row)


def read_subscription(key: bytes, value: bytes, contents: dict[str, Filter]) -> tuple[str, Subscription]:
    """Returns the key of a session and one of its subscriptions; equal content filters, by their text, are shared."""
    name, _ = _take_text(key, 1)
    row = _SUBSCRIPTION.decode(value)
    content = contents.get(row.content_text) if row.content_text else None
    if row.content_text and content is None:
        content = contents[row.content_text] = parse(row.content_text)
    no_local, as_published = bool(row.flags & _NO_LOCAL), bool(row.flags & _AS_PUBLISHED)
    return name, Subscription(
        row.filter, row.qos, no_local, as_published, row.identifier, row.share, content, row.content_text
    )


def queued_records(session: Session, deliveries: Iterable[Delivery]) -> list[tuple[bytes, bytes]]:
    """Returns the records of queue entries as they are."""
    prefix = b"q" + session.key_field
    records: list[tuple[bytes, bytes]] = []
    for each in deliveries:
        flags = each.retain | _SHARED if each.share else each.retain
        value = _pack_queued(each.message.number, each.qos, flags, each.released, each.identifier)
        if each.share:
            value += text_field(each.share)
        if each.identifiers:
            value += struct.pack(f">{len(each.identifiers)}I", *each.identifiers)
        records.append((prefix + each.sequence.to_bytes(8, "big"), value))
    return records


def queued_record(session: Session, delivery: Delivery) -> tuple[bytes, bytes]:
    """Returns the record of a queue entry as it is."""
    return queued_records(session, (delivery,))[0]


def read_queued(sequence: int, value: bytes, messages: Mapping[int, Message]) -> Delivery:
    """Returns a queue entry as it was written; its message is one of those read before."""
    number, qos, flags, released, identifier = _QUEUED.unpack_from(value)
    delivery = Delivery(messages[number], qos, flags & _RETAIN > 0, (), sequence)
    delivery.identifier, delivery.released = identifier, released > 0
    at = _QUEUED.size
    if flags & _SHARED:
        delivery.share, at = _take_text(value, at)
    if at < len(value):
        delivery.identifiers = struct.unpack_from(f">{(len(value) - at) // 4}I", value, at)
    return delivery


def received_key(session: Session, identifier: int) -> bytes:
    """Returns the key of a QoS 2 message that a client sent; there is no value."""
    return b"p" + session.key_field + identifier.to_bytes(2, "big")


def read_received(key: bytes) -> tuple[str, int]:
    """Returns the key of a session and the identifier of a QoS 2 message."""
    name, at = _take_text(key, 1)
    return name, int.from_bytes(key[at:], "big")


def will_key(session: Session) -> bytes:
    """Returns the key of the will of a session."""
    return b"w" + session.key_field


def will_record(session: Session, will: SessionWill) -> tuple[bytes, bytes]:
    """Returns the record of a will as it is."""
    row = _StoredWill(will.message.number, will.due_at, will.delay_s, will.lifetime_s, will.interval_s)
    return b"w" + session.key_field, _WILL.encode(row)


def read_will(key: bytes, value: bytes, messages: Mapping[int, Message]) -> tuple[str, SessionWill]:
    """Returns the key of a session and its will, whose message is one of those read before."""
    name, _ = _take_text(key, 1)
    row = _WILL.decode(value)
    return name, SessionWill(messages[row.message], row.delay_s, row.lifetime_s, row.due_at, row.interval_s)


def retained_key(message: Message) -> bytes:
    """Returns the key of the retained message of a topic; the value is the number of the message."""
    return b"r" + message.topic_field[2:]


def read_retained(key: bytes, value: bytes) -> tuple[str, int]:
    """Returns a topic and the number of its retained message."""
    return key[1:].decode(), int.from_bytes(value, "big")


def request_value(used_at: float, highest: int, outcomes: bytes) -> bytes:
    """Returns the value of the outcomes of the last requests with a token."""
    return _REQUEST.encode(_StoredRequest(used_at, highest, outcomes))


def read_request(key: bytes, value: bytes) -> tuple[str, str, float, int, bytes]:
    """Returns a user, a token, when it was last used, its highest number, and the outcomes of the last requests."""
    user, at = _take_text(key, 1)
    token, _ = _take_text(key, at)
    row = _REQUEST.decode(value)
    return user, token, row.used_at, row.highest, row.outcomes
