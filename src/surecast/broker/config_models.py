"""The fields of a broker's configuration file. docs/reference/broker-configuration.md is written from here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, WithJsonSchema, model_validator

from surecast.broker.security_acl import Wildcards
from surecast.broker.store_base import Durability
from surecast.documents.units import Duration, PositiveDuration, Rate, Size
from surecast.documents.validation import Name, Spec
from surecast.protocol.broker import BrokerSettings, ClientRule, Limits, LimitTable, Overflow, Overrides
from surecast.protocol.broker.response_target import Policy, ResponseTarget

__all__ = [
    "BrokerConfig",
    "ClientLimitsSpec",
    "EventLogSpec",
    "FilePath",
    "HttpSpec",
    "LimitsSpec",
    "ListenerSpec",
    "LogSpec",
    "OverridesSpec",
    "ResponseTargetSpec",
    "SecuritySpec",
    "StateSpec",
]

ListenerKind = Literal["tcp", "tls", "websocket", "secure-websocket"]
_PORTS: dict[str, int] = {"tcp": 1883, "tls": 8883, "websocket": 8083, "secure-websocket": 8084}
_DEFAULTS = BrokerSettings()


def _path(value: object, info: ValidationInfo) -> object:
    """Relative paths start at the folder of the configuration file."""
    if isinstance(value, str) and value:
        return Path((info.context or {}).get("folder", Path())) / Path(value).expanduser()
    return value


FilePath = Annotated[
    Path, BeforeValidator(_path), PlainSerializer(str, return_type=str), WithJsonSchema({"type": "string"})
]
Port = Annotated[int, Field(strict=True, ge=0, le=65_535)]
Count = Annotated[int, Field(strict=True, ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Threshold = Annotated[float, Field(ge=0.0)]
Word = Annotated[int, Field(strict=True, ge=1, le=65_535)]


class ResponseTargetSpec(Spec):
    """The time that messages of a subscriber that comes and goes may take; the broker finds out what to drop for it. \
Give either `mean`, or `within` and `quantile`."""

    mean: PositiveDuration | None = None
    """The mean time from the publication of a message to its acknowledgement by the client."""
    within: PositiveDuration | None = None
    """The time within which the share `quantile` of the messages is to arrive."""
    quantile: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    """The share that is to arrive in time, such as `0.95`."""
    success_min: Share = 0.0
    """The least share of the messages that is to be delivered."""
    policy: Policy = "best"
    """The drop policy: `probabilistic`, `optimal`, `finite-buffer` or `expiry`; `best` delivers most of what drops \
nothing while the client is connected."""
    keep_first: tuple[Name, ...] = ()
    """Topic filters, the most important first: when a message must go, one on a less important topic goes for it."""

    @model_validator(mode="after")
    def _is_one_target(self) -> ResponseTargetSpec:
        if (self.mean is None) == (self.within is None):
            raise ValueError("give either 'mean', or 'within' with 'quantile'")
        if (self.within is None) != (self.quantile is None):
            raise ValueError("'within' and 'quantile' belong together")
        return self

    @property
    def target(self) -> ResponseTarget:
        """The same for the core."""
        time_s = self.mean or self.within or 0.0
        return ResponseTarget(time_s, self.quantile or 0.0, self.success_min, self.policy, keep_first=self.keep_first)


class OverridesSpec(Spec):
    """Limits that differ for a listener or for some clients; what is left out stays as it is."""

    queue_messages: Count | None = None
    """Messages of QoS 1 and 2 that wait for one session, those in flight included."""
    queue_size: Size | None = None
    """Payload and topic bytes that wait for one session."""
    overflow: Overflow | None = None
    """The rule for a message that finds the queue full."""
    inflight: Word | None = None
    """Unacknowledged messages towards a client."""
    receive_maximum: Word | None = None
    """Unacknowledged QoS 1 and 2 messages that a client may send."""
    packet_size: Size | None = None
    """Largest packet a client may send."""
    subscriptions: Count | None = None
    """Subscriptions of one session."""
    publish_rate: Rate | None = None
    """Messages that a client may publish, on average; `0/s` is no limit."""
    join_probability: Share | None = None
    """Probability that a message of QoS 1 or 2 joins the queue of a session that is away."""
    join_threshold: Threshold | None = None
    """Length of its queue from which on no message of QoS 1 or 2 joins while a session is away; the fraction of 21.4 \
is the probability that one joins when 21 wait."""
    queue_lifetime: PositiveDuration | None = None
    """Time after its publication for which a message of QoS 1 or 2 waits for a session, connected or not."""
    response_target: ResponseTargetSpec | None = None
    """The response target of clients that ask for none themselves."""
    connected_prior: PositiveDuration | None = None
    """The mean connected period that is assumed of a client with a target until it is known better."""
    disconnected_prior: PositiveDuration | None = None
    """The mean disconnected period that is assumed of a client with a target until it is known better."""

    def overrides(self) -> Overrides:
        """The same for the core; ConfigurationError says what cannot be."""
        return Overrides(
            queue_messages_max=self.queue_messages,
            queue_bytes_max=None if self.queue_size is None else int(self.queue_size),
            overflow=self.overflow,
            inflight_max=self.inflight,
            receive_maximum=self.receive_maximum,
            packet_bytes_max=None if self.packet_size is None else int(self.packet_size),
            subscriptions_max=self.subscriptions,
            publish_rate_per_s=self.publish_rate,
            join_probability=self.join_probability,
            join_threshold=self.join_threshold,
            queue_lifetime_s=self.queue_lifetime,
            response_target=None if self.response_target is None else self.response_target.target,
            connected_prior_s=self.connected_prior,
            disconnected_prior_s=self.disconnected_prior,
        )


class ClientLimitsSpec(Spec):
    """Limits for some clients, by identifier or user or both. `*` in a pattern stands for any characters. Of several \
rules for a client that set the same limit the first one decides."""

    client: Name | None = None
    """Pattern of the client identifiers that are meant, such as `sensor-*`."""
    user: Name | None = None
    """Pattern of the users that are meant; clients without a user name are never."""
    limits: OverridesSpec
    """The limits that differ; they go before those of the listener."""


class ListenerSpec(Spec):
    """An address at which clients connect."""

    name: Name | None = None
    """A name for log lines and metrics; the kind and the port if it is left out."""
    kind: ListenerKind = "tcp"
    """The transport of MQTT: on TCP, on TLS, in WebSocket frames, or in WebSocket frames on TLS."""
    host: Name = "127.0.0.1"
    """Address or name to listen at; `*` is every address of the machine, IPv4 and IPv6."""
    port: Port | None = None
    """Port; 1883, 8883, 8083 or 8084 by kind if it is left out. 0 takes any that is free."""
    path: Annotated[str, Field(pattern="^/")] = "/mqtt"
    """Path that WebSocket clients ask for."""
    origins: tuple[Name, ...] | None = None
    """Web pages that may connect by WebSocket, such as `https://example.org`; all if it is left out."""
    certificate: FilePath | None = None
    """File of the certificate chain, PEM; needed for TLS."""
    key: FilePath | None = None
    """File of the private key, PEM; the certificate's file if it is left out."""
    ca: FilePath | None = None
    """File of the authorities whose client certificates are trusted, PEM."""
    require_client_certificate: bool = False
    """Require that a client shows a certificate of one of these authorities."""
    use_certificate_name: bool = False
    """Take the common name of a client's certificate as its user name; it needs no password then."""
    anonymous: bool | None = None
    """Let clients connect without a user name; if it is left out, they may where there is no users file."""
    connections_max: Count = 100_000
    """Connections at the same time."""
    address_connections_max: Count | None = 50_000
    """Connections at the same time from one address, of IPv6 from one network of 64 bits; `null` is no limit of its \
own."""
    address_connection_rate_max: Rate | None = 200.0
    """New connections from one address, on average, in bursts of up to a minute's worth; what is above is closed at \
once. `null` is no limit of its own."""
    connection_rate_max: Rate | None = None
    """New connections, such as `500/s`; what is above is closed at once. No limit if it is left out."""
    limits: OverridesSpec = OverridesSpec()
    """Limits that differ for the clients of this listener; they go before those of the broker."""

    @property
    def secure(self) -> bool:
        """Returns whether the listener speaks TLS."""
        return self.kind in ("tls", "secure-websocket")

    @property
    def websocket(self) -> bool:
        """Returns whether the listener speaks WebSocket."""
        return self.kind in ("websocket", "secure-websocket")

    @property
    def wanted_port(self) -> int:
        """The port that was asked for."""
        return _PORTS[self.kind] if self.port is None else self.port

    @property
    def label(self) -> str:
        """The name, given or made."""
        return self.name or f"{self.kind}-{self.wanted_port}"


class StateSpec(Spec):
    """The state that is kept for the next start."""

    folder: FilePath | None = None
    """Folder of the broker's state; without one everything is in memory."""
    durability: Durability | None = None
    """The failures that an acknowledged message survives: `full` a loss of power, `os` the end of the broker, \
`memory` neither; `full` where there is a folder, `memory` where there is none."""

    @property
    def chosen(self) -> Durability:
        """The durability, given or by default."""
        return self.durability or ("full" if self.folder is not None else "memory")


class SecuritySpec(Spec):
    """The users who may connect, and the topics that they may use."""

    users: FilePath | None = None
    """File of users and password hashes, made by `surecast passwd`."""
    acl: FilePath | None = None
    """File of access rules."""
    rules: tuple[str, ...] = ()
    """Access rules, written as in the file; they go before those of the file."""
    wildcards: Wildcards = "deny"
    """The treatment of a subscription to topics of which the rules allow only some: `deny` refuses it; `filter` takes \
it, and the client gets the messages of those topics that are allowed."""
    allow_anonymous_remote: bool = False
    """Let anybody in the network connect without a user name; otherwise such listeners are on loopback only."""
    failures_max: Count = 20
    """Wrong passwords for one user from one address before its next ones have to wait; nobody else has to."""
    failures_window: PositiveDuration = 60.0
    """Time without a wrong password after which they are forgotten."""
    failures_delay: PositiveDuration = 0.25
    """Longest time between two checks of a user from an address with too many wrong passwords; it grows up to that."""
    checks_waiting: Count = 10_000
    """Passwords that wait to be checked; of more, the newest of the address with the most are refused (server busy)."""


class LimitsSpec(Spec):
    """The bounds of every queue, table and waiting time."""

    queue_messages: Count = _DEFAULTS.queue_messages_max
    """Messages of QoS 1 and 2 that wait for one session, those in flight included."""
    queue_size: Size = float(_DEFAULTS.queue_bytes_max)
    """Payload and topic bytes that wait for one session."""
    overflow: Overflow = _DEFAULTS.overflow
    """The rule for a message that finds the queue full."""
    inflight: Word = _DEFAULTS.inflight_max
    """Unacknowledged messages towards a client; a client's own receive maximum may be lower."""
    receive_maximum: Word = _DEFAULTS.receive_maximum
    """Unacknowledged QoS 1 and 2 messages that a client may send."""
    unsent_size: Size = float(_DEFAULTS.unsent_bytes_max)
    """Bytes that wait for a slow connection before its QoS 0 messages are dropped."""
    packet_size: Size = float(_DEFAULTS.packet_bytes_max)
    """Largest packet a client may send."""
    first_packet_size: Size = float(_DEFAULTS.first_packet_bytes_max)
    """Largest packet before a connection is accepted."""
    unfinished_size: Size = float(_DEFAULTS.unfinished_bytes_max)
    """Bytes of packets that are not whole yet, of all connections together; above it, the packet that was begun first \
is given up and its client disconnected. At least twice the largest packet."""
    connect_timeout: PositiveDuration = float(_DEFAULTS.connect_timeout_s)
    """Time a new connection has for its handshake and its CONNECT."""
    keep_alive: Duration = float(_DEFAULTS.keep_alive_max_s)
    """Longest keep-alive; 0 leaves it to the client."""
    session_expiry: Duration = float(_DEFAULTS.session_expiry_max_s)
    """Longest time a session outlives its connection; 0 leaves it to the client."""
    topic_aliases: Annotated[int, Field(strict=True, ge=0, le=65_535)] = _DEFAULTS.topic_alias_max
    """Topic aliases in each direction of a connection."""
    topic_levels: Count = _DEFAULTS.topic_levels_max
    """Levels of a topic or a filter."""
    user_properties: Count = _DEFAULTS.user_properties_max
    """User properties of one packet; a CONNECT and its will may have no more than a hundred each."""
    packet_filters: Count = _DEFAULTS.packet_filters_max
    """Topic filters in one SUBSCRIBE or UNSUBSCRIBE."""
    subscriptions: Count = _DEFAULTS.subscriptions_max
    """Subscriptions of one session."""
    filter_constraints: Count = _DEFAULTS.filter_constraints_max
    """Constraints in the content filters of one session, those of all its subscriptions together; each may cost time \
for every message."""
    filter_shapes: Count = _DEFAULTS.filter_shapes_max
    """Different places of wildcards among the filters of one session: `a/+` and `b/+` have the same, `+/b` has \
another. A message matches at most so many subscriptions of a session."""
    user_subscriptions: Count = _DEFAULTS.user_subscriptions_max
    """Subscriptions of all sessions of one user."""
    address_subscriptions: Count = _DEFAULTS.address_subscriptions_max
    """Subscriptions of all sessions from one address; of IPv6, from one network of 64 bits."""
    publish_rate: Rate = _DEFAULTS.publish_rate_per_s
    """Messages that a client may publish, on average, in bursts of up to a second's worth; a client that is faster \
has to wait. `0/s` is no limit."""
    join_probability: Share = _DEFAULTS.join_probability
    """Probability that a message of QoS 1 or 2 joins the queue of a session that is away; the others are dropped. \
`surecast drop` finds the best one."""
    join_threshold: Threshold | None = None
    """Length of its queue from which on no message of QoS 1 or 2 joins while a session is away; the fraction of 21.4 \
is the probability that one joins when 21 wait. Without end if it is left out."""
    queue_lifetime: PositiveDuration | None = None
    """Time after its publication for which a message of QoS 1 or 2 waits for a session, connected or not; without end \
if it is left out."""
    response_target: ResponseTargetSpec | None = None
    """The response target of clients that ask for none themselves."""
    connected_prior: PositiveDuration = _DEFAULTS.connected_prior_s
    """The mean connected period that is assumed of a client with a target until it is known better."""
    disconnected_prior: PositiveDuration = _DEFAULTS.disconnected_prior_s
    """The mean disconnected period that is assumed of a client with a target until it is known better."""
    user_queue_size: Size = float(_DEFAULTS.user_queue_bytes_max)
    """Payload and topic bytes that wait for all sessions of one user. Beyond it `overflow` applies to its sessions; \
each may have 16 KiB all the same."""
    address_queue_size: Size = float(_DEFAULTS.address_queue_bytes_max)
    """Payload and topic bytes that wait for all sessions without a user from one address; of IPv6, from one network \
of 64 bits."""
    sessions: Count = _DEFAULTS.sessions_max
    """Sessions, connected or not."""
    user_sessions: Count = _DEFAULTS.user_sessions_max
    """Sessions of one user, connected or not; clients without a user name are not counted."""
    address_sessions: Count = _DEFAULTS.address_sessions_max
    """Sessions from one address, connected or not; of IPv6, from one network of 64 bits."""
    retained: Count = _DEFAULTS.retained_max
    """Retained messages."""
    retained_size: Size = float(_DEFAULTS.retained_bytes_max)
    """Payload and topic bytes of all retained messages."""
    client_retained: Count = _DEFAULTS.client_retained_max
    """Retained messages of one client."""
    client_retained_size: Size = float(_DEFAULTS.client_retained_bytes_max)
    """Payload and topic bytes of the retained messages of one client."""
    request_tokens: Count = _DEFAULTS.request_tokens_max
    """Tokens of clients whose requests are remembered; the one that was not used longest is forgotten."""
    connections: Count = 100_000
    """Connections at the same time, all listeners together."""
    memory: Size | None = None
    """Memory of the broker's process above which publishers have to wait, until a tenth of it is free again; 60 % of \
the machine's or container's memory if it is left out."""
    disk_free: Size = float(64 << 20)
    """Free space on the disk of the state below which publishers have to wait, until there is a quarter more."""

    def settings(self, system_interval_s: float) -> BrokerSettings:
        """The same for the core, which counts whole seconds and bytes."""
        return BrokerSettings(
            queue_messages_max=self.queue_messages,
            queue_bytes_max=int(self.queue_size),
            overflow=self.overflow,
            inflight_max=self.inflight,
            receive_maximum=self.receive_maximum,
            unsent_bytes_max=int(self.unsent_size),
            packet_bytes_max=int(self.packet_size),
            first_packet_bytes_max=int(self.first_packet_size),
            unfinished_bytes_max=int(self.unfinished_size),
            connect_timeout_s=_whole(self.connect_timeout),
            keep_alive_max_s=_whole(self.keep_alive),
            session_expiry_max_s=_whole(self.session_expiry),
            topic_alias_max=self.topic_aliases,
            topic_levels_max=self.topic_levels,
            user_properties_max=self.user_properties,
            packet_filters_max=self.packet_filters,
            subscriptions_max=self.subscriptions,
            filter_constraints_max=self.filter_constraints,
            filter_shapes_max=self.filter_shapes,
            user_subscriptions_max=self.user_subscriptions,
            address_subscriptions_max=self.address_subscriptions,
            publish_rate_per_s=self.publish_rate,
            join_probability=self.join_probability,
            join_threshold=math.inf if self.join_threshold is None else self.join_threshold,
            queue_lifetime_s=math.inf if self.queue_lifetime is None else self.queue_lifetime,
            response_target=None if self.response_target is None else self.response_target.target,
            connected_prior_s=self.connected_prior,
            disconnected_prior_s=self.disconnected_prior,
            user_queue_bytes_max=int(self.user_queue_size),
            address_queue_bytes_max=int(self.address_queue_size),
            sessions_max=self.sessions,
            user_sessions_max=self.user_sessions,
            address_sessions_max=self.address_sessions,
            retained_max=self.retained,
            retained_bytes_max=int(self.retained_size),
            client_retained_max=self.client_retained,
            client_retained_bytes_max=int(self.client_retained_size),
            request_tokens_max=self.request_tokens,
            system_interval_s=_whole(system_interval_s),
        )


def _whole(duration_s: float) -> int:
    """Whole seconds; a part of one counts as one, because 0 means no limit."""
    return int(-(-duration_s // 1))


class EventLogSpec(Spec):
    """The log of everything that happens to clients and messages; docs/logs.md describes it."""

    folder: FilePath
    """Folder of the log."""
    segment_size: Size = float(64 << 20)
    """Size at which a new file is begun,"""
    segment_age: PositiveDuration = 3600.0
    """and age."""
    retention_size: Size | None = None
    """Size above which the oldest files are deleted; all are kept if both limits are left out."""
    retention_age: PositiveDuration | None = None
    """Age above which files are deleted."""
    sync: bool = False
    """Wait for the disk after every write."""
    alive_interval: PositiveDuration = 10.0
    """Time between two records that say that the broker is up."""


class HttpSpec(Spec):
    """Metrics, health, administration and the event log over HTTP."""

    host: Name = "127.0.0.1"
    """Address to listen at."""
    port: Port = 9883
    """Port; 0 takes any that is free."""
    certificate: FilePath | None = None
    """File of the certificate chain, PEM; with one, the listener speaks HTTPS and nothing else."""
    key: FilePath | None = None
    """File of the private key, PEM; the certificate's file if it is left out."""
    token_file: FilePath | None = None
    """File whose only line is the token that administration and the event log ask for (`Authorization: Bearer ...`). \
It is made where it does not exist. Without one, administration is at the local socket only."""
    log_readers: tuple[Name, ...] = ()
    """Users who may read the event log with their name and password."""


class LogSpec(Spec):
    """The broker's own log lines, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is written."""
    format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object for each line."""


class BrokerConfig(Spec):
    """A broker: where it listens, what it keeps, whom it trusts."""

    name: Name = "surecast"
    """Name of the broker in its logs and metrics."""
    listeners: Annotated[tuple[ListenerSpec, ...], Field(min_length=1)] = (ListenerSpec(),)
    """The addresses at which clients connect."""
    state: StateSpec = StateSpec()
    """The state that is kept for the next start."""
    security: SecuritySpec = SecuritySpec()
    """The users who may connect, and the topics that they may use."""
    limits: LimitsSpec = LimitsSpec()
    """The bounds of every queue, table and waiting time."""
    clients: tuple[ClientLimitsSpec, ...] = ()
    """Limits that differ for some clients; they go before those of the broker and of the listeners."""
    event_log: EventLogSpec | None = None
    """The log of everything that happens; there is none if it is left out."""
    http: HttpSpec | None = None
    """Metrics, health and administration over HTTP; there is no such listener if it is left out."""
    admin_socket: FilePath | None = None
    """Local socket of `surecast broker status` and the like; chosen by the folder or the first port if left out."""
    log: LogSpec = LogSpec()
    """The broker's own log lines."""
    system_interval: Duration = 10.0
    """Time between two publications of the `$SYS` topics; 0 switches them off."""
    drain: Duration = 5.0
    """Time that clients have to take what is unsent when the broker stops."""

    def anonymous_at(self, listener: ListenerSpec) -> bool:
        """Returns whether clients without a user name may connect at a listener."""
        if listener.anonymous is not None:
            return listener.anonymous
        return self.security.users is None

    @property
    def settings(self) -> BrokerSettings:
        """The limits for the core."""
        return self.limits.settings(self.system_interval)

    def limit_table(self, names: Sequence[str] = ()) -> LimitTable:
        """Returns the limits by listener and client. `names` are those of the listeners, once they have ports."""
        listeners = dict(zip(names or [each.label for each in self.listeners], self.listeners, strict=True))
        return LimitTable(
            Limits.of(self.settings),
            {name: listener.limits.overrides() for name, listener in listeners.items()},
            [ClientRule(rule.limits.overrides(), rule.client, rule.user) for rule in self.clients],
        )
