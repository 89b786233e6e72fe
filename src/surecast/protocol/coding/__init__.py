"""Random linear network coding of events, over fields of 2, 16 and 256 elements.

An event is cut into plain packets, in generations. A source sends them as they are and, after them, coded packets:
random combinations of a generation's plain ones. Whoever has as many independent packets of a generation as it has
plain ones can compute these. Brokers on the way make fresh combinations of what they have, without decoding.

- `CodingSettings`: what all agree on.
- `EventEncoder(event_id, data, settings, seed)`: `plain()`, `coded(count)`, `packets()`.
- `EventDecoder(settings, event_id=None)`: `add(packet)` or `receive(bytes)` says whether it was innovative;
  `rank`, `missing`, `complete`, `prefix()`, `data()`; `packet(generation, seed)` makes a fresh combination.
- `Recoder(settings, event_id=None)`: `add`, `receive`, `packet(seed, generation=0)`; it never decodes.
- `encode(packet, settings)` and `parse(bytes, settings)`: the wire.
- `VectorSpaces(count, packets, field_bits)`: what many nodes have of one generation, encoding vectors alone, for
  simulations: `add(nodes, vectors)`, `recode(nodes, seeds)`, `ranks`.

Nothing here reads a clock or a random source: combinations are drawn from seeds.

>>> settings = CodingSettings(packets=4, redundancy=0.5, packet_bytes=5)
>>> encoder = EventEncoder(1, b"reliable and in time", settings, seed=7)
>>> decoder = EventDecoder(settings)
>>> for packet in [*encoder.plain()[1:], *encoder.coded()]:
...     innovative = decoder.add(packet)
>>> innovative, decoder.complete, decoder.data()
(False, True, b'reliable and in time')
"""

from surecast.protocol.coding.coded_packets import (
    CodedPacketError,
    Packet,
    PacketRejection,
    VectorKind,
    draw_vector,
    encode,
    parse,
)
from surecast.protocol.coding.coders import EventDecoder, EventEncoder, Recoder
from surecast.protocol.coding.coding_settings import CodingSettings, GenerationLayout
from surecast.protocol.coding.fields import POLYNOMIALS, Field, field_of
from surecast.protocol.coding.spaces import VectorSpaces

__all__ = [
    "POLYNOMIALS",
    "CodedPacketError",
    "CodingSettings",
    "EventDecoder",
    "EventEncoder",
    "Field",
    "GenerationLayout",
    "Packet",
    "PacketRejection",
    "Recoder",
    "VectorKind",
    "VectorSpaces",
    "draw_vector",
    "encode",
    "field_of",
    "parse",
]
