"""The three ends of a coded event: its source, the brokers that combine anew, and the receiver."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from surecast.errors import ConfigurationError
from surecast.protocol.coding.coded_packets import Packet, VectorKind, draw_vector
from surecast.protocol.coding.coding_settings import CodingSettings, GenerationLayout
from surecast.protocol.coding.field_kernels import combine
from surecast.protocol.coding.fields import Bytes, Words
from surecast.protocol.coding.holder import Holder

__all__ = ["EventDecoder", "EventEncoder", "Recoder"]

_MASK = (1 << 64) - 1


class EventEncoder:
    """Cuts an event into plain packets and makes coded ones of them, as many as are asked for.

    >>> encoder = EventEncoder(1, b"an event", CodingSettings(packets=4, packet_bytes=2), seed=7)
    >>> [packet.payload for packet in encoder.plain()]
    [b'an', b' e', b've', b'nt']
    >>> len(encoder.coded(3)), len(list(encoder.packets()))
    (3, 5)
    """

    def __init__(self, event_id: int, data: bytes, settings: CodingSettings, seed: int):
        if not 0 <= event_id <= _MASK:
            raise ConfigurationError(f"the event number is {event_id}; it must be from 0 to 2^64 - 1")
        self.event_id = event_id
        self.settings = settings
        self.layout = GenerationLayout.of(len(data), settings)
        self._data = data
        self._seed = seed
        self._sent = 0
        self._rows: Words | None = None

    def plain(self, generation: int | None = None) -> list[Packet]:
        """The plain packets, of one generation or of all."""
        return [packet for number in self._generations(generation) for packet in self._plain(number)]

    def coded(self, count: int | None = None, generation: int | None = None) -> list[Packet]:
        """So many fresh coded packets (as the redundancy says, if not given) of one generation, or of each."""
        return [packet for number in self._generations(generation) for packet in self._coded(number, count)]

    def packets(self) -> Iterator[Packet]:
        """All that is sent: generation by generation, the plain packets and then the coded ones."""
        for number in range(self.layout.generations):
            yield from self.plain(number)
            yield from self._coded(number, None)

    def _plain(self, generation: int) -> list[Packet]:
        length, packets = self.layout.payload_bytes, self.layout.packets_in(generation)
        start = self.layout.first_of(generation) * length
        fragments = [self._data[at : at + length] for at in range(start, start + packets * length, length)]
        return [
            Packet(
                self.event_id, self.layout.size, generation, packets, VectorKind.PLAIN, part.ljust(length, b"\0"), index
            )
            for index, part in enumerate(fragments)
        ]

    def _coded(self, generation: int, count: int | None) -> list[Packet]:
        first, packets = self.layout.first_of(generation), self.layout.packets_in(generation)
        wanted = self.settings.coded_packets(packets) if count is None else count
        seeds = [self._next_seed() for _ in range(wanted)]
        bits = self.settings.field_bits
        vectors: Bytes = np.array([draw_vector(seed, packets, bits) for seed in seeds], dtype=np.uint8)
        rows = self._all_rows()[first : first + packets]
        out = np.empty((wanted, rows.shape[1]), dtype=np.uint64)
        combine(vectors.reshape(wanted, packets), rows, bits, out)
        payloads = out.view(np.uint8)[:, : self.layout.payload_bytes]
        size, kind = self.layout.size, VectorKind.SEEDED
        return [
            Packet(self.event_id, size, generation, packets, kind, payload.tobytes(), seed=seed)
            for seed, payload in zip(seeds, payloads, strict=True)
        ]

    def _generations(self, only: int | None) -> range:
        if only is None:
            return range(self.layout.generations)
        if not 0 <= only < self.layout.generations:
            raise ConfigurationError(f"the event has {self.layout.generations} generations, and none numbered {only}")
        return range(only, only + 1)

    def _next_seed(self) -> int:
        """A seed for each coded packet, mixed, so that the counters of two vectors do not run into each other."""
        self._sent += 1
        mixed = (self._seed * 0xD1342543DE82EF95 + self._sent * 0xDA942042E4DD58B5 + self.event_id) & _MASK
        mixed = ((mixed ^ (mixed >> 32)) * 0xAEF17502108EF2D9) & _MASK
        return mixed ^ (mixed >> 29)

    def _all_rows(self) -> Words:
        """The plain payloads as rows of words, made when the first coded packet is asked for."""
        if self._rows is None:
            length, packets = self.layout.payload_bytes, self.layout.packets
            rows = np.zeros((packets, (length + 7) // 8), dtype=np.uint64)
            padded = np.frombuffer(self._data.ljust(length * packets, b"\0"), dtype=np.uint8)
            rows.view(np.uint8)[:, :length] = padded.reshape(packets, length)
            self._rows = rows
        return self._rows


class Recoder(Holder):
    """Keeps the innovative packets of an event and sends fresh combinations of them. It never decodes.

    >>> from surecast.protocol.coding import CodingSettings, EventEncoder
    >>> settings = CodingSettings(packets=4, packet_bytes=2)
    >>> recoder = Recoder(settings)
    >>> [recoder.add(packet) for packet in EventEncoder(1, b"an event", settings, seed=7).coded(3)]
    [True, True, True]
    >>> len(recoder.packet(seed=1).vector(8))
    4
    """

    def packet(self, seed: int, generation: int = 0) -> Packet:
        """A fresh combination of what is here of a generation; the seed decides which."""
        return self._recoded(generation, seed)


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
