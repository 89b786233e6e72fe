"""A broker on the way of a coded event."""

from __future__ import annotations

from surecast.protocol.coding.coded_packets import Packet
from surecast.protocol.coding.holder import Holder

__all__ = ["Recoder"]


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
