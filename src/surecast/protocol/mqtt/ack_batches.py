"""Batches of acknowledgements: packets of one kind behind each other, which a broker treats as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack
from typing import Final

from surecast.protocol.mqtt.packets import Puback, Pubcomp, Pubrec, Pubrel

__all__ = ["ACKS", "AckBatch", "find_acks"]

ACKS: Final = frozenset((0x40, 0x50, 0x62, 0x70))
"""The first bytes of acknowledgements that are found in batches: PUBACK, PUBREC, PUBREL, PUBCOMP."""

_PUBACK: Final = 0x40
_KINDS: Final[dict[int, type[Puback | Pubrec | Pubrel | Pubcomp]]] = {
    _PUBACK: Puback,
    0x50: Pubrec,
    0x62: Pubrel,
    0x70: Pubcomp,
}
_WINDOW: Final = 128  # so many packets are looked at first
_IDENTIFIERS: Final = pack(">65536H", *range(65_536))
_PUBACKS: Final = b"".join([b"\x40\x02" + _IDENTIFIERS[at : at + 2] for at in range(0, 2 * 65_536, 2)])


@dataclass(slots=True)  # not frozen: that would make it three times as dear, and there are many
class AckBatch:
    """Acknowledgements of one kind in a row that report success: PUBACK, PUBREC, PUBREL or PUBCOMP packets.

    `packet_ids` are in their order, a range where each is one more; `first_byte` is that of each packet.
    """

    packet_ids: Sequence[int]
    first_byte: int = _PUBACK

    @property
    def data(self) -> bytes:
        """The packets as they came."""
        head = bytes((self.first_byte, 2))
        return b"".join([head + packet_id.to_bytes(2, "big") for packet_id in self.packet_ids])

    def packets(self) -> list[Puback | Pubrec | Pubrel | Pubcomp]:
        """The packets, one by one."""
        kind = _KINDS[self.first_byte]
        return [kind(packet_id) for packet_id in self.packet_ids]


def find_acks(data: bytes, start: int) -> AckBatch | None:
    """The batch of plain acknowledgements that begins at `start` with a byte of `ACKS`; None if there is none.

    >>> find_acks(bytes.fromhex("4002 0001 4002 0002 c000"), 0), find_acks(bytes.fromhex("5002 0007 5002 0002"), 0)
    (AckBatch(packet_ids=range(1, 3), first_byte=64), AckBatch(packet_ids=(7, 2), first_byte=80))
    """
    count = (len(data) - start) // 4
    if not count or data[start + 1] != 2:
        return None
    kind = data[start]
    if count == 1 or data[start + 4] != kind:
        identifier = data[start + 2] << 8 | data[start + 3]
        return AckBatch((identifier,), kind) if identifier else None
    ids: list[int] = []
    looked = 0
    while looked < count:
        # Ever more are looked at, so that what is looked at in vain, or copied, stays in proportion.
        more = min(count - looked, max(_WINDOW, 4 * looked))
        begin = start + 4 * looked
        first = data[begin + 2] << 8 | data[begin + 3]
        after = first + more
        if first and kind == _PUBACK and data[begin : begin + 4 * more] == _PUBACKS[4 * first : 4 * after]:
            # Most clients acknowledge in order.
            if more == count:
                return AckBatch(range(first, after))
            ids += range(first, after)
        else:
            following = _ack_ids(data, begin, begin + 4 * more)
            ids += following
            if len(following) < more:
                break
        looked += more
    if not ids:
        return None
    together = range(ids[0], ids[0] + len(ids))
    return AckBatch(together if ids[-1] == together[-1] and ids == [*together] else tuple(ids), kind)


def _ack_ids(data: bytes, start: int, end: int) -> tuple[int, ...]:
    """Reads the identifiers of the plain packets of one kind from `start` to `end`, up to the first that is not one."""
    firsts, lengths = data[start:end:4], data[start + 1 : end : 4]
    count = min(len(firsts) - len(firsts.lstrip(firsts[:1])), len(lengths) - len(lengths.lstrip(b"\x02")))
    end = start + 4 * count
    ids = tuple(high << 8 | low for high, low in zip(data[start + 2 : end : 4], data[start + 3 : end : 4], strict=True))
    return ids[: ids.index(0)] if 0 in ids else ids
