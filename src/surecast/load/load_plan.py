"""The plan of a load: how many clients, who gets what, how much of it, how often, for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from surecast.errors import ConfigurationError
from surecast.load.broker_access import BrokerAccess

__all__ = ["HEADER_BYTES", "PREFIX", "Arrivals", "LoadPlan"]

Arrivals = Literal["poisson", "paced"]
"""The times at which messages of an open loop are due: at random, or at equal distances."""

HEADER_BYTES: Final = 20
"""Each payload begins with its stream, its number there, when it was to be sent, and how late it was."""

PREFIX: Final = "surecast-load"
"""The beginning of the topics and the client identifiers of a load, unless another one is asked for."""
_WINDOW: Final = 64


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load for a broker.

    With a `rate_per_s` messages are sent at their times, whatever the broker does (open loop); without, each publisher
    keeps `window` messages on their way, `burst` of them in one write (closed loop). Publisher i sends to the topics
    i, i + publishers, ... in turn, subscriber j has the topic j modulo `topics`, or all of them by a `wildcard`.
    """

    access: BrokerAccess
    publishers: int = 1
    subscribers: int = 1
    topics: int = 1
    wildcard: bool = False
    qos: int = 0
    size_bytes: int = 64
    size_max_bytes: int = 0
    rate_per_s: float | None = None
    arrivals: Arrivals = "poisson"
    window: int = _WINDOW
    burst: int = 1
    seconds: float = 10.0
    warm_up_s: float = 1.0
    probes_per_s: float = 50.0
    storm_per_s: float = 0.0
    idle: int = 0
    more_filters: int = 0
    retain: bool = False
    persistent: bool = False
    processes: int = 1
    prefix: str = PREFIX
    name: str = "run"
    seed: int = 1

    def __post_init__(self) -> None:
        for field, least in _LEAST.items():
            if getattr(self, field) < least:
                name = _NAMES.get(field, field)
                raise ConfigurationError(f"`{name}`: write at least {least}, not {getattr(self, field)}")
        if self.qos > 2:
            raise ConfigurationError(f"`qos`: write 0, 1 or 2, not {self.qos}")
        if self.rate_per_s is not None and not 0 < self.rate_per_s < float("inf"):
            raise ConfigurationError(f"`rate`: write a rate above 0, such as 1000/s, not {self.rate_per_s:g}/s")
        if self.size_max_bytes and self.size_max_bytes < self.size_bytes:
            raise ConfigurationError(
                f"`size_max`: the largest payload, {self.size_max_bytes} bytes, is below the least, {self.size_bytes}"
            )
        if self.rate_per_s is None and self.burst > self.window:
            raise ConfigurationError(
                f"`burst`: a burst of {self.burst} does not fit a window of {self.window}; enlarge --window"
            )
        if not self.prefix or set(self.prefix) & set("+#$\0"):
            raise ConfigurationError(f"`prefix`: {self.prefix!r} cannot begin topics; write a name without + # $")

    @property
    def streams(self) -> list[tuple[int, int]]:
        """Returns the publisher and the topic of each stream; messages are numbered in their stream.

        >>> LoadPlan(BrokerAccess("localhost", 1883), publishers=2, topics=3).streams
        [(0, 0), (0, 2), (1, 1)]
        """
        if self.topics < self.publishers:
            return [(publisher, publisher % self.topics) for publisher in range(self.publishers)]
        return [
            (publisher, topic)
            for publisher in range(self.publishers)
            for topic in range(publisher, self.topics, self.publishers)
        ]

    def copies(self, topic: int) -> int:
        """Returns how many subscribers get each message of a topic.

        >>> plan = LoadPlan(BrokerAccess("localhost", 1883), topics=3, subscribers=4)
        >>> [plan.copies(topic) for topic in range(3)]
        [2, 1, 1]
        """
        if self.wildcard:
            return self.subscribers
        return len(range(topic, self.subscribers, self.topics))

    def topic(self, number: int) -> str:
        """Returns the name of a topic; all have the same length."""
        return f"{self.base}/t/{number:05}"

    def filters(self, subscriber: int) -> list[str]:
        """Returns what a subscriber subscribes to, with the filters that match nothing."""
        own = f"{self.base}/t/#" if self.wildcard else self.topic(subscriber % self.topics)
        return [own, *(f"{self.base}/n/{subscriber}/{number}/+" for number in range(self.more_filters))]

    @property
    def base(self) -> str:
        """Returns how all topics of this load begin."""
        return f"{self.prefix}/{self.name}"

    def subscriber_name(self, number: int) -> str:
        """Returns the client identifier of a subscriber."""
        return f"load-{self.name}-s{number}"

    def share(self, count: int, process: int) -> Sequence[int]:
        """Returns which of so many clients a process has.

        >>> list(LoadPlan(BrokerAccess("localhost", 1883), processes=2).share(5, 1))
        [1, 3]
        """
        return range(process, count, self.processes)

    @property
    def buffer_bytes(self) -> int:
        """Returns how much a process reads at once: many messages, or a few large ones."""
        return max(1 << 18, 4 * max(self.size_bytes, self.size_max_bytes))

    @property
    def session_s(self) -> int:
        """Returns how long a lasting session outlives its connection at most, should nobody remove it."""
        return int(self.seconds + self.warm_up_s) + 600 if self.persistent else 0


_LEAST: Final = {
    "publishers": 0,
    "subscribers": 0,
    "topics": 1,
    "qos": 0,
    "size_bytes": HEADER_BYTES,
    "size_max_bytes": 0,
    "window": 1,
    "burst": 1,
    "seconds": 0.1,
    "warm_up_s": 0.0,
    "probes_per_s": 0.0,
    "storm_per_s": 0.0,
    "idle": 0,
    "more_filters": 0,
    "processes": 1,
}
_NAMES: Final = {
    "size_bytes": "size",
    "size_max_bytes": "size_max",
    "seconds": "time",
    "warm_up_s": "warm_up",
    "probes_per_s": "probes",
    "storm_per_s": "storm",
}
"""The names that commands give these fields."""
