"""Topic-based, tree-based forwarding and its fault-tolerance schemes (the *reliability* paper), without any I/O.

A `Broker` is a plain object: messages and the time go in, effects come out. The schemes are `Settings` of it.

>>> overlay = OverlayMap([("b1", "b2"), ("b2", "b3")], {"Stock": [("b1", "b2"), ("b2", "b3")]})
>>> b2 = Broker("b2", overlay, settings_for("buffering"))
>>> [type(effect).__name__ for effect in b2.handle(Subscribe("s1", "Stock", issued_s=0.0), "b3", now=0.0)]
['Store', 'Send']
>>> event = Event(EventId("p1", 0), "Stock", published_s=5.0, lifetime_s=60.0)
>>> [type(effect).__name__ for effect in b2.handle(EventMessage(event), "b1", now=5.0)]
['Store', 'Send', 'Send']
"""

from surecast.protocol.overlay.broker import Broker
from surecast.protocol.overlay.effects import (
    Deliver,
    Discard,
    Drop,
    Effect,
    HandledEvent,
    Key,
    Record,
    Send,
    Store,
    StoredEvent,
    StoredSubscription,
    event_key,
    subscription_key,
)
from surecast.protocol.overlay.link_state import LinkStateView
from surecast.protocol.overlay.messages import (
    Ack,
    ClientMessage,
    Detour,
    Event,
    EventId,
    EventMessage,
    LinkState,
    Message,
    Publish,
    Subscribe,
    Unsubscribe,
)
from surecast.protocol.overlay.overlay_map import OverlayMap
from surecast.protocol.overlay.routing_table import RoutingTable
from surecast.protocol.overlay.settings import SCHEMES, Settings, settings_for

__all__ = [
    "SCHEMES",
    "Ack",
    "Broker",
    "ClientMessage",
    "Deliver",
    "Detour",
    "Discard",
    "Drop",
    "Effect",
    "Event",
    "EventId",
    "EventMessage",
    "HandledEvent",
    "Key",
    "LinkState",
    "LinkStateView",
    "Message",
    "OverlayMap",
    "Publish",
    "Record",
    "RoutingTable",
    "Send",
    "Settings",
    "Store",
    "StoredEvent",
    "StoredSubscription",
    "Subscribe",
    "Unsubscribe",
    "event_key",
    "settings_for",
    "subscription_key",
]
