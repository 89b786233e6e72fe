"""From bytes to packets, however the bytes are cut.

Every packet takes the plain way: its first byte and its length are checked as soon as they are there, and its body is
read when all of it is (`bodies.py`), but for those that a broker sees by the hundred in one read: messages without
properties, and plain acknowledgements, are found in batches (`batches.py`), and messages with properties that were read
before are read by a short cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal

from surecast.errors import ConfigurationError
from surecast.protocol.mqtt.ack_batches import ACKS, AckBatch, find_acks
from surecast.protocol.mqtt.batch_scan import find_publishes
from surecast.protocol.mqtt.batches import FLAGS_OF, Likeness, PublishBatch, has_none
from surecast.protocol.mqtt.bodies import RAW_LIMIT, read_body, read_topic
from surecast.protocol.mqtt.packet_errors import MalformedPacket, PacketError, ProtocolError
from surecast.protocol.mqtt.packets import V5, V31, V311, Connect, Packet, PacketType, Publish, publish_from_wire
from surecast.protocol.mqtt.properties import Properties
from surecast.protocol.mqtt.reasons import ReasonCode
from surecast.protocol.mqtt.topics import MAX_LEVELS
from surecast.protocol.mqtt.unfinished import COUNTED_BYTES_MIN, PartialPacketHolder, Unfinished
from surecast.protocol.mqtt.wire import MAX_FILTERS, MAX_USER_PROPERTIES, MAX_VARIABLE, PacketReader, ReaderSettings

__all__ = ["PacketDecoder", "Side"]

Side = Literal["server", "client"]

_ALIKE_BYTES_MAX: Final = 4_096
_CACHED_TOPICS: Final = 1024
_CACHED_TOPIC_BYTES: Final = 256
_CACHED_PROPERTIES: Final = 64
_CACHED_PROPERTY_BYTES: Final = 127  # their length has one byte
_PUBLISH: Final = PacketType.PUBLISH << 4
_NAMES: Final = {int(kind): kind.name for kind in PacketType}
_SENT_BY_SERVER_ONLY: Final = {PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP}
_SENT_BY_CLIENT_ONLY: Final = {PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ}
_FLAGS: Final = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}


class PacketDecoder:
    """Reads the packets that arrive at one side of one connection.

    A server's decoder learns the protocol version from the CONNECT that must come first, and takes at most
    `max_connect_size` bytes for it; a client's decoder is told the `version` that its CONNECT asked for. No more than
    one packet within these limits is ever held back. Text with control characters, which the standards advise against,
    is malformed if `strict_text`. Topics and filters may have `max_levels` levels. A packet of a client may have
    `max_user_properties` user properties, and `max_filters` filters to subscribe to or unsubscribe from.

    >>> decoder = PacketDecoder()
    >>> decoder.feed(bytes.fromhex("10 0d 0004 4d515454 04 02 003c 0001 70  c0 00  e0"))
    [Connect(client_id='p', clean_start=True, keep_alive_s=60, ..., version=4), Pingreq()]
    >>> decoder.feed(b"\\x00")
    [Disconnect(reason=<ReasonCode.SUCCESS: 0>, properties=Properties())]
    >>> decoder.feed(b"\\xd0\\x00")
    Traceback (most recent call last):
        ...
    surecast.protocol.mqtt.packet_errors.ProtocolError: PINGRESP, byte 0: a client does not send this packet
    """

    def __init__(
        self,
        max_packet_size: int = MAX_VARIABLE + 5,
        version: int | None = None,
        *,
        side: Side = "server",
        max_connect_size: int = 65_536,
        max_levels: int = MAX_LEVELS,
        max_user_properties: int = MAX_USER_PROPERTIES,
        max_filters: int = MAX_FILTERS,
        strict_text: bool = True,
    ):
        if version not in (None, V31, V311, V5) or (version is None and side == "client"):
            raise ConfigurationError(f"a {side}'s decoder cannot read version {version}; the levels are 3, 4 and 5")
        self.version = version
        self._side: Side = side
        self._max_size = max_packet_size
        self._max_connect_size = min(max_connect_size, max_packet_size)
        server = side == "server"
        most = (max_user_properties, max_filters) if server else (MAX_VARIABLE, MAX_VARIABLE)
        self._settings = ReaderSettings(version or V5, server, strict_text, max_levels, *most)
        self._held = bytearray()  # the beginning of a packet
        self._needed = 0  # how long `_held` must be before anything new can be said about it
        self._error: PacketError | None = None
        self.is_at_packet = False
        """True if the next byte begins a packet, and the version is known."""
        self._unfinished: Unfinished[PartialPacketHolder] | None = None
        self._is_counted = False
        self._topics: dict[bytes, str] = {}
        self._properties: dict[bytes, Properties] = {}
        self._alike: PublishBatch | None = None
        self._likeness: Likeness | None = None
        self._use(version)

    @property
    def held_bytes(self) -> int:
        """Returns the number of bytes that wait for the rest of their packet."""
        return len(self._held)

    def count_in(self, unfinished: Unfinished[PartialPacketHolder]) -> None:
        """Tells somebody from now on how much is held."""
        self._unfinished = unfinished

    def drop_held(self) -> None:
        """Forgets the beginning of a packet; nothing can be read after that."""
        self._held = bytearray()
        self.is_at_packet = False
        self._error = ProtocolError("packet", 0, "it was given up unfinished", ReasonCode.QUOTA_EXCEEDED)
        self.release()

    def release(self) -> None:
        """Stops counting what is held."""
        if self._is_counted and self._unfinished is not None:
            self._is_counted = False
            self._unfinished.release(self)

    def _hold(self, data: bytes) -> None:
        self._held += data
        self.is_at_packet = False
        if self._unfinished is not None and len(self._held) >= COUNTED_BYTES_MIN:
            self._is_counted = True
            self._unfinished.hold(self, len(self._held))

    def limit(self, max_packet_size: int) -> None:
        """Changes the largest packet; those that were complete before are not looked at again."""
        self._max_size = max_packet_size
        self._alike = self._likeness = None
        if self.version is not None:
            self._limit = max_packet_size

    @property
    def held(self) -> bytes:
        """The bytes that wait for the rest of their packet."""
        return bytes(self._held)

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that are complete now. How a stream is cut does not change what comes out of it.

        On bytes that break the protocol a `PacketError` is raised, which carries the packets before them; after that
        the decoder raises the same error whatever it is given.
        """
        try:
            return _singles(self.feed_batches(data))
        except PacketError as error:
            error.packets = tuple(_singles(error.packets))
            raise

    def alike(self, data: bytes) -> PublishBatch | None:
        """Returns an earlier batch that these bytes are like, None if there is none: they are messages to its topic,
        with its flags and of its length, as many as it has. Then they need not be fed to this decoder."""
        if not self.is_at_packet:
            return None
        likeness = self._likeness
        if likeness is None:
            alike = self._alike
            if alike is None or len(data) != len(alike.data):
                return None
            likeness = self._likeness = alike.likeness()
        batch, size, head, unpack, heads, low_at, none_at, length = likeness
        if len(data) != size or not data.startswith(head):
            return None
        if unpack is None:
            if (low_at and not (data[low_at] or data[low_at - 1])) or (none_at and data[none_at]):
                return None
        elif (
            unpack(data, 0) != heads
            or (low_at and b"\0" in (low := data[low_at::length]) and has_none(low, data[low_at - 1 :: length]))
            or (none_at and data[none_at::length].strip(b"\0"))
        ):
            return None
        return batch

    def feed_batches(  # noqa: C901 - few calls, since all that a broker receives goes through it
        self, data: bytes
    ) -> list[Packet | PublishBatch | AckBatch]:
        """As `feed`, with messages and acknowledgements in batches.

        Every message without properties of at most 16 kB is in a `PublishBatch`, and every acknowledgement that reports
        success in an `AckBatch`; what came before has no influence on what is made of the same bytes.
        """
        if self._alike is not None and (alike := self.alike(data)) is not None:
            return [alike.of(data)]
        if len(data) == 4 and data[0] in ACKS and data[1] == 2 and self.is_at_packet:
            identifier = data[2] << 8 | data[3]  # most acknowledgements come alone
            if identifier:
                return [AckBatch((identifier,), data[0])]
        if self._error is not None:
            raise self._error.with_traceback(None)
        packets: list[Packet | PublishBatch | AckBatch] = []
        if self._held:
            if len(self._held) + len(data) < self._needed:
                self._hold(data)
                return packets
            data = bytes(self._held) + data
            self._held = bytearray()
            self.is_at_packet = self.version is not None
            if self._is_counted:
                self.release()
        position, size, topics = 0, len(data), self._topics
        try:
            while position < size:
                if data[position] & 0xF0 == _PUBLISH and self.version is not None:
                    batch = find_publishes(data, position, self._limit, topics.get, self._learn, self.version == V5)
                    if batch is not None:
                        packets.append(batch)
                        position += len(batch.data)
                        if len(batch.data) == size <= _ALIKE_BYTES_MAX:
                            # Many clients send more of the same; only one length to one topic is told again.
                            ends = batch.ends
                            self._alike = batch if len(ends) == 1 or isinstance(ends, range) else None
                            self._likeness = None
                        continue
                after = self._next(data, position, size, packets)
                if after == position:
                    self._hold(data[position:] if position else data)
                    break
                position = after
        except PacketError as error:
            self._fail(error, packets)
            raise
        return packets

    def _next(self, data: bytes, start: int, size: int, packets: list[Any]) -> int:
        """Reads what is not in a batch of messages; where it ends, or `start` if it is not complete."""
        first = data[start]
        if self.version is not None:
            if first in ACKS and (acks := find_acks(data, start)) is not None:
                packets.append(acks)
                return start + 4 * len(acks.packet_ids)
            if first & 0xF0 == _PUBLISH and self._properties:
                after = self._publish_again(data, start, size, packets)
                if after > start:
                    return after
        return self._packet(data, start, size, packets)

    def _fail(self, error: PacketError, packets: list[Any]) -> None:
        if error.version is None:
            error.version = self.version
        error.packets = tuple(packets)
        self.is_at_packet = False
        self._error = type(error)(error.packet, error.offset, error.problem, error.reason_code)
        self._error.version = error.version
        self._error.limit = error.limit

    def _use(self, version: int | None) -> None:
        self.version = version
        self.is_at_packet = version is not None
        self._alike = self._likeness = None
        self._first_bytes = _first_bytes(self._side, version)
        self._limit = self._max_connect_size if version is None else self._max_size
        self._settings = replace(self._settings, version=version or V5)

    def _packet(self, data: bytes, start: int, size: int, packets: list[Any]) -> int:
        """Reads one packet by the plain way; where it ends, or `start` if it is not complete."""
        first = data[start]
        if first not in self._first_bytes:
            raise _unexpected(first, self._side, self.version)
        length, position = 0, start + 1
        while True:
            if position == size:
                self._needed = position - start + 1
                return start
            byte = data[position]
            length |= (byte & 127) << 7 * (position - start - 1)
            position += 1
            if byte < 128:
                break
            if position - start == 5:
                raise MalformedPacket(_NAMES[first >> 4], 1, "the remaining length has more than four bytes")
        if not byte and position - start > 2:
            raise MalformedPacket(_NAMES[first >> 4], 1, "the remaining length is written with more bytes than needed")
        end = position + length
        if end - start > self._limit:
            problem = f"the packet has {end - start} bytes; at most {self._limit} are taken"
            error = ProtocolError(_NAMES[first >> 4], 1, problem, ReasonCode.PACKET_TOO_LARGE)
            error.limit = "packet_size" if self.version is not None else "first_packet_size"
            raise error
        if end > size:
            self._needed = end - start
            return start
        packet = read_body(PacketReader(data, start, position, end, _NAMES[first >> 4], self._settings), first)
        if isinstance(packet, Publish):
            self._remember(packet)
        elif isinstance(packet, Connect):
            self._use(packet.version)
        packets.append(packet)
        return end

    def _learn(self, field: bytes) -> str | None:
        """Returns the topic of a field, which is a topic with its length in front; None if it is not a sound one."""
        try:
            topic = read_topic(PacketReader(field, 0, 0, len(field), "PUBLISH", self._settings))
        except PacketError:
            return None  # the plain way says what is wrong with it
        if len(field) <= _CACHED_TOPIC_BYTES:
            if len(self._topics) >= _CACHED_TOPICS:
                self._topics.clear()
            self._topics[field] = topic
        return topic

    def _remember(self, packet: Publish) -> None:
        """Keeps properties that have been checked, for the short cut."""
        block = packet.raw_properties
        if 0 < len(block) <= _CACHED_PROPERTY_BYTES:
            if len(self._properties) >= _CACHED_PROPERTIES:
                self._properties.clear()
            self._properties[block] = packet.properties

    def _publish_again(self, data: bytes, start: int, size: int, packets: list[Any]) -> int:
        """Reads a PUBLISH with properties that were read before; where it ends, or `start` if it must be looked at."""
        flags = FLAGS_OF.get(data[start])
        if flags is None or start + 4 >= size:
            return start
        length, position = data[start + 1], start + 2
        if length > 127:
            more, position = data[position], position + 1
            if not 0 < more < 128:
                return start
            length += (more - 1) << 7
        end = position + length
        if end > size or end - start > min(self._limit, RAW_LIMIT):
            return start
        begin = position
        position += 2 + (data[position] << 8 | data[position + 1])
        if position > end or position - begin < 3:
            return start
        topic = self._topics.get(data[begin:position]) or self._learn(data[begin:position])
        packet_id = 0
        if flags[0]:
            packet_id = int.from_bytes(data[position : position + 2], "big")
            position += 2
        if topic is None or position >= end or (flags[0] and not packet_id):
            return start
        length, position = data[position], position + 1
        block = data[position : position + length]
        position += length
        properties = self._properties.get(block)
        if properties is None or position > end:
            return start
        packets.append(
            publish_from_wire(topic, data[position:end], flags, packet_id, data[start:end], properties, block)
        )
        return end


def _singles(packets: Iterable[Packet | PublishBatch | AckBatch]) -> list[Packet]:
    """The packets, one by one."""
    singles: list[Packet] = []
    for packet in packets:
        if isinstance(packet, (PublishBatch, AckBatch)):
            singles += packet.packets()
        else:
            singles.append(packet)
    return singles


@lru_cache
def _first_bytes(side: Side, version: int | None) -> frozenset[int]:
    """The first bytes that a packet may have here."""
    if version is None:
        return frozenset({PacketType.CONNECT << 4})
    never = _SENT_BY_SERVER_ONLY | {PacketType.CONNECT} if side == "server" else set(_SENT_BY_CLIENT_ONLY)
    if version != V5:
        never |= {PacketType.AUTH} if side == "server" else {PacketType.AUTH, PacketType.DISCONNECT}
    others = set(PacketType) - never - {PacketType.PUBLISH}
    if version == V31:
        # Its flags are not used, or mark a PUBREL, SUBSCRIBE or UNSUBSCRIBE that is sent again (section 2.1 there).
        return frozenset(kind << 4 | flags for kind in others for flags in range(16)) | frozenset(FLAGS_OF)
    return frozenset(kind << 4 | _FLAGS.get(kind, 0) for kind in others) | frozenset(FLAGS_OF)


def _unexpected(first: int, side: Side, version: int | None) -> PacketError:
    """Returns the error for a first byte that is not one of `_first_bytes`."""
    kind, flags = first >> 4, first & 15
    name = _NAMES.get(kind, "packet of type 0")
    if kind == 0:
        return ProtocolError(name, 0, "this type is forbidden")
    if kind == PacketType.AUTH and version in (V31, V311):
        return ProtocolError(name, 0, "MQTT 3.1 and 3.1.1 do not have this packet")
    if version is None and kind != PacketType.CONNECT:
        return ProtocolError(name, 0, "the first packet of a connection must be CONNECT")
    if version is not None and kind == PacketType.CONNECT and side == "server":
        return ProtocolError(name, 0, "this is the second CONNECT of the connection")
    if side == "server" and kind in _SENT_BY_SERVER_ONLY:
        return ProtocolError(name, 0, "a client does not send this packet")
    if side == "client" and (kind in _SENT_BY_CLIENT_ONLY or (kind == PacketType.DISCONNECT and version != V5)):
        return ProtocolError(name, 0, "a server does not send this packet")
    if kind == PacketType.PUBLISH:
        problem = "the QoS is 3" if flags & 6 == 6 else "a message of QoS 0 is marked as a duplicate"
        return MalformedPacket(name, 0, problem)
    return MalformedPacket(name, 0, f"the flags are {flags:04b}; they must be {_FLAGS.get(PacketType(kind), 0):04b}")
