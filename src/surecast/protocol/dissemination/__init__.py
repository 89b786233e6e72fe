"""Dissemination of events as packets: publishers, relays, subscribers, and the event notification service.

Every node is a plain object with the same four methods: `handle(message, sender, now)` or `receive(datagram, sender,
now)`, `next_timer()` and `handle_timer(now)`. They return effects: `SendTo` a message to a node (as an object, or as
the bytes of `datagram(message)`), `EventComplete` and `EventPrefix` for the subscriber's application, `Expire` for the
counters. Nothing here reads a clock, a random source or a socket.
"""

from surecast.protocol.dissemination.body import Body
from surecast.protocol.dissemination.datagrams import DatagramError, DatagramRejection, decode, encode, message_bytes
from surecast.protocol.dissemination.dissemination_messages import (
    NO_NUMBER,
    Data,
    Effect,
    EventComplete,
    EventPrefix,
    Expire,
    Granted,
    HopAck,
    Install,
    Known,
    Message,
    PublishRequest,
    Register,
    Registered,
    SendTo,
    Unregister,
    View,
)
from surecast.protocol.dissemination.dissemination_node import DisseminationNode, MessageCounters
from surecast.protocol.dissemination.dissemination_settings import (
    SCHEMES,
    DisseminationSettings,
    scheme_settings,
    timed,
)
from surecast.protocol.dissemination.publisher import PublisherNode
from surecast.protocol.dissemination.relay import Relay
from surecast.protocol.dissemination.service import GrantedPublication, NotificationService
from surecast.protocol.dissemination.subscriber import SubscriberNode

__all__ = [
    "NO_NUMBER",
    "SCHEMES",
    "Body",
    "Data",
    "DatagramError",
    "DatagramRejection",
    "DisseminationNode",
    "DisseminationSettings",
    "Effect",
    "EventComplete",
    "EventPrefix",
    "Expire",
    "Granted",
    "GrantedPublication",
    "HopAck",
    "Install",
    "Known",
    "Message",
    "MessageCounters",
    "NotificationService",
    "PublishRequest",
    "PublisherNode",
    "Register",
    "Registered",
    "Relay",
    "SendTo",
    "SubscriberNode",
    "Unregister",
    "View",
    "decode",
    "encode",
    "message_bytes",
    "scheme_settings",
    "timed",
]
