"""Recovery of missing packets by gossip among the active subscribers of an event: push, pull and push/pull.

`Gossiper` is the protocol of one subscriber; `GossipSettings` its parameters; `Holding` what a subscriber has of an
event; `Announcement`, `PacketRequest`, `Push` and `Reply` the messages. Nothing here reads a clock or a random source
of its own.
"""

from surecast.protocol.gossip.gossip_messages import Announced, Announcement, PacketRequest, Push, Reply, Wanted
from surecast.protocol.gossip.gossip_settings import GossipMode, GossipSettings
from surecast.protocol.gossip.gossiper import Gossiper, GossipMessage, Outgoing
from surecast.protocol.gossip.holding import Holding
from surecast.protocol.gossip.splitmix import Draws

__all__ = [
    "Announced",
    "Announcement",
    "Draws",
    "GossipMessage",
    "GossipMode",
    "GossipSettings",
    "Gossiper",
    "Holding",
    "Outgoing",
    "PacketRequest",
    "Push",
    "Reply",
    "Wanted",
]
