"""The machine of a broker in virtual time: a disk that survives, a node that does not, and their turn."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from surecast.protocol.demand import JointFilter
from surecast.protocol.overlay.node_accounts import NodeAccounts
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import EventBatch
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan, scheme_parts
from surecast.simulation.experiment import Machine
from surecast.simulation.experiment.clock import TIMERS, Clock
from surecast.simulation.reliability.protocol.network import NOTIFICATION, RETRANSMISSION, SUBSCRIPTION, Network

__all__ = ["SimulatedBroker"]

_ACK_TURNS: Final = 256


class SimulatedBroker(Machine):
    """A broker's machine. `node` is None while it is down.

    A turn ends as in a broker that runs: what the node has for the disk is there before anything leaves.
    """

    def __init__(
        self,
        index: int,
        name: str,
        plan: OverlayPlan,
        settings: NodeSettings,
        clock: Clock,
        network: Network,
        deliver: Callable[[SimulatedBroker, EventBatch], None],
        wrote: Callable[[SimulatedBroker, tuple[Any, ...]], None],
    ):
        super().__init__(clock)
        self.index = index
        self.name = name
        self.neighbours = plan.neighbours(name)
        self.disk: dict[tuple[Any, ...], Any] = {}
        self._plan = plan
        self._settings = settings
        self._network = network
        self._deliver = deliver
        self._wrote = wrote
        self._timer_s = inf
        self._starts = 0
        self._sent = [0, 0, 0]
        self._turns = 0
        self._has_custody = any(scheme_parts(tree.scheme).custody for tree in plan.trees)
        self.node: OverlayNode | None = None
        self.start()

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def up(self) -> OverlayNode:
        """The node of a broker that is up."""
        assert self.node is not None
        return self.node

    def start(self) -> None:
        """Starts the broker with what is on its disk."""
        self._starts += 1
        self.node = OverlayNode(self.name, self._plan, self._starts, self._settings, self.clock.now)
        self.node.restore(self.disk)

    def crash(self) -> None:
        """Stops the broker; all that is not on disk is lost."""
        for kind, number in enumerate(self._counted(self.up.accounts)):
            self._sent[kind] += number
        self.node = None
        self.end_incarnation()
        self._timer_s = inf

    def subscribe(self, joints: list[JointFilter]) -> None:
        """Subscribes the broker's clients; what it would say over links that are not made yet is no message."""
        before = self.up.accounts.subscriptions_lost
        self.up.demand(added=joints)
        self._sent[2] -= self.up.accounts.subscriptions_lost - before
        self.end_turn()

    def end_turn(self, heard: str = "") -> None:
        """Writes to the disk, delivers to clients and writes to neighbours, in this order; sets the timer. `heard` is
        the neighbour from which events came, if they did: it waits for their acknowledgement. For other frames nobody
        waits: theirs go with what is written anyway, and now and then to all."""
        node = self.up
        if node.journal:
            for key, record in node.journal:
                if record is None:
                    self.disk.pop(key, None)
                else:
                    self.disk[key] = record
                self._wrote(self, key)
            node.journal.clear()
        for batch in node.take_deliveries():
            self._deliver(self, batch)
        hops = dict.fromkeys(node.unwritten)
        acknowledges = self._has_custody
        if acknowledges and heard:
            hops[heard] = None
        else:
            self._turns += 1
            if not self._turns % _ACK_TURNS:
                acknowledges = True
                hops |= dict.fromkeys(self.neighbours)
        for hop in sorted(hops) if len(hops) > 1 else hops:
            written = node.output(hop, acknowledges)
            if written:
                self._network.send(self.name, hop, written)
        timer_s = node.next_timer()
        if timer_s < self._timer_s:
            self._timer_s = timer_s
            self.later(timer_s, TIMERS, self._timer, timer_s)

    def messages(self) -> dict[int, int]:
        """Returns the messages by kind that the broker has sent, or would have over links that were down."""
        live = self._counted(self.node.accounts) if self.node is not None else [0, 0, 0]
        kinds = (NOTIFICATION, RETRANSMISSION, SUBSCRIPTION)
        return {kind: before + now for kind, before, now in zip(kinds, self._sent, live, strict=True)}

    def _counted(self, accounts: NodeAccounts) -> list[int]:
        hops = accounts.hops.values()
        first, again = sum(hop.transmitted for hop in hops), sum(hop.retransmitted for hop in hops)
        return [first, again, accounts.subscriptions_lost]

    def _timer(self, timer_s: float) -> None:
        if self._timer_s == timer_s:
            self._timer_s = inf
            self.up.tick(self.clock.now)
            self.end_turn()
