"""The wire format of MQTT 3.1, 3.1.1 and 5.0: packets, the way between them and bytes, and topics.

>>> decoder = PacketDecoder(max_packet_size=1_000_000)
>>> decoder.feed(encode(Connect("thermometer", keep_alive_s=60), V5))
[Connect(client_id='thermometer', ..., version=5)]
>>> packet = Publish("house/hall", b"21.5", qos=1, packet_id=1, properties=Properties(content_type="text/plain"))
>>> decoder.feed(encode(packet, V5)) == [packet]
True
"""

from surecast.protocol.mqtt.ack_batches import AckBatch
from surecast.protocol.mqtt.batches import PublishBatch
from surecast.protocol.mqtt.decode import PacketDecoder, Side
from surecast.protocol.mqtt.encode import encode, encode_properties, encode_publish, passed_on_properties
from surecast.protocol.mqtt.packet_errors import MalformedPacket, PacketError, ProtocolError
from surecast.protocol.mqtt.packets import (
    V5,
    V31,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from surecast.protocol.mqtt.properties import NO_PROPERTIES, Properties
from surecast.protocol.mqtt.reasons import (
    ALLOWED_REASONS,
    ReasonCode,
    connack_reason,
    connack_return_code,
    suback_return_code,
)
from surecast.protocol.mqtt.topic_tree import TopicMap, TopicTree
from surecast.protocol.mqtt.topics import (
    SharedError,
    TopicError,
    match,
    parse_shared,
    validate_filter,
    validate_topic_name,
)

__all__ = [
    "ALLOWED_REASONS",
    "NO_PROPERTIES",
    "V5",
    "V31",
    "V311",
    "AckBatch",
    "Auth",
    "Connack",
    "Connect",
    "Disconnect",
    "MalformedPacket",
    "Packet",
    "PacketDecoder",
    "PacketError",
    "PacketType",
    "Pingreq",
    "Pingresp",
    "Properties",
    "ProtocolError",
    "Puback",
    "Pubcomp",
    "Publish",
    "PublishBatch",
    "Pubrec",
    "Pubrel",
    "ReasonCode",
    "SharedError",
    "Side",
    "Suback",
    "Subscribe",
    "SubscriptionRequest",
    "TopicError",
    "TopicMap",
    "TopicTree",
    "Unsuback",
    "Unsubscribe",
    "Will",
    "connack_reason",
    "connack_return_code",
    "encode",
    "encode_properties",
    "encode_publish",
    "match",
    "parse_shared",
    "passed_on_properties",
    "suback_return_code",
    "validate_filter",
    "validate_topic_name",
]
