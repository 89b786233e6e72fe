"""The limits of a broker: every queue, table and waiting time has a bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal

from surecast.errors import ConfigurationError
from surecast.protocol.broker.response_target import ResponseTarget
from surecast.protocol.mqtt.wire import MAX_FILTERS, MAX_USER_PROPERTIES

__all__ = ["FIXED", "NUMBERS", "OVERFLOWS", "BrokerSettings", "Overflow", "check_number"]

Overflow = Literal["drop-new", "drop-old", "reject", "expire-first"]

OVERFLOWS: Final[tuple[Overflow, ...]] = ("drop-new", "drop-old", "reject", "expire-first")
"""The rules for a message that finds the queue of a session full."""

NUMBERS: Final[Mapping[str, tuple[str, Callable[[float], bool]]]] = {
    "publish_rate_per_s": ("a number of 0 or more", lambda value: 0 <= value < math.inf),
    "join_probability": ("a number from 0 to 1", lambda value: 0 <= value <= 1),
    "join_threshold": ("a number of 0 or more", lambda value: value >= 0),
    "queue_lifetime_s": ("a number above 0", lambda value: value > 0),
    "connected_prior_s": ("a number above 0", lambda value: 0 < value < math.inf),
    "disconnected_prior_s": ("a number above 0", lambda value: 0 < value < math.inf),
}
"""The limits that are no whole numbers: what each may be, in words and as a test."""


FIXED: Final = ("topic_levels_max", "user_properties_max", "packet_filters_max")
"""Limits of the form of packets. They stay as long as a broker runs: all decoders of a group must read alike."""


def check_number(name: str, value: object) -> None:
    """Raises ConfigurationError for a limit of `NUMBERS` that cannot be.

    >>> check_number("join_probability", 0.5)
    """
    words, may_be = NUMBERS[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not may_be(value):
        raise ConfigurationError(f"{name} is {value!r}; use {words}")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The limits of a broker.

    >>> BrokerSettings(queue_messages_max=0)
    Traceback (most recent call last):
        ...
    surecast.errors.ConfigurationError: queue_messages_max is 0; use a whole number of 1 or more
    """

    queue_messages_max: int = 10_000
    """Messages of QoS 1 and 2 that wait for one session, those in flight included."""
    queue_bytes_max: int = 64 * 1024 * 1024
    """Payload and topic bytes that wait for one session."""
    overflow: Overflow = "drop-new"
    """The rule for a message that finds the queue full."""
    inflight_max: int = 1_000
    """Unacknowledged messages towards a client; a client's own receive maximum may be lower."""
    receive_maximum: int = 1_000
    """Unacknowledged QoS 1 and 2 messages that a client may send."""
    unsent_bytes_max: int = 16 * 1024 * 1024
    """Bytes that wait for a slow connection before its QoS 0 messages are dropped."""
    packet_bytes_max: int = 16 * 1024 * 1024
    """Largest packet a client may send."""
    first_packet_bytes_max: int = 64 * 1024
    """Largest packet before a connection is accepted."""
    unfinished_bytes_max: int = 128 * 1024 * 1024
    """Bytes of packets that are not whole yet, of all connections together."""
    connect_timeout_s: int = 10
    """Time a new connection has for its CONNECT."""
    keep_alive_max_s: int = 0
    """Longest keep-alive; 0 leaves it to the client. MQTT 5 clients are told, others are held to it."""
    session_expiry_max_s: int = 0
    """Longest time a session outlives its connection; 0 leaves it to the client."""
    topic_alias_max: int = 100
    """Topic aliases in each direction of a connection."""
    topic_levels_max: int = 200
    """Levels of a topic or a filter."""
    user_properties_max: int = MAX_USER_PROPERTIES
    """User properties of one packet; a CONNECT and its will may have no more than a hundred each."""
    packet_filters_max: int = MAX_FILTERS
    """Topic filters in one SUBSCRIBE or UNSUBSCRIBE."""
    subscriptions_max: int = 10_000
    """Subscriptions of one session."""
    filter_constraints_max: int = 4_000
    """Constraints in the content filters of one session, those of all its subscriptions together."""
    join_probability: float = 1.0
    """Probability that a message of QoS 1 or 2 joins the queue of a session that is away."""
    join_threshold: float = math.inf
    """Length of its queue from which on no message joins while a session is away; a fraction is the probability that
    one more does."""
    queue_lifetime_s: float = math.inf
    """Time after its publication for which a message waits for a session, connected or not."""
    response_target: ResponseTarget | None = None
    """The response target of clients that ask for none themselves."""
    connected_prior_s: float = 600.0
    """The mean connected period that is assumed of a client until it is known better."""
    disconnected_prior_s: float = 600.0
    """The mean disconnected period that is assumed of a client until it is known better."""
    filter_shapes_max: int = 128
    """Different places of wildcards among the filters of one session."""
    user_subscriptions_max: int = 1_000_000
    """Subscriptions of all sessions of one user."""
    address_subscriptions_max: int = 1_000_000
    """Subscriptions of all sessions from one address."""
    publish_rate_per_s: float = 0.0
    """Messages that a client may publish in a second, on average; 0 is no limit. One that is faster has to wait."""
    user_queue_bytes_max: int = 1 << 30
    """Payload and topic bytes that wait for all sessions of one user; each may have 16 KiB all the same."""
    address_queue_bytes_max: int = 1 << 30
    """Payload and topic bytes that wait for all sessions without a user from one address; each may have 16 KiB."""
    sessions_max: int = 1_000_000
    """Sessions, connected or not."""
    user_sessions_max: int = 100_000
    """Sessions of one user, connected or not; clients without a user are not counted."""
    address_sessions_max: int = 100_000
    """Sessions from one address, connected or not."""
    retained_max: int = 1_000_000
    """Retained messages."""
    retained_bytes_max: int = 1 << 30
    """Payload and topic bytes of all retained messages."""
    client_retained_max: int = 500_000
    """Retained messages of one client."""
    client_retained_bytes_max: int = 512 << 20
    """Payload and topic bytes of the retained messages of one client."""
    request_tokens_max: int = 100_000
    """Tokens of clients whose requests are remembered, so that none is published twice."""
    system_interval_s: int = 10
    """Time between two publications of the `$SYS` topics; 0 switches them off."""

    def __post_init__(self) -> None:
        if self.overflow not in OVERFLOWS:
            raise ConfigurationError(f"overflow is {self.overflow!r}; use one of {', '.join(OVERFLOWS)}")
        may_be_zero = {"keep_alive_max_s", "session_expiry_max_s", "topic_alias_max", "system_interval_s"}
        two_bytes = {"inflight_max", "receive_maximum", "topic_alias_max", "keep_alive_max_s"}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("overflow", "response_target"):
                continue
            if field.name in NUMBERS:
                check_number(field.name, value)
                continue
            least = 0 if field.name in may_be_zero else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigurationError(f"{field.name} is {value!r}; use a whole number of {least} or more")
            if field.name in two_bytes and value > 65_535:
                raise ConfigurationError(f"{field.name} is {value}; use at most 65535")
