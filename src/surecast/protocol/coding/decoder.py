"""The receiver of a coded event."""

from __future__ import annotations

from surecast.errors import ConfigurationError
from surecast.protocol.coding.coded_packets import Packet
from surecast.protocol.coding.holder import Holder

__all__ = ["EventDecoder"]


class EventDecoder(Holder):
    """Takes packets of an event in any order until it has the event.

    >>> from surecast.protocol.coding import CodingSettings, EventEncoder
    >>> settings = CodingSettings(packets=4, packet_bytes=2)
    >>> encoder = EventEncoder(1, b"an event", settings, seed=7)
    >>> decoder = EventDecoder(settings)
    >>> [decoder.add(packet) for packet in encoder.plain()[:3]], decoder.prefix(), decoder.missing
    ([True, True, True], b'an eve', 1)
    >>> [decoder.add(packet) for packet in encoder.coded(2)], decoder.data()
    ([True, False], b'an event')
    """

    @property
    def missing(self) -> int | None:
        """The number of independent packets still needed; None before the first packet, as the size is unknown."""
        return None if self.layout is None else self.layout.packets - self.innovative

    @property
    def complete(self) -> bool:
        """True if the event has come or can be computed from the packets that have."""
        return self.missing == 0

    def prefix(self, start: int = 0) -> bytes:
        """The bytes of the event from `start` on as far as they are known without a gap: what can be used at once.

        Plain packets count as they come, coded ones as soon as they determine a plain one.
        """
        if self.layout is None or start >= self.layout.size:
            return b""
        length = self.layout.payload_bytes
        parts = []
        position = start // length
        for number in range(self.layout.generations):
            first, packets = self.layout.first_of(number), self.layout.packets_in(number)
            if position >= first + packets:
                continue
            held = self._generations.get(number)
            while held is not None and position < first + packets and held.known(position - first):
                parts.append(held.plain(position - first))
                position += 1
            if position < first + packets:
                break
        skipped = start % length
        return b"".join(parts)[skipped : skipped + self.layout.size - start]

    def data(self) -> bytes:
        """The event; it must be complete."""
        if self.layout is None or not self.complete:
            raise ConfigurationError(
                f"the event cannot be decoded: {self.missing or 'all'} packets are missing; ask once `complete` is true"
            )
        parts = (self._generations[number].all_plain() for number in range(self.layout.generations))
        return b"".join(parts)[: self.layout.size]

    def packet(self, seed: int, generation: int = 0) -> Packet:
        """A fresh combination of what is here of a generation, for others who lack it. As `Recoder.packet`."""
        return self._recoded(generation, seed)
