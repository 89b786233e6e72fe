"""Batches of acknowledgements: PUBACK packets behind each other, which a broker treats as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack
from typing import Final

from surecast.protocol.mqtt.packets import Puback

__all__ = ["AckBatch", "find_acks"]

_WINDOW: Final = 128  # so many packets are looked at first
_IDENTIFIERS: Final = pack(">65536H", *range(65_536))
_ACKS: Final = b"".join([b"\x40\x02" + _IDENTIFIERS[at : at + 2] for at in range(0, 2 * 65_536, 2)])


@dataclass(slots=True)  # not frozen: that would make it three times as dear, and there are many
class AckBatch:
    """PUBACK packets in a row that report success; `packet_ids` in their order, a range where each is one more."""

    packet_ids: Sequence[int]

    def packets(self) -> list[Puback]:
        """The packets, one by one."""
        return [Puback(packet_id) for packet_id in self.packet_ids]


def find_acks(data: bytes, start: int) -> AckBatch | None:
    """The batch of plain PUBACK packets that begins at `start`; None if there is none.

    >>> find_acks(bytes.fromhex("4002 0001 4002 0002 c000"), 0), find_acks(bytes.fromhex("4002 0007 4002 0002"), 0)
    (AckBatch(packet_ids=range(1, 3)), AckBatch(packet_ids=(7, 2)))
    """
    count = (len(data) - start) // 4
    if not count or data[start + 1] != 2:
        return None
    if count == 1 or data[start + 4] != 0x40:
        identifier = data[start + 2] << 8 | data[start + 3]
        return AckBatch((identifier,)) if identifier else None
    ids: list[int] = []
    looked = 0
    while looked < count:
        # Ever more are looked at, so that what is looked at in vain, or copied, stays in proportion.
        more = min(count - looked, max(_WINDOW, 4 * looked))
        begin = start + 4 * looked
        first = data[begin + 2] << 8 | data[begin + 3]
        after = first + more
        if first and data[begin : begin + 4 * more] == _ACKS[4 * first : 4 * after]:
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
    return AckBatch(together if ids[-1] == together[-1] and ids == [*together] else tuple(ids))


def _ack_ids(data: bytes, start: int, end: int) -> tuple[int, ...]:
    """Reads the identifiers of the plain PUBACK packets between `start` and `end`, up to the first that is not one."""
    firsts, lengths = data[start:end:4], data[start + 1 : end : 4]
    count = min(len(firsts) - len(firsts.lstrip(b"\x40")), len(lengths) - len(lengths.lstrip(b"\x02")))
    end = start + 4 * count
    ids = tuple(high << 8 | low for high, low in zip(data[start + 2 : end : 4], data[start + 3 : end : 4], strict=True))
    return ids[: ids.index(0)] if 0 in ids else ids
