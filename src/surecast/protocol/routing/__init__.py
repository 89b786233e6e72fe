"""Content-based routing in an acyclic overlay (the *capacity* paper, sections 2 and 3.1), without any I/O.

The algorithms are `flooding`, `simple`, `identity`, `covering` and `merging`, the last three as the paper's model has
them: `identity` announces a class as a whole, `merging` a class with the hull of its intervals. `identity-exact`
(equal filters suspend propagation) and `merging-exact` (only what is exactly a union is merged) are for filters in
general; under both of them, as under `simple` and `covering`, no event goes where nobody wants it.

>>> from surecast.protocol.filters import Event, parse
>>> broker = RoutingBroker("b2", ["b1", "b3"], "hierarchical", "merging", parent="b1")
>>> [effect.to for effect in broker.subscribe("s1", parse("Stock: price in [1, 2]"))]
['b1']
>>> [effect.to for effect in broker.publish(Event("Stock", {"price": 5}))]
['b1']
"""

from surecast.protocol.routing.broker import ALGORITHMS, ROUTING_SCHEMES, RoutingBroker
from surecast.protocol.routing.digests import Digest, register_digest, unregister_digest
from surecast.protocol.routing.messages import Deliver, Effect, Message, Notify, Send, Update
from surecast.protocol.routing.table import ContentTable

__all__ = [
    "ALGORITHMS",
    "ROUTING_SCHEMES",
    "ContentTable",
    "Deliver",
    "Digest",
    "Effect",
    "Message",
    "Notify",
    "RoutingBroker",
    "Send",
    "Update",
    "register_digest",
    "unregister_digest",
]
