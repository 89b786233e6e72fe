"""Dissemination of events as packets: publishers, relays, subscribers, and the event notification service.

Every node is a plain object with the same four methods: `handle(message, sender, now)` or `receive(datagram, sender,
now)`, `next_timer()` and `handle_timer(now)`. They return effects: `Send` a message to a node (as an object, or as the
bytes of `datagram(message)`), `Notify` and `Early` for the subscriber's application, `Expire` for the accounts. Nothing
here reads a clock, a random source or a socket.
"""

from surecast.protocol.dissemination.accounts import Accounts
from surecast.protocol.dissemination.body import Body
from surecast.protocol.dissemination.dissemination_messages import (
    NO_NUMBER,
    Ack,
    Data,
    Early,
    Effect,
    Expire,
    Granted,
    Install,
    Known,
    Message,
    Notify,
    Publish,
    Registered,
    Send,
    Subscribe,
    Unsubscribe,
    View,
)
from surecast.protocol.dissemination.dissemination_settings import (
    SCHEMES,
    DisseminationSettings,
    scheme_settings,
    settings_of_scenario,
    timed,
)
from surecast.protocol.dissemination.node import Node
from surecast.protocol.dissemination.publisher import Publisher
from surecast.protocol.dissemination.relay import Relay
from surecast.protocol.dissemination.service import NotificationService, Publication
from surecast.protocol.dissemination.subscriber import Subscriber
from surecast.protocol.dissemination.wire import DatagramError, Reason, decode, encode, message_bytes

__all__ = [
    "NO_NUMBER",
    "SCHEMES",
    "Accounts",
    "Ack",
    "Body",
    "Data",
    "DatagramError",
    "DisseminationSettings",
    "Early",
    "Effect",
    "Expire",
    "Granted",
    "Install",
    "Known",
    "Message",
    "Node",
    "NotificationService",
    "Notify",
    "Publication",
    "Publish",
    "Publisher",
    "Reason",
    "Registered",
    "Relay",
    "Send",
    "Subscribe",
    "Subscriber",
    "Unsubscribe",
    "View",
    "decode",
    "encode",
    "message_bytes",
    "scheme_settings",
    "settings_of_scenario",
    "timed",
]
