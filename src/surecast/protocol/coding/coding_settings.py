"""The settings that sender, brokers and receivers of coded events share, and the cutting of an event into packets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from surecast.errors import ConfigurationError
from surecast.protocol.coding.fields import field_of

__all__ = ["CodingSettings", "GenerationLayout"]

PACKETS_MAX = 4096
PACKET_BYTES_MAX = 1 << 20
EVENT_BYTES_MAX = 1 << 32
GENERATIONS_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class CodingSettings:
    """The parameters of coding, equal at all nodes that handle an event.

    >>> settings = CodingSettings(packets=32, redundancy=0.25)
    >>> settings.coded_packets(32)
    8
    """

    packets: int = 32
    """Plain packets of a generation (n); a smaller event has fewer."""
    redundancy: float = 0.25
    """Coded packets sent in addition, relative to the plain ones; rounded up for each generation."""
    field_bits: int = 8
    """Symbols are elements of the field with 2 to this power elements: 1, 4 or 8."""
    packet_bytes: int = 1000
    """The longest payload of a packet."""
    key: bytes | None = field(default=None, repr=False)
    """The key that packets are authenticated with (keyed BLAKE2b); without one they are protected by CRC-32C.
    A broker that recodes needs it too."""
    event_bytes_max: int = 1 << 26
    """A longer event is refused, by senders and receivers: it bounds what a packet can make a receiver reserve."""
    generations_max: int = 4096
    """An event of more generations is refused likewise."""

    def __post_init__(self) -> None:
        field_of(self.field_bits)
        self._check("packets", self.packets, PACKETS_MAX)
        self._check("packet_bytes", self.packet_bytes, PACKET_BYTES_MAX)
        self._check("event_bytes_max", self.event_bytes_max, EVENT_BYTES_MAX)
        self._check("generations_max", self.generations_max, GENERATIONS_MAX)
        if not 0 <= self.redundancy <= 10:
            raise ConfigurationError(f"coding redundancy is {self.redundancy}; it must be from 0 to 10")
        if self.key is not None and not 16 <= len(self.key) <= 64:
            raise ConfigurationError(f"the coding key has {len(self.key)} bytes; it must have 16 to 64")

    def coded_packets(self, plain: int) -> int:
        """Returns the number of coded packets that are sent in addition to `plain` ones.

        >>> CodingSettings(redundancy=0.1).coded_packets(30)
        3
        """
        # 0.1 * 30 is a little more than 3: rounding first keeps that from becoming 4.
        return math.ceil(round(self.redundancy * plain, 9))

    @staticmethod
    def _check(name: str, value: int, most: int) -> None:
        if not 1 <= value <= most:
            raise ConfigurationError(f"coding {name} is {value}; it must be from 1 to {most}")


@dataclass(frozen=True, slots=True)
class GenerationLayout:
    """The packets and generations of an event: packets have equal length, generations differ by at most one packet.

    >>> layout = GenerationLayout.of(100_000, CodingSettings(packets=32, packet_bytes=1000))
    >>> layout.packets, layout.generations, layout.payload_bytes, layout.packets_in(0), layout.first_of(3)
    (100, 4, 1000, 25, 75)
    """

    size: int
    """Bytes of the event."""
    packets: int
    """Plain packets of all generations."""
    generations: int
    payload_bytes: int
    """Bytes in each packet; the end of the last ones is padding."""

    @classmethod
    def of(cls, size: int, settings: CodingSettings) -> GenerationLayout:
        """The layout for an event of `size` bytes; it must be within the limits of the settings.

        >>> GenerationLayout.of(10, CodingSettings()).packets
        1
        """
        if not 0 <= size <= settings.event_bytes_max:
            raise ConfigurationError(
                f"an event of {size} bytes cannot be coded; event_bytes_max allows {settings.event_bytes_max}"
            )
        packets = max(1, -(-size // settings.packet_bytes))
        generations = -(-packets // settings.packets)
        if generations > settings.generations_max:
            raise ConfigurationError(
                f"an event of {size} bytes has {generations} generations; generations_max allows "
                f"{settings.generations_max}: more packets in a generation, or longer ones, make fewer"
            )
        return cls(size, packets, generations, max(1, -(-size // packets)))

    def packets_in(self, generation: int) -> int:
        """Plain packets of one generation."""
        share, more = divmod(self.packets, self.generations)
        return share + (generation < more)

    def first_of(self, generation: int) -> int:
        """The position in the event of a generation's first packet."""
        share, more = divmod(self.packets, self.generations)
        return generation * share + min(generation, more)
