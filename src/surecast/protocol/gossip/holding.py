"""One event at one subscriber: the packets it has, and those it can give to others."""

from __future__ import annotations

from surecast.protocol.coding import CodingSettings, EventDecoder, EventEncoder, GenerationLayout, Packet, VectorKind
from surecast.protocol.gossip.gossip_messages import Announced, Wanted

__all__ = ["Holding"]


class Holding:
    """An event at a subscriber: heard of, in part, or whole.

    >>> settings = CodingSettings(packets=4, packet_bytes=2)
    >>> holding = Holding(Announced(1, 0, size=8, deadline_s=5.0), settings)
    >>> [holding.add(packet) for packet in EventEncoder(1, b"an event", settings, seed=7).plain()[:3]]
    [True, True, True]
    >>> holding.missing(coded=True), holding.missing(coded=False)
    ((Wanted(generation=0, count=1, numbers=()),), (Wanted(generation=0, count=1, numbers=(3,)),))
    """

    __slots__ = ("_encoder", "_have", "announced", "coding", "decoder", "layout")

    def __init__(self, announced: Announced, coding: CodingSettings):
        self.announced = announced
        self.coding = coding
        self.layout = GenerationLayout.of(announced.size, coding)
        self.decoder = EventDecoder(coding, announced.event_id)
        self._have: dict[int, int] = {}
        self._encoder: EventEncoder | None = None

    @property
    def complete(self) -> bool:
        return self.decoder.complete

    @property
    def rank(self) -> int:
        return self.decoder.rank

    def add(self, packet: Packet) -> bool:
        """Takes a packet. Returns whether it was innovative."""
        if packet.size != self.announced.size:
            return False
        innovative = self.decoder.add(packet)
        if innovative and packet.kind is VectorKind.PLAIN:
            self._have[packet.generation] = self._have.get(packet.generation, 0) | 1 << packet.position
        return innovative

    def missing(self, coded: bool, generations_max: int = 60, numbers_max: int = 400) -> tuple[Wanted, ...]:
        """Returns the packets needed to complete the event: a count of any kind, or plain packets by their numbers.

        Generations and numbers beyond the limits are left out, as a request has to fit into a datagram.
        """
        wanted: list[Wanted] = []
        for generation in range(self.layout.generations):
            if len(wanted) >= generations_max or not numbers_max:
                break
            packets = self.layout.packets_in(generation)
            count = packets - self.decoder.rank_of(generation)
            if count and coded:
                wanted.append(Wanted(generation, count))
            elif count:
                received = self._have.get(generation, 0)
                numbers = tuple(i for i in range(packets) if not received >> i & 1)[:numbers_max]
                numbers_max -= len(numbers)
                wanted.append(Wanted(generation, len(numbers), numbers))
        return tuple(wanted)

    def fresh(self, generation: int, seed: int) -> Packet:
        """Returns a fresh combination of the packets held of a generation; there must be one."""
        return self.decoder.packet(seed, generation)

    def plain(self, generation: int) -> list[Packet]:
        """Returns the plain packets of a generation; the event must be complete."""
        if self._encoder is None:
            self._encoder = EventEncoder(self.announced.event_id, self.decoder.data(), self.coding, seed=0)
        return self._encoder.plain(generation)
