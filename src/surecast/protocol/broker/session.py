"""A session: what the broker knows of a client, connected or not."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from surecast.protocol.broker.accounts import Accounts
from surecast.protocol.broker.limits import Limits
from surecast.protocol.broker.message import Delivery, EventName, Message, text_field
from surecast.protocol.broker.plain_flight import PlainFlight
from surecast.protocol.broker.quotas import Quota
from surecast.protocol.broker.waiting_queue import WaitingQueue
from surecast.protocol.filters import Filter

if TYPE_CHECKING:
    from surecast.protocol.broker.connection import Connection
    from surecast.protocol.broker.fan_out import Group
    from surecast.protocol.broker.period_monitor import PeriodMonitor
    from surecast.protocol.broker.routes import Route
    from surecast.protocol.broker.target_state import TargetState

__all__ = ["Seen", "Session", "SessionWill", "Subscription", "session_key", "split_key"]

_DEFAULTS = Limits()


def session_key(user: str, client: str) -> str:
    """Returns the name of a session: a client identifier belongs to its user, and clients without a user share theirs.

    No text of MQTT has a U+0000 in it, so two names are equal only where both parts are.

    >>> session_key("ann", "till-7"), session_key("", "till-7")
    ('ann\\x00till-7', 'till-7')
    """
    return f"{user}\0{client}" if user else client


def split_key(key: str) -> tuple[str, str]:
    """Returns the user and the client identifier of a session's name.

    >>> split_key("ann\\0till-7"), split_key("till-7")
    (('ann', 'till-7'), ('', 'till-7'))
    """
    user, _, client = key.rpartition("\0")
    return user, client


class Seen(Protocol):
    """The messages that a session has had, by their identity, where sessions move between brokers."""

    def takes(self, message: Message) -> bool:
        """Returns whether the session is to have a message; from now on it has had it."""

    def takes_moved(self, message: Message) -> bool:
        """Returns whether a message of another part of the session is none that this part has had."""

    def gave(self, message: Message) -> None:
        """Another part of the session has a message now."""

    def takes_all(self, event: EventName | None, count: int, published_at: float) -> bool:
        """Returns whether the session is to have all of some messages; only then it has had them from now on."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription of a session. `share` is the name of a shared subscription, `identifier` 0 if there is none."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0
    share: str = ""
    content: Filter | None = None
    content_text: str = ""

    @property
    def key(self) -> str:
        """The filter as the client wrote it."""
        return f"$share/{self.share}/{self.filter}" if self.share else self.filter


@dataclass(slots=True)
class SessionWill:
    """The message to publish `delay_s` after its client is gone; `due_at` once the delay runs.

    The message may wait for `lifetime_s`, and says so by its expiry interval `interval_s`, which may be longer.
    """

    message: Message
    delay_s: int = 0
    lifetime_s: float = math.inf
    due_at: float = math.inf
    interval_s: float = math.inf


class Session:
    """The state that MQTT calls a session, with its queue and its accounts.

    `key` names it among all sessions, by user and client identifier; `key_field` is the key with its length in front;
    `serial` tells sessions of one key apart. `lifetime_s` says how long it outlives its connection (infinite: for
    ever); `ends_at` is when, once nobody is connected. `received` holds the identifiers of QoS 2 messages that the
    client sent and did not release yet. `resend` holds what is in flight and must be sent again to this connection, as
    soon as its window allows. Nothing that waits expires before `expiry_check_at`. `filter_constraints` counts
    those of its content filters. `quota` is that of its user or address, which counts its queue too. `limits` were
    found when the client connected at `listener`; of them, `bytes_max` is the size of the queue, and while fewer than
    `short_max` messages are in flight, no limit of their number is near. Of what is in flight, `tracked` has the
    messages that may be sent again, and `plain` the sizes of the others; in `inflight` are all. A session that outlives
    its connection has a `monitor` of its client's periods, and a `target` if one was asked for. Where sessions move
    between brokers `seen` knows what it has had; one that is `renewed` counts as new for its client.
    """

    __slots__ = (
        "accounts",
        "address",
        "bytes_max",
        "bytes_queued",
        "client",
        "connection",
        "ends_at",
        "expiry_check_at",
        "filter_constraints",
        "groups",
        "key",
        "key_field",
        "lifetime_s",
        "limits",
        "listener",
        "monitor",
        "next_identifier",
        "next_sequence",
        "plain",
        "quota",
        "received",
        "renewed",
        "resend",
        "routes",
        "seen",
        "serial",
        "shapes",
        "short_max",
        "subscriptions",
        "target",
        "tracked",
        "user",
        "waiting",
        "warned",
        "will",
        "window",
    )

    def __init__(self, client: str, serial: int, lifetime_s: float = 0.0, user: str = ""):
        self.client = client
        self.user = user
        self.key = session_key(user, client)
        self.key_field = text_field(self.key)
        self.serial = serial
        self.lifetime_s = lifetime_s
        self.listener = ""
        self.address = ""
        self.quota = Quota()
        self.limits = _DEFAULTS
        self.bytes_max = _DEFAULTS.queue_bytes_max
        self.ends_at = math.inf
        self.connection: Connection | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.shapes: Counter[str] = Counter()
        self.tracked: dict[int, Delivery] = {}
        self.plain = PlainFlight()
        self.waiting = WaitingQueue()
        self.resend: deque[Delivery] = deque()
        self.received: set[int] = set()
        self.bytes_queued = 0
        self.expiry_check_at = math.inf
        self.window = 1
        self.short_max = 0
        self.next_identifier = 0
        self.next_sequence = 0
        self.filter_constraints = 0
        self.will: SessionWill | None = None
        self.monitor: PeriodMonitor | None = None
        self.target: TargetState | None = None
        self.accounts = Accounts()
        self.warned = False
        self.seen: Seen | None = None
        self.renewed = False
        self.routes: set[Route] = set()
        self.groups: set[Group] = set()

    def limit(self, limits: Limits, receive_maximum: int | None = None) -> None:
        """Sets what limits the session; `receive_maximum` is what a connected client asked for."""
        self.limits = limits
        self.bytes_max = limits.queue_bytes_max
        self.window = min(limits.inflight_max, receive_maximum or limits.inflight_max)
        self.short_max = min(self.window, limits.warn_at - 1)

    @property
    def persistent(self) -> bool:
        """Says whether the session outlives its connection, so that its state belongs on disk."""
        return self.lifetime_s > 0

    @property
    def queued(self) -> int:
        """Messages that wait or are in flight."""
        plain = self.plain
        return len(self.tracked) + plain.after - plain.first + len(self.waiting)

    @property
    def inflight(self) -> dict[int, Delivery]:
        """The messages in flight, by packet identifier, in the order in which they were sent."""
        plain = self.plain
        if plain.first != plain.after:
            self.tracked.update(plain.take())
        return self.tracked

    @property
    def inflight_count(self) -> int:
        """The number of messages in flight."""
        plain = self.plain
        return len(self.tracked) + plain.after - plain.first

    def free_identifiers(self, count: int) -> tuple[int, int]:
        """Returns the next packet identifier, and how many from it on are free and follow each other, at most `count`.

        It is the next in any case; how many may be 0.
        """
        first = self.next_identifier + 1 if self.next_identifier < 65_535 else 1
        count = min(count, 65_536 - first)
        if self.plain and self.plain.after != first:
            self.tracked.update(self.plain.take())
        inflight = self.tracked
        if inflight and not inflight.keys().isdisjoint(range(first, first + count)):
            count = next(at for at in range(count) if first + at in inflight)
        return first, count
