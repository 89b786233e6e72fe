"""A broker's part in an overlay, without any I/O: `OverlayNode`, for simulations and for brokers that run.

>>> links = (("b1", "b2"), ("b2", "b3"))
>>> plan = OverlayPlan(("b1", "b2", "b3"), links, (Tree(links, scheme="buffering"),))
>>> b1 = OverlayNode("b1", plan, incarnation=1)
>>> b1.publish("stock", 1, now=5.0, qos=1).first
EventId(origin='b1', incarnation=1, number=0)
"""

from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan, SchemeParts, Tree, scheme_parts

__all__ = [
    "EventId",
    "NodeSettings",
    "OverlayNode",
    "OverlayPlan",
    "SchemeParts",
    "Tree",
    "scheme_parts",
]
