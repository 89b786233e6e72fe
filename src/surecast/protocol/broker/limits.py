"""The limits of one client: those of the broker, changed by its listener, changed again by rules for clients."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from surecast.errors import ConfigurationError
from surecast.protocol.broker.broker_settings import NUMBERS, OVERFLOWS, BrokerSettings, Overflow, check_number
from surecast.protocol.broker.response_target import ResponseTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ClientRule", "LimitTable", "Limits", "Overrides", "Pace"]

_DEFAULTS: Final = BrokerSettings()
_WARN_AT: Final = 0.8
_TWO_BYTES: Final = ("inflight_max", "receive_maximum")
_CACHED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Overrides:
    """Limits that differ from what they would be otherwise; None leaves a limit as it is.

    >>> Overrides(inflight_max=70_000)
    Traceback (most recent call last):
        ...
    surecast.errors.ConfigurationError: inflight_max is 70000; use a whole number from 1 to 65535
    """

    queue_messages_max: int | None = None
    queue_bytes_max: int | None = None
    overflow: Overflow | None = None
    inflight_max: int | None = None
    receive_maximum: int | None = None
    packet_bytes_max: int | None = None
    subscriptions_max: int | None = None
    publish_rate_per_s: float | None = None
    join_probability: float | None = None
    join_threshold: float | None = None
    queue_lifetime_s: float | None = None
    response_target: ResponseTarget | None = None
    connected_prior_s: float | None = None
    disconnected_prior_s: float | None = None

    def __post_init__(self) -> None:
        for name, value in self.given().items():
            _check(name, value)

    def given(self) -> dict[str, Any]:
        """The limits that it sets."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one client and its session. `warn_at` is the length of a queue that is nearly full.

    >>> Limits(queue_messages_max=10).warn_at
    8
    """

    queue_messages_max: int = _DEFAULTS.queue_messages_max
    queue_bytes_max: int = _DEFAULTS.queue_bytes_max
    overflow: Overflow = _DEFAULTS.overflow
    inflight_max: int = _DEFAULTS.inflight_max
    receive_maximum: int = _DEFAULTS.receive_maximum
    packet_bytes_max: int = _DEFAULTS.packet_bytes_max
    subscriptions_max: int = _DEFAULTS.subscriptions_max
    publish_rate_per_s: float = _DEFAULTS.publish_rate_per_s
    join_probability: float = _DEFAULTS.join_probability
    join_threshold: float = _DEFAULTS.join_threshold
    queue_lifetime_s: float = _DEFAULTS.queue_lifetime_s
    response_target: ResponseTarget | None = _DEFAULTS.response_target
    connected_prior_s: float = _DEFAULTS.connected_prior_s
    disconnected_prior_s: float = _DEFAULTS.disconnected_prior_s
    warn_at: int = field(init=False, repr=False)
    drops_when_away: bool = field(init=False, repr=False)
    """True if a message may be kept out of the queue of a session that is away, by chance or by its length."""

    def __post_init__(self) -> None:
        for each in fields(Overrides):
            _check(each.name, getattr(self, each.name))
        object.__setattr__(self, "warn_at", -int(-_WARN_AT * self.queue_messages_max // 1))
        drops = self.join_probability < 1.0 or self.join_threshold < math.inf
        object.__setattr__(self, "drops_when_away", drops)

    @classmethod
    def of(cls, settings: BrokerSettings) -> Limits:
        """Those of a broker, where nothing else is said."""
        return cls(**{each.name: getattr(settings, each.name) for each in fields(Overrides)})


def _check(name: str, value: Any) -> None:
    """Raises ConfigurationError for a limit that cannot be."""
    if name == "overflow":
        if value not in OVERFLOWS:
            raise ConfigurationError(f"overflow is {value!r}; use one of {', '.join(OVERFLOWS)}")
    elif name == "response_target":
        return  # it has checked itself
    elif name in NUMBERS:
        check_number(name, value)
    elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name} is {value!r}; use a whole number of 1 or more")
    elif name in _TWO_BYTES and value > 65_535:
        raise ConfigurationError(f"{name} is {value}; use a whole number from 1 to 65535")


class ClientRule:
    """Overrides for the clients whose identifier and user match; `*` in a pattern stands for any characters.

    >>> rule = ClientRule(Overrides(queue_messages_max=5), client="sensor-*")
    >>> rule.is_for("ann", "sensor-7"), rule.is_for("ann", "screen")
    (True, False)
    """

    __slots__ = ("_client", "_user", "overrides")

    def __init__(self, overrides: Overrides, client: str | None = None, user: str | None = None):
        if client is None and user is None:
            raise ConfigurationError("a rule for clients needs the pattern of a client identifier or of a user")
        self.overrides = overrides
        self._client = None if client is None else _pattern(client)
        self._user = None if user is None else _pattern(user)

    def is_for(self, user: str, client: str) -> bool:
        """Says whether a rule is for a client. A rule with a user is for no client without one."""
        if self._user is not None and (not user or self._user.fullmatch(user) is None):
            return False
        return self._client is None or self._client.fullmatch(client) is not None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


class LimitTable:
    """Finds the limits of a client when it connects. Those of a rule go before its listener's, and these before the
    broker's; of several rules that set the same limit the first one decides. Clients of one kind share one object.

    >>> table = LimitTable(Limits(), {"web": Overrides(queue_messages_max=100, inflight_max=5)},
    ...                    [ClientRule(Overrides(queue_messages_max=7), client="s*")])
    >>> limits = table.resolve("web", "", "s1")
    >>> limits.queue_messages_max, limits.inflight_max, limits is table.resolve("web", "ann", "s2")
    (7, 5, True)
    """

    def __init__(
        self,
        default: Limits,
        listeners: Mapping[str, Overrides] | None = None,
        rules: Iterable[ClientRule] = (),
    ):
        self.default = default
        self._rules: Sequence[ClientRule] = tuple(rules)
        self._listeners = {name: replace(default, **overrides.given()) for name, overrides in (listeners or {}).items()}
        self._found: dict[tuple[str, tuple[int, ...]], Limits] = {}
        every = [default, *self._listeners.values()]
        self.rejects = any(limits.overflow == "reject" for limits in every) or any(
            rule.overrides.overflow == "reject" for rule in self._rules
        )
        """True if some client may have the overflow rule `reject`."""

    def of_listener(self, listener: str) -> Limits:
        """The limits of a listener before it is known who connects; one that is not known has the broker's."""
        return self._listeners.get(listener, self.default)

    def packet_bytes_max(self, listener: str) -> int:
        """The largest packet that some client of a listener may send."""
        sizes = (rule.overrides.packet_bytes_max or 0 for rule in self._rules)
        return max(self.of_listener(listener).packet_bytes_max, *sizes, 0)

    def resolve(self, listener: str, user: str, client: str) -> Limits:
        """The limits of a client."""
        matching = tuple(at for at, rule in enumerate(self._rules) if rule.is_for(user, client))
        if not matching:
            return self.of_listener(listener)
        key = (listener if listener in self._listeners else "", matching)
        limits = self._found.get(key)
        if limits is None:
            given: dict[str, Any] = {}
            for at in reversed(matching):
                given |= self._rules[at].overrides.given()
            if len(self._found) >= _CACHED_MAX:
                self._found.clear()
            limits = self._found[key] = replace(self.of_listener(listener), **given)
        return limits


class Pace:
    """Keeps a client to a rate of messages on average, with bursts of up to one second's worth.

    `hold_until` is when the next bytes of the client should be read: a client that is too fast is not cut off and loses
    nothing, it has to wait.

    >>> pace = Pace(10.0, now=0.0)
    >>> pace.spend(15, now=0.0)
    >>> pace.hold_until
    0.5
    """

    __slots__ = ("at", "hold_until", "rate_per_s", "tokens")

    def __init__(self, rate_per_s: float, now: float):
        self.rate_per_s = rate_per_s
        self.hold_until = now
        self.tokens = max(1.0, rate_per_s)
        self.at = now

    def spend(self, count: int, now: float) -> None:
        """The client has published so many messages."""
        grown = self.tokens + max(0.0, now - self.at) * self.rate_per_s
        self.tokens = min(max(1.0, self.rate_per_s), grown) - count
        self.at = now
        self.hold_until = now - min(0.0, self.tokens) / self.rate_per_s
