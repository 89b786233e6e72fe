"""The common part of decoders and recoders: they take the packets of one event and count what they refuse."""

from __future__ import annotations

from collections import Counter

from surecast.errors import ConfigurationError
from surecast.protocol.coding.coded_packets import CodedPacketError, Packet, PacketRejection, VectorKind, parse
from surecast.protocol.coding.coding_settings import CodingSettings, GenerationLayout
from surecast.protocol.coding.fields import Bytes
from surecast.protocol.coding.generation import Generation

__all__ = ["Holder"]


class Holder:
    """The packets of one event at one node. Where no event is given, the first packet determines it, and its size."""

    def __init__(self, settings: CodingSettings, event_id: int | None = None):
        self.settings = settings
        self.event_id = event_id
        self.layout: GenerationLayout | None = None
        self.innovative = 0
        """Packets that raised a rank."""
        self.redundant = 0
        """Good packets that told nothing new."""
        self.rejected: Counter[PacketRejection] = Counter()
        """Packets refused, by reason. Received = innovative + redundant + rejected."""
        self._generations: dict[int, Generation] = {}

    @property
    def rank(self) -> int:
        """Independent packets held, of all generations."""
        return self.innovative

    def receive(self, data: bytes) -> bool:
        """Takes a packet as bytes. Returns whether it was innovative; a bad one is counted and ignored."""
        try:
            packet = parse(data, self.settings)
        except CodedPacketError as error:
            self.rejected[error.reason] += 1
            return False
        return self.add(packet)

    def add(self, packet: Packet) -> bool:
        """Takes a packet. Returns whether it was innovative; one of another event is counted as rejected."""
        reason = self._refusal(packet)
        if reason is not None:
            self.rejected[reason] += 1
            return False
        generation = self._generations[packet.generation]
        if packet.kind is VectorKind.PLAIN:
            innovative = generation.add_plain(packet.position, packet.payload)
        elif generation.complete:
            innovative = False
        else:
            innovative = generation.add_coded(packet.vector(self.settings.field_bits), packet.payload)
        self.innovative += innovative
        self.redundant += not innovative
        return innovative

    def rank_of(self, generation: int) -> int:
        """Independent packets held of one generation."""
        return self._generations[generation].rank if generation in self._generations else 0

    def _recoded(self, generation: int, seed: int) -> Packet:
        held = self._generations.get(generation)
        if self.layout is None or self.event_id is None or held is None or held.rank == 0:
            raise ConfigurationError(f"there is no packet of generation {generation} to recode; ask after add()")
        vector, payload = held.recode(seed)
        size, packets = self.layout.size, held.packets
        return Packet(self.event_id, size, generation, packets, VectorKind.RECODED, payload, full_vector=vector)

    def _refusal(self, packet: Packet) -> PacketRejection | None:
        """Returns why a packet cannot be taken, if so: it is of another event, or was not made with these settings.

        A generation is made when its first good packet comes: what never comes takes no room.
        """
        if self.event_id is not None and packet.event_id != self.event_id:
            return PacketRejection.EVENT
        if self.layout is not None and packet.size != self.layout.size:
            return PacketRejection.EVENT
        held = self._generations.get(packet.generation)
        if held is None:
            try:
                layout = self.layout or GenerationLayout.of(packet.size, self.settings)
            except ConfigurationError:
                return PacketRejection.SIZE
            if not 0 <= packet.generation < layout.generations:
                return PacketRejection.GENERATION
            packets, payload_bytes = layout.packets_in(packet.generation), layout.payload_bytes
        else:
            packets, payload_bytes = held.packets, held.payload_bytes
        if packet.packets != packets:
            return PacketRejection.SETTINGS
        if len(packet.payload) != payload_bytes:
            return PacketRejection.LENGTH
        if not 0 <= packet.position < packets:
            return PacketRejection.INDEX
        if packet.full_vector is not None and not self._possible(packet.full_vector, packets):
            return PacketRejection.VECTOR
        if held is None:
            self.layout, self.event_id = layout, packet.event_id
            self._generations[packet.generation] = Generation(packets, payload_bytes, self.settings.field_bits)
        return None

    def _possible(self, vector: Bytes, packets: int) -> bool:
        """Returns whether a vector has as many coefficients as there are plain packets, all in the field."""
        bits = self.settings.field_bits
        return len(vector) == packets and (bits == 8 or int(vector.max()) < 1 << bits)
