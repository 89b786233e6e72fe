"""The ways of events around neighbours that are down, back and behind, or silent.

Events in custody for such a neighbour go on waiting for it. What goes around it goes past it, to the next brokers on
the tree that can be reached, or to the neighbour itself by another way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surecast.protocol.overlay.custody import Custody, HeldBatch
from surecast.protocol.overlay.node_accounts import HopAccounts
from surecast.protocol.overlay.node_links import NodeLinks, NodeSettings
from surecast.protocol.overlay.node_shares import NodeShares
from surecast.protocol.overlay.overlay_frames import Detoured, Events
from surecast.protocol.overlay.overlay_plan import SchemeParts
from surecast.protocol.overlay.overlay_view import OverlayView
from surecast.protocol.overlay.returning import AwaitedAcks, ReturningNeighbours

__all__ = ["NodeDetours"]


class NodeDetours:
    """Sends events of one broker around its neighbours. `behind` are those with links that are up, around which events
    go all the same: they are back, or silent."""

    def __init__(
        self,
        name: str,
        parts: Sequence[SchemeParts],
        settings: NodeSettings,
        links: NodeLinks,
        view: OverlayView,
        custody: Custody,
        accounts: Mapping[str, HopAccounts],
        shares: NodeShares,
    ):
        self._name = name
        self._shares = shares
        self._parts = parts
        self._is_used = any(each.detours for each in parts)
        self._reconnect_s = settings.reconnect_s
        self._links = links
        self._view = view
        self._custody = custody
        self._accounts = accounts
        self.behind = ReturningNeighbours(custody)
        self.awaited = AwaitedAcks(custody, settings.ack_wait_s if self._is_used else 0.0)
        self._unreached: dict[str, None] = {}
        """The neighbours that are down, and to which no other way led when links were last looked at."""
        self._past_until_s: dict[str, float] = {}
        """The neighbours that are down and past which events go although others reach them, with the time until which
        they do: their own link may come up again, or the others may not have noticed yet what was noticed here."""
        self._silent: dict[str, None] = {}
        """The neighbours that were late with an acknowledgement and have not caught up. They may be dead, or only the
        link: events go past them, and to them by other ways."""

    # Links

    def connected(self, hop: str) -> None:
        """The link to a neighbour is up."""
        self._unreached.pop(hop, None)
        self._past_until_s.pop(hop, None)
        self._silent.pop(hop, None)

    def returned(self, hop: str, now: float, *, knows_demand: bool) -> None:
        """The link to a neighbour is up, and what waited for it is on the link."""
        self.behind.begin(hop, now)
        self.go_on(hop, now, knows_demand=knows_demand)
        self.look_around(now)

    def disconnected(self, hop: str, now: float) -> None:
        """The link to a neighbour is down."""
        self.behind.end(hop)
        self.awaited.forget(hop)
        if hop in self._silent:
            self._past_until_s[hop] = now + self._reconnect_s

    def go_on(self, hop: str, now: float, *, knows_demand: bool) -> None:
        """Looks whether a neighbour that is behind has caught up; until then events go around it as well."""
        self.behind.go_on(hop, now, knows_demand=knows_demand, usual_s=self.awaited.allowed_s(hop))
        if hop not in self.behind:
            self._silent.pop(hop, None)

    def look_around(self, now: float) -> None:
        """The states of links have changed: there may be a way now for what had none."""
        for hop in self._links.sessions:
            if not self._links.is_up(hop):
                self.look_for(hop, now)
            elif hop in self._silent:
                self._send_all(hop)

    def look_for(self, hop: str, now: float) -> None:
        """Sends what is in custody for a neighbour that is down around it, on ways that there may be now.

        One that nobody reached was down, or frozen. When it is back its own link is made in a moment, so that events
        go on to those behind it until then: the neighbour would have them wait behind all that it missed."""
        if self._view.path_to(hop) is None:
            self._unreached[hop] = None
            self._past_until_s.pop(hop, None)
            self._silent.pop(hop, None)
        elif hop in self._unreached:
            del self._unreached[hop]
            if self._reconnect_s:
                self._past_until_s[hop] = now + self._reconnect_s
        self._send_all(hop)

    # Time

    def next_timer(self) -> float:
        """Returns when `tick` has something to do."""
        late_s = self.awaited.next_timer()
        return min(late_s, *self._past_until_s.values()) if self._past_until_s else late_s

    def tick(self, now: float) -> None:
        """Does what is due."""
        for hop in [hop for hop, until_s in self._past_until_s.items() if now >= until_s]:
            del self._past_until_s[hop]
            self._silent.pop(hop, None)
            self.look_for(hop, now)
        for hop in self.awaited.late(now):
            # Where events wait for credit the neighbour has its hands full, and acknowledges late for that.
            is_full = any(map(self._links.sessions[hop].waiting, self._links.trees_of(hop)))
            if hop not in self.behind and not is_full:
                self.behind.begin(hop, now)
                self._silent[hop] = None
                self._send_all(hop)

    # Events

    def took(self, held: HeldBatch, hop: str, now: float) -> None:
        """Events in custody were handed to the link to a neighbour."""
        self.awaited.sent(hop, held.batch.first, now)
        if hop in self.behind:
            self.send_held(held, hop)

    def send_held(self, held: HeldBatch, hop: str) -> None:
        """Sends events in custody around a neighbour that is down or behind, to each broker once; they go on waiting
        for it."""
        if self._parts[held.tree].detours and (hop in self.behind or not self._links.is_up(hop)):
            self.send(hop, Events(held.tree, held.batch.at_most(held.hops[hop]), self._name), held.went)

    def send(self, hop: str, events: Events, went: set[str]) -> bool:
        """Sends events around a neighbour, to those to whom they never went; returns whether there is a way."""
        is_passed_over = self._links.is_up(hop) or hop in self._past_until_s
        ways = self._view.detours(events.tree, hop, is_passed_over=is_passed_over)
        if hop in self._silent and (around := self._view.path_around(hop)) is not None:
            ways = [*ways, (around, self._name)]
        batch = events.batch
        if batch.share:  # it goes to one broker, and only who is on the way there can help
            ways = [way for way in ways if self._shares.is_on_way(events.tree, batch.at, way[0][-1])]
        for path, via in ways:
            if path[-1] in went:
                continue
            if self.put(path[0], Detoured(self._name, path[1:], via, events), events, "no-credit-for-detour"):
                went.add(path[-1])
        return bool(ways)

    def put(self, hop: str, detour: Detoured, events: Events, reason: str) -> bool:
        """Puts events that go around a failure on the link to a neighbour; where it has no room they are dropped, for
        this reason."""
        accounts, count = self._accounts[hop], events.batch.count
        accounts.offered += count
        takes = self._links.put_detour(hop, detour)
        if takes:
            accounts.on_link += count
        else:
            accounts.dropped[reason] += count
        return takes

    def _send_all(self, hop: str) -> None:
        for held in self._custody.waiting_for(hop) if self._is_used else ():
            self.send_held(held, hop)
