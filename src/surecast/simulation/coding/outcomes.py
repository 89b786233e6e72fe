"""Outcomes of simulated events: when each was complete at each subscriber, and what was sent for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.protocol.coding import CodingSettings, Packet, VectorKind
from surecast.protocol.dissemination import Data, HopAck, Message, message_bytes
from surecast.protocol.gossip import Announced, Announcement, PacketRequest, Push, Reply, Wanted
from surecast.simulation.coding.compiled_state import (
    ACK,
    ACK_LOCAL,
    COUNTS,
    DATA,
    DATA_LOCAL,
    DIGEST,
    PUSH,
    REPLY,
    REQUEST,
    REQUEST_NUMBERS,
)

__all__ = ["KINDS", "Outcomes", "joined", "place_of"]

KINDS: Final[dict[str, tuple[int, ...]]] = {
    "data": (DATA, DATA + 1, DATA + 2),
    "acknowledgement": (ACK,),
    "digest": (DIGEST,),
    "request": (REQUEST,),
    "push": (PUSH, PUSH + 1, PUSH + 2),
    "reply": (REPLY, REPLY + 1, REPLY + 2),
}
"""Kinds of messages as reports name them, and where they are counted."""
_FORMS: Final = {VectorKind.PLAIN: 0, VectorKind.SEEDED: 1, VectorKind.RECODED: 2}


@dataclass(frozen=True)
class Outcomes:
    """Events (rows) at subscribers (columns): when complete after publication, infinite if not by the deadline.

    `recovered` says where the packet that completed an event came from a peer. `counts` has what was sent for each
    event by kind; packets between a home broker and its own subscribers are not messages of the overlay.
    """

    done_s: NDArray[np.float64]
    recovered: NDArray[np.bool_]
    counts: NDArray[np.int64]

    @property
    def on_time(self) -> NDArray[np.bool_]:
        return np.isfinite(self.done_s)

    def messages(self) -> dict[str, NDArray[np.float64]]:
        """Messages of each kind for each event, those that were sent at all."""
        sent = {kind: self.counts[:, list(places)].sum(axis=1).astype(np.float64) for kind, places in KINDS.items()}
        return {kind: counts for kind, counts in sent.items() if counts.any()}

    def bytes_sent(self, coding: CodingSettings, payload_bytes: int) -> dict[str, NDArray[np.float64]]:
        """Bytes of each kind for each event, with packets of so many bytes."""
        sizes = _sizes(coding, payload_bytes)
        places = {**KINDS, "request": (REQUEST, REQUEST_NUMBERS)}
        volumes = {
            kind: (self.counts[:, list(where)] * sizes[list(where)]).sum(axis=1) for kind, where in places.items()
        }
        return {kind: sent for kind, sent in volumes.items() if sent.any()}


def joined(parts: list[Outcomes]) -> Outcomes:
    """Outcomes one after the other."""
    return Outcomes(
        np.concatenate([part.done_s for part in parts]),
        np.concatenate([part.recovered for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


def place_of(message: Message, is_local: bool) -> int | None:
    """Returns the index at which a message is counted; None for one that belongs to no event."""
    if isinstance(message, Data):
        return (DATA_LOCAL if is_local else DATA) + _FORMS[message.packet.kind]
    if isinstance(message, HopAck):
        return ACK_LOCAL if is_local else ACK
    if isinstance(message, Push | Reply):
        return (PUSH if isinstance(message, Push) else REPLY) + _FORMS[message.packet.kind]
    return {Announcement: DIGEST, PacketRequest: REQUEST}.get(type(message))


def _sizes(coding: CodingSettings, payload_bytes: int) -> NDArray[np.float64]:
    """Bytes of a message of each place."""
    sizes = np.zeros(COUNTS)

    def size(message: Message) -> int:
        return message_bytes(message, coding, None, payload_bytes)

    vector = np.ones(coding.packets, dtype=np.uint8)
    for kind, form in _FORMS.items():
        full = vector if kind is VectorKind.RECODED else None
        packet = Packet(1, coding.packets, 0, coding.packets, kind, b"\0", full_vector=full)
        sizes[DATA + form] = sizes[DATA_LOCAL + form] = size(Data(0, 0, 1.0, packet))
        sizes[PUSH + form] = size(Push(0, 1.0, packet))
        sizes[REPLY + form] = size(Reply(0, 1.0, packet))
    sizes[ACK] = sizes[ACK_LOCAL] = size(HopAck(1, 0, 0, 1, (1 << coding.packets) - 1))
    sizes[DIGEST] = size(Announcement((Announced(1, 0, coding.packets, 1.0),)))
    sizes[REQUEST] = size(PacketRequest(1, (Wanted(0, 1),)))
    sizes[REQUEST_NUMBERS] = size(PacketRequest(1, (Wanted(0, 2, (0, 1)),))) - size(
        PacketRequest(1, (Wanted(0, 1, (0,)),))
    )
    return sizes
