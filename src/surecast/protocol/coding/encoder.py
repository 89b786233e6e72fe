"""The source of a coded event."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from surecast.errors import ConfigurationError
from surecast.protocol.coding.coded_packets import Packet, VectorKind, draw_vector
from surecast.protocol.coding.coding_settings import CodingSettings, GenerationLayout
from surecast.protocol.coding.field_kernels import combine
from surecast.protocol.coding.fields import Bytes, Words

__all__ = ["EventEncoder"]

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
