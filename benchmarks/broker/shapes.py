"""The shapes of traffic that are measured: who publishes to whom, at which QoS, in writes of how many messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["CELLS", "PAYLOAD_BYTES", "RATE_PER_S", "SPREAD_BYTES", "Cell", "choose"]

PAYLOAD_BYTES = 64
SPREAD_BYTES = 200
"""Payloads of varying length have from PAYLOAD_BYTES up to so many bytes more, less one."""

RATE_PER_S = 5_000.0


@dataclass(frozen=True)
class Cell:
    """One row of the table.

    Publishers take the topics in turn. Subscriber i has the topic i if there is one for each, otherwise all have the
    only topic, or by a wildcard all topics. `window` is the number of messages that may be on their way at once, over
    all publishers. With a `rate_per_s` messages are sent at fixed times instead, and the time to each delivery is
    measured. Payloads have equal lengths, or `varying` ones, the same for all brokers.
    """

    shape: str
    kind: str
    qos: int
    publishers: int
    subscribers: int
    topics: int
    burst: int
    window: int
    rate_per_s: float = 0.0
    varying: bool = False

    @property
    def name(self) -> str:
        """Returns the name of the row."""
        return f"{self.shape}/q{self.qos}/{self.kind}{'-varying' if self.varying else ''}"

    @property
    def takes_all(self) -> bool:
        """Returns whether the subscribers have all topics, by a wildcard."""
        return self.topics > 1 and self.subscribers == 1

    @property
    def copies(self) -> int:
        """Deliveries of one message."""
        return self.subscribers if self.topics == 1 else 1


_SINGLES_WINDOW = 256

# Shape, publishers, subscribers, topics, messages in one write of a burst, and the window of bursts.
_SHAPES = (
    ("one-to-one", 1, 1, 1, 256, 512),
    ("fan-in", 50, 1, 1, 16, 800),
    ("fan-out", 1, 50, 1, 64, 128),
    ("fan-out-10", 1, 10, 1, 64, 128),
    ("many", 50, 50, 50, 16, 800),
    ("cycle", 1, 50, 50, 250, 500),
    ("collect", 1, 1, 50, 250, 500),
)


def _cells() -> Iterator[Cell]:
    for varying in (False, True):
        for shape, publishers, subscribers, topics, burst, window in _SHAPES:
            for qos in (0, 1):
                yield Cell(shape, "burst", qos, publishers, subscribers, topics, burst, window, varying=varying)
        for shape, publishers, subscribers, topics, _, _ in _SHAPES:
            for qos in (0, 1):
                yield Cell(shape, "single", qos, publishers, subscribers, topics, 1, _SINGLES_WINDOW, varying=varying)
    for shape, publishers, subscribers, topics, _, _ in _SHAPES:
        # The hardest case for whoever gains by doing things together: nobody has more than one message on its way.
        for qos in (0, 1):
            if publishers > 1 or shape == "fan-out-10":
                yield Cell(shape, "lockstep", qos, publishers, subscribers, topics, 1, publishers)
    for shape, publishers in (("one-to-one", 1), ("fan-in", 50)):
        for qos in (0, 1):
            yield Cell(shape, "rate", qos, publishers, 1, 1, 1, 64, RATE_PER_S)


CELLS: tuple[Cell, ...] = tuple(_cells())
"""All rows: `burst` is many messages in one write, `single` one message in one write."""


def choose(patterns: list[str]) -> list[Cell]:
    """The cells whose name contains one of the patterns; all if there is none.

    >>> [cell.name for cell in choose(["fan-in/q1"])]
    ['fan-in/q1/burst', 'fan-in/q1/single', ..., 'fan-in/q1/lockstep', 'fan-in/q1/rate']
    """
    return [cell for cell in CELLS if not patterns or any(pattern in cell.name for pattern in patterns)]
