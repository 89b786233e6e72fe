"""The brokers of a run: overlay nodes whose links are up, with an index of clients behind each of them.

A node sends frames; those with an event or with a change of demand are the messages of the *capacity* paper. What else
two nodes say to each other keeps their link alive: it comes at once and costs nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final, TypeAlias

from surecast.protocol.demand import JointFilter
from surecast.protocol.filters import Event, FilterIndex
from surecast.protocol.link import LinkAck, NumberedFrame
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import Frame
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.plan_of_system import plan_of_system
from surecast.simulation.capacity.routing_plan import RoutingPlan

__all__ = ["Message", "RoutedBroker", "routed_brokers"]

Message: TypeAlias = NumberedFrame[Frame]
_Sent: TypeAlias = list[tuple[int, Message]]

_BYTES_MAX: Final = 1 << 60
_ACK_FRAMES: Final = 64
"""So many messages of neighbours are acknowledged together: nobody waits for it."""
_SETTINGS: Final = NodeSettings(
    resume_s=inf,
    refresh_s=inf,
    grace_s=inf,
    window_bytes=_BYTES_MAX,
    queue_bytes_max=_BYTES_MAX,
)
"""The queues of a run stand before the brokers: links take all at once. Nothing is refreshed."""


class RoutedBroker:
    """One broker. Each method that gives it something to do returns the messages to send, each with its directed link,
    in the order of `links`; those about events also the subscribers that get the event, sorted."""

    def __init__(self, node: OverlayNode, links: dict[str, int]):
        self.node = node
        self.local_entries = 0
        """The number of entries for subscribers: one for each of them and each filter."""
        self._links = links
        self._neighbours: dict[str, RoutedBroker] = {}
        self._clients: dict[str, FilterIndex[str]] = {}
        self._handled = 0

    @property
    def remote_entries(self) -> int:
        """The number of entries for neighbours, all together."""
        return self.node.remote_entries

    def meet(self, brokers: dict[str, RoutedBroker]) -> None:
        """Takes in who the brokers at the other ends of its links are."""
        self._neighbours = {hop: brokers[hop] for hop in self._links}

    def settle(self) -> bool:
        """Hands all that it has to say to its neighbours, which happens in no time; returns whether it was anything."""
        said = [(hop, written) for hop in self._links for written in self.node.output(hop)]
        for hop, written in said:
            self._neighbours[hop].node.receive(self.node.name, written, 0.0)
        return bool(said)

    def advertise(self, topics: Iterable[str]) -> None:
        """Says which topics clients of this broker will publish to."""
        self.node.advertise(added=[JointFilter(topic) for topic in topics])

    def subscribe(self, subscriber: str, joint: JointFilter) -> _Sent:
        """Takes a subscription; nothing happens if the subscriber has the same one already."""
        clients = self._clients.get(joint.topic)
        if clients is None:
            clients = self._clients[joint.topic] = FilterIndex()
        if not clients.add(joint.content, subscriber):
            return []
        self.local_entries += 1
        self.node.demand(added=(joint,))
        return self._written()

    def unsubscribe(self, subscriber: str, joint: JointFilter) -> _Sent:
        """Takes a subscription back; nothing happens if the subscriber has none with this filter."""
        clients = self._clients.get(joint.topic)
        if clients is None or not clients.remove(joint.content, subscriber):
            return []
        self.local_entries -= 1
        self.node.demand(removed=(joint,))
        return self._written()

    def publish(self, now: float, event: Event) -> tuple[_Sent, list[str]]:
        """Takes an event from a client."""
        self.node.publish(event.class_name, 1, now, attributes=(event.values,))
        return self._written(), self._subscribers()

    def handle(self, now: float, message: Message, sender: str) -> tuple[_Sent, list[str]]:
        """Takes a message from a neighbour."""
        self.node.receive(sender, message, now)
        self._handled += 1
        return self._written(tells_all=not self._handled % _ACK_FRAMES), self._subscribers()

    def _written(self, *, tells_all: bool = False) -> _Sent:
        """Returns the messages to send. Acknowledgements are with the neighbours at once; `tells_all` looks for all."""
        unwritten = self.node.unwritten
        if not (unwritten or tells_all):
            return []
        sent: _Sent = []
        for hop, link in self._links.items():
            if hop in unwritten or tells_all:
                for written in self.node.output(hop, acknowledges=tells_all):
                    if isinstance(written, LinkAck):
                        self._neighbours[hop].node.receive(self.node.name, written, 0.0)
                    else:
                        sent.append((link, written))
        return sent

    def _subscribers(self) -> list[str]:
        subscribers: list[str] = []
        for batch in self.node.take_deliveries():
            clients = self._clients.get(batch.topic)
            if clients is not None:
                subscribers += sorted(clients.match_values(batch.attributes[0]))
        return subscribers


def routed_brokers(plan: RoutingPlan, algorithm: str) -> list[RoutedBroker]:
    """Returns the brokers, with all links up, with advertisements known everywhere, and no subscriptions yet."""
    scheme, _, name = algorithm.rpartition(" ")
    overlay = plan_of_system(plan.system, scheme="none", algorithm=name, is_hierarchical=scheme == "hierarchical")
    brokers = [
        RoutedBroker(
            OverlayNode(own, overlay, 1, _SETTINGS),
            {plan.names[plan.head[link]]: link for link in plan.leaving(broker)},
        )
        for broker, own in enumerate(plan.names)
    ]
    by_name = dict(zip(plan.names, brokers, strict=True))
    for broker in brokers:
        broker.meet(by_name)
    for a, b in overlay.links:
        first, second = by_name[a].node, by_name[b].node
        hellos = first.hello(b), second.hello(a)
        first.link_up(b, hellos[1], 0.0)
        second.link_up(a, hellos[0], 0.0)
    if overlay.trees[0].advertisements:
        publishing = plan.workload.by_broker(plan.workload.publication_rate_per_s, plan.brokers) > 0
        for broker, is_published in zip(brokers, publishing.T.tolist(), strict=True):
            classes = zip(plan.workload.classes, is_published, strict=True)
            broker.advertise([each.name for each, is_own in classes if is_own])
    while sum(broker.settle() for broker in brokers):
        pass
    return brokers
