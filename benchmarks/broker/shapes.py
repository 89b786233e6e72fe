"""What is measured: who publishes to whom, at which QoS, and how many messages go into one write."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CELLS", "PAYLOAD_BYTES", "RATE_PER_S", "Cell", "choose"]

PAYLOAD_BYTES = 64
RATE_PER_S = 5_000.0


@dataclass(frozen=True)
class Cell:
    """One row of the table.

    Publishers take the topics in turn. Subscriber i has the topic i if there is one for each, otherwise all have the
    only topic. `window` is the number of messages that may be on their way at once, over all publishers. With a
    `rate_per_s` messages are sent at fixed times instead, and the time to each delivery is measured.
    """

    shape: str
    qos: int
    publishers: int
    subscribers: int
    topics: int
    burst: int
    window: int
    rate_per_s: float = 0.0

    @property
    def name(self) -> str:
        """How the row is called."""
        kind = "rate" if self.rate_per_s else "burst" if self.burst > 1 else "single"
        return f"{self.shape}/q{self.qos}/{kind}"

    @property
    def copies(self) -> int:
        """Deliveries of one message."""
        return self.subscribers if self.topics == 1 else 1


# Shape, publishers, subscribers, topics, messages in one write, and the windows of bursts and of single sends.
_SHAPES = (
    ("one-to-one", 1, 1, 1, 256, 512, 64),
    ("fan-in", 50, 1, 1, 16, 800, 50),
    ("fan-out", 1, 50, 1, 64, 128, 64),
    ("many", 50, 50, 50, 16, 800, 50),
    ("cycle", 1, 50, 50, 250, 500, 50),
)

CELLS: tuple[Cell, ...] = (
    *(
        Cell(shape, qos, publishers, subscribers, topics, burst, window)
        for kind in ("burst", "single")
        for shape, publishers, subscribers, topics, many, wide, narrow in _SHAPES
        for burst, window in [(many, wide) if kind == "burst" else (1, narrow)]
        for qos in (0, 1)
    ),
    *(Cell("one-to-one", qos, 1, 1, 1, 1, 64, RATE_PER_S) for qos in (0, 1)),
)


def choose(patterns: list[str]) -> list[Cell]:
    """The cells whose name contains one of the patterns; all if there is none.

    >>> [cell.name for cell in choose(["fan-in/q1"])]
    ['fan-in/q1/burst', 'fan-in/q1/single']
    """
    return [cell for cell in CELLS if not patterns or any(pattern in cell.name for pattern in patterns)]
