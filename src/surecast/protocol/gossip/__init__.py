"""Recovery of missing packets by gossip among the active subscribers of an event: push, pull and push/pull.

`Gossiper` is the protocol of one subscriber; `GossipSettings` its parameters; `Holding` what a subscriber has of an
event; `Digest`, `Request`, `Push` and `Reply` the messages. Nothing here reads a clock or a random source of its own.
"""

from surecast.protocol.gossip.draws import Draws
from surecast.protocol.gossip.gossip_messages import Announced, Digest, Push, Reply, Request, Wanted
from surecast.protocol.gossip.gossip_settings import GossipMode, GossipSettings
from surecast.protocol.gossip.gossiper import Gossiper, GossipMessage, Outgoing
from surecast.protocol.gossip.holding import Holding

__all__ = [
    "Announced",
    "Digest",
    "Draws",
    "GossipMessage",
    "GossipMode",
    "GossipSettings",
    "Gossiper",
    "Holding",
    "Outgoing",
    "Push",
    "Reply",
    "Request",
    "Wanted",
]
