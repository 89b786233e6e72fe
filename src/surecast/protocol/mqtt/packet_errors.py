"""The errors raised when the bytes of a peer break the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.errors import PeerError
from surecast.protocol.mqtt.reasons import ReasonCode

if TYPE_CHECKING:
    from surecast.protocol.mqtt.packets import Packet

__all__ = ["MalformedPacket", "PacketError", "ProtocolError"]


class PacketError(PeerError):
    """Base of both kinds of error; the connection cannot be used any more.

    `reason_code` is what an MQTT 5.0 peer is told, `packet` the name of the packet, and `offset` the byte in it that
    is wrong, counted from the packet's first byte. `version` is the protocol level that the connection speaks, or that
    a refused CONNECT asked for; it is None where the CONNECT did not get that far, and then there is no way to answer.
    `packets` are those that stood before the wrong one in the same bytes. `limit` is the name of the limit that the
    packet crossed, empty where it broke the protocol.
    """

    default_reason = ReasonCode.UNSPECIFIED_ERROR

    def __init__(self, packet: str, offset: int, problem: str, reason_code: ReasonCode | None = None):
        self.packet = packet
        self.offset = offset
        self.problem = problem
        self.reason_code = self.default_reason if reason_code is None else reason_code
        self.version: int | None = None
        self.packets: tuple[Packet, ...] = ()
        self.limit = ""
        super().__init__(f"{packet}, byte {offset}: {problem}")

    def __reduce__(self) -> tuple[type[PacketError], tuple[str, int, str, ReasonCode], dict[str, object]]:
        return type(self), (self.packet, self.offset, self.problem, self.reason_code), self.__dict__


class MalformedPacket(PacketError):  # noqa: N818 - the standard's own term
    """Bytes that are not a packet of the protocol.

    >>> error = MalformedPacket("SUBSCRIBE", 5, "the topic filter is empty")
    >>> print(error, hex(error.reason_code))
    SUBSCRIBE, byte 5: the topic filter is empty 0x81
    """

    default_reason = ReasonCode.MALFORMED_PACKET


class ProtocolError(PacketError):
    """A packet that can be read, but says what the protocol does not allow, or not here.

    >>> ProtocolError("PUBLISH", 9, "the topic alias is 0").reason_code.name
    'PROTOCOL_ERROR'
    """

    default_reason = ReasonCode.PROTOCOL_ERROR
