"""The subscribers of each topic: subscriptions are looked up once per topic and kept ready for use.

A `Route` lists, for one topic, the sessions that want it; a `FanOut` says what to do with plain messages for them.
Topics with the same subscribers share one, so that messages to several of them are passed on in one piece. Everything
here is a cache of the topic tree: a subscription, a connection or a disconnection throws away what it touches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final

from surecast.protocol.broker.broker_settings import BrokerSettings
from surecast.protocol.broker.content import Contents
from surecast.protocol.broker.fan_out import FanKey, FanOut, Target
from surecast.protocol.broker.local_traffic import LocalTraffic
from surecast.protocol.broker.message import Message, text_field
from surecast.protocol.broker.quotas import Quotas, shape_of
from surecast.protocol.broker.session import Session, Subscription
from surecast.protocol.filters import Filter
from surecast.protocol.mqtt import TopicTree, match, parse_shared
from surecast.protocol.mqtt.topics import has_wildcard

__all__ = ["Permits", "Route", "Routes", "Share", "Tap", "Watch"]

Tap = Callable[[Message], None]
"""Is told of every message to some topics, after it has gone to the subscribers."""

Watch = Callable[[str, bool], None]
"""Is told of a filter, and whether it has subscriptions."""

Permits = Callable[[Session, str], bool]
"""Tells whether a session may get the messages of a topic."""

_ROUTES_MAX: Final = 100_000
_SCAN_MAX: Final = 1_000
_SCANS_MAX: Final = 20
_TOPIC_MAX: Final = 256
_PERMITTED_MAX: Final = 100_000


class Share:
    """A shared subscription: each message goes to one of its members, in turn, to a connected one if there is one.

    `turn` is the place among the members of the one that comes next. Where `permits` is set, a member whose session may
    not get a message's topic is passed over.
    """

    __slots__ = ("_members", "_order", "permits", "turn")

    def __init__(self, permits: Permits | None = None) -> None:
        self._members: dict[Session, Target] = {}
        self._order: tuple[Target, ...] = ()
        self.permits = permits
        self.turn = 0

    def __bool__(self) -> bool:
        return bool(self._members)

    @property
    def order(self) -> tuple[Target, ...]:
        """The members, in the order in which they came."""
        return self._order

    @property
    def members(self) -> tuple[Session, ...]:
        """The members, in turn."""
        return tuple(self._members)

    def add(self, session: Session, subscription: Subscription) -> None:
        """Takes a member in, or changes its subscription; it keeps its place."""
        self._members[session] = Target(session, [subscription])
        self._order = tuple(self._members.values())

    def remove(self, session: Session) -> None:
        """Lets a member go."""
        at = next(i for i, target in enumerate(self._order) if target.session is session)
        del self._members[session]
        self._order = tuple(self._members.values())
        self.turn -= at < self.turn

    def pick(self, message: Message, wants: Callable[[Subscription, Message], bool]) -> Target | None:
        """The member whose turn it is; the turn passes to the next."""
        members, permits = self._order, self.permits
        count = len(members)
        first = -1
        for step in range(count):
            at = (self.turn + step) % count
            target = members[at]
            if not target.plain and not wants(target.subscriptions[0], message):
                continue
            if permits is not None and not permits(target.session, message.topic):
                continue
            connection = target.session.connection
            if connection is not None and not connection.congested:
                self.turn = (at + 1) % count
                return target
            if first < 0:
                first = at
        if first < 0:
            return None
        self.turn = (first + 1) % count
        return members[first]


class Route:
    """The targets of one topic. `plain` says that every message goes to all of them, and to nobody else."""

    __slots__ = ("plain", "shares", "taps", "targets", "topic", "topic_field")

    def __init__(self, topic: str, targets: list[Target], shares: list[Share], taps: list[Tap]):
        self.topic = topic
        self.topic_field = text_field(topic)
        self.targets = targets
        self.shares = shares
        self.taps = taps
        self.plain = not shares and not taps and all(target.plain for target in targets)

    def receivers(self, message: Message, wants: Callable[[Subscription, Message], bool]) -> list[Target]:
        """The targets of one message; of every shared subscription the member whose turn it is, and the turn passes."""
        found = [target.chosen(message, wants) for target in self.targets]
        found += [share.pick(message, wants) for share in self.shares]
        return [target for target in found if target is not None]

    def fan_key(self, qos: int) -> FanKey | None:
        """Returns what fan-outs of equal use have in common; None where there is none of equal use."""
        if not self.plain:
            return None
        return qos, tuple((target.session, target.qos > 0, target.identifiers) for target in self.targets)


class Routes:
    """All subscriptions of a broker, and the routes made from them so far."""

    def __init__(self, settings: BrokerSettings, traffic: LocalTraffic | None = None) -> None:
        self.traffic = traffic
        self._tree: TopicTree[Session | str, tuple[Session, Subscription] | Share] = TopicTree(
            settings.topic_levels_max, 0
        )
        self._shares: dict[tuple[str, str], Share] = {}
        self._routes: dict[str, Route] = {}
        self.fans: tuple[dict[str, FanOut], dict[str, FanOut]] = ({}, {})
        """The fan-outs made so far, by the QoS of messages and by topic."""
        self._shared_fans: dict[FanKey, FanOut] = {}
        self._taps: list[tuple[str, Tap]] = []
        self._watches: list[tuple[str, Watch]] = []
        self._watched: Counter[tuple[str, str]] = Counter()
        self._scanned = 0
        self._permits: Permits | None = None
        self._permitted: dict[tuple[str, str], bool] = {}
        self.contents = Contents()
        self.count = 0
        self.quotas = Quotas(settings)

    def tap(self, filter: str, tap: Tap) -> None:
        """From now on somebody is told of the messages to some topics; these are taken one by one."""
        self._taps.append((filter, tap))
        self._forget(filter)

    def watch(self, prefix: str, watch: Watch) -> None:
        """From now on somebody is told of the filters that begin with a prefix: of the first subscription to one, and
        when the last has ended."""
        self._watches.append((prefix, watch))

    def check_deliveries(self, permits: Permits | None) -> None:
        """From now on a session gets only the messages that it may have; None lets it have all that it subscribed to.

        What is permitted is asked once for a session and a topic, when a route is made, until this is called again.
        """
        if permits is None and self._permits is None:
            return
        self._permits = permits
        self._permitted.clear()
        for share in self._shares.values():
            share.permits = None if permits is None else self.permits
        self._drop(list(self._routes.values()))

    def permits(self, session: Session, topic: str) -> bool:
        """Returns whether a session may get the messages of a topic that it subscribed to."""
        if self._permits is None:
            return True
        key = (session.key, topic)
        permitted = self._permitted.get(key)
        if permitted is None:
            permitted = self._permits(session, topic)
            if len(topic) <= _TOPIC_MAX:
                if len(self._permitted) >= _PERMITTED_MAX:
                    self._permitted.clear()
                self._permitted[key] = permitted
        return permitted

    def find(self, topic: str) -> Route:
        """The route of a topic."""
        route = self._routes.get(topic)
        return route if route is not None else self._make(topic)

    def fan(self, topic: str, qos: int) -> FanOut:
        """Returns the subscribers of plain messages to a topic, published at QoS 0 or 1."""
        fan = self.fans[qos].get(topic)
        return fan if fan is not None else self._make_fan(self.find(topic), qos)

    def add(self, session: Session, subscription: Subscription) -> bool:
        """Adds a subscription or replaces one with the same filter; tells whether it is new."""
        before = session.subscriptions.get(subscription.key)
        session.subscriptions[subscription.key] = subscription
        if before is None:
            self.count += 1
            self.quotas.subscribed(session, 1)
            if shape := shape_of(subscription.filter, subscription.share):
                session.shapes[shape] += 1
            self._tell_watches(subscription.filter, 1)
        if subscription.content is not None:
            self._file(session, subscription.content)
        if before is not None and before.content is not None:
            self._unfile(session, before.content)
        if self.traffic is not None:
            self.traffic.shift(session, subscription, 1)
            if before is not None:
                self.traffic.shift(session, before, -1)
        if subscription.share:
            key = (subscription.share, subscription.filter)
            share = self._shares.get(key)
            if share is None:
                share = self._shares[key] = Share(None if self._permits is None else self.permits)
                self._tree.subscribe(subscription.filter, subscription.share, share)
                self._forget(subscription.filter)
            share.add(session, subscription)
        elif subscription != before:
            self._tree.subscribe(subscription.filter, session, (session, subscription))
            self._forget(subscription.filter)
        return before is None

    def remove(self, session: Session, key: str) -> Subscription | None:
        """Takes a subscription back; None if there is none with this filter."""
        subscription = session.subscriptions.pop(key, None)
        if subscription is not None:
            self._take(session, subscription)
        return subscription

    def changed(self, session: Session) -> None:
        """A session was connected or disconnected, or its connection became slow or fast: groups are made anew."""
        if self.traffic is not None:
            self.traffic.changed(session)
        for route in session.routes:
            self._scatter(route)

    def remove_all(self, session: Session) -> None:
        """Takes all subscriptions of a session back."""
        self._drop(list(session.routes))
        for key in list(session.subscriptions):
            self.remove(session, key)

    def settle(self) -> None:
        """Brings the accounts of all sessions up to date."""
        for fans in self.fans:
            for fan in fans.values():
                fan.settle()

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes.values())

    def filed(self) -> list[tuple[str, Session | Share, str]]:
        """Returns filter, subscriber and name of the share of all that is filed, sorted by filter, then in order."""
        entries: list[tuple[str, Session | Share, str]] = [
            (wanted, value, str(key)) if isinstance(value, Share) else (wanted, value[0], "")
            for wanted, key, value in self._tree
        ]
        return sorted(entries, key=lambda entry: entry[0])

    def share(self, name: str, filter: str) -> Share:
        """A shared subscription that has members."""
        return self._shares[name, filter]

    def find_share(self, name: str, filter: str) -> Share | None:
        """Returns a shared subscription; None where nobody is a member of it."""
        return self._shares.get((name, filter))

    def next_member(self, key: str, message: Message) -> Target | None:
        """Returns the member of a shared subscription that is to get a message, None if there is none here."""
        found = parse_shared(key)
        share = self._shares.get(found) if found is not None else None
        return share.pick(message, self.contents.wants) if share is not None else None

    def _take(self, session: Session, subscription: Subscription) -> None:
        self.count -= 1
        self.quotas.subscribed(session, -1)
        if shape := shape_of(subscription.filter, subscription.share):
            session.shapes[shape] -= 1
            if not session.shapes[shape]:
                del session.shapes[shape]
        self._tell_watches(subscription.filter, -1)
        if subscription.content is not None:
            self._unfile(session, subscription.content)
        if self.traffic is not None:
            self.traffic.shift(session, subscription, -1)
        if subscription.share:
            key = (subscription.share, subscription.filter)
            share = self._shares[key]
            share.remove(session)
            if not share:
                del self._shares[key]
                self._tree.unsubscribe(subscription.filter, subscription.share)
                self._forget(subscription.filter)
        else:
            self._tree.unsubscribe(subscription.filter, session)
            # Only routes that lead to the session can change.
            self._forget(subscription.filter, session.routes)

    def _tell_watches(self, filter: str, by: int) -> None:
        for prefix, watch in self._watches:
            if filter.startswith(prefix):
                before = self._watched[prefix, filter]
                self._watched[prefix, filter] = before + by
                if not before or not before + by:
                    watch(filter, bool(before + by))
                if not before + by:
                    del self._watched[prefix, filter]

    def _file(self, session: Session, content: Filter) -> None:
        session.filter_constraints += len(content.constraints)
        self.contents.add(content)

    def _unfile(self, session: Session, content: Filter) -> None:
        session.filter_constraints -= len(content.constraints)
        self.contents.remove(content)

    def _make(self, topic: str) -> Route:
        by_session: dict[Session, list[Subscription]] = {}
        shares: list[Share] = []
        # Who of a shared subscription gets a message is decided among all brokers of an overlay, once it is taken.
        has_shares = self.traffic is None or topic.startswith("$")
        for found in self._tree.match(topic):
            if isinstance(found, Share):
                shares += [found] if has_shares else []
            elif self._permits is None or self.permits(found[0], topic):
                by_session.setdefault(found[0], []).append(found[1])
        taps = [tap for wanted, tap in self._taps if match(wanted, topic)]
        route = Route(topic, [Target(session, chosen) for session, chosen in by_session.items()], shares, taps)
        if len(topic) > _TOPIC_MAX:
            # Long topics would fill the memory; they are rare, and looked up each time.
            return route
        for session in by_session:
            session.routes.add(route)
        if len(self._routes) >= _ROUTES_MAX:
            self._drop(list(self._routes.values()))
        self._routes[topic] = route
        return route

    def _make_fan(self, route: Route, qos: int) -> FanOut:
        is_whole = route.plain if qos else not (route.taps or route.shares)
        if not is_whole or route.topic not in self._routes:
            fan = FanOut(None, is_whole)
            fan.rest += route.targets
            fan.targets = len(fan.rest)
            if route.topic in self._routes:
                self.fans[qos][route.topic] = fan
            return fan
        key = route.fan_key(qos)
        shared = self._shared_fans.get(key) if key is not None else None
        fan = shared if shared is not None else FanOut(key)
        if shared is None:
            for target in route.targets:
                fan.add(target, qos)
            fan.finish(qos)
            if key is not None:
                self._shared_fans[key] = fan
        fan.uses += 1
        self.fans[qos][route.topic] = fan
        return fan

    def _scatter(self, route: Route) -> None:
        """Forgets the fan-outs of a route, after their counts are in the accounts."""
        for fans in self.fans:
            if route.topic not in fans:
                continue
            fan = fans.pop(route.topic)
            fan.settle()
            fan.uses -= 1
            if fan.uses <= 0:
                for group in (*fan.groups, *fan.direct):
                    for target in group.targets:
                        target.session.groups.discard(group)
                if fan.key is not None:
                    del self._shared_fans[fan.key]

    def _forget(self, filter: str, among: Collection[Route] | None = None) -> None:
        """Drops the routes that a filter touches; where that would be a long search, or one of many, all of them."""
        if not has_wildcard(filter):
            route = self._routes.get(filter)
            if route is not None:
                self._drop([route])
            return
        candidates = list(self._routes.values() if among is None else among)
        self._scanned += len(candidates)
        if len(candidates) <= _SCAN_MAX and self._scanned <= _SCANS_MAX * _SCAN_MAX:
            self._drop([route for route in candidates if match(filter, route.topic)])
        else:
            # To make a route costs about as much as to look at ten or twenty.
            self._drop(candidates)
            self._scanned = 0

    def _drop(self, routes: list[Route]) -> None:
        for route in routes:
            self._scatter(route)
            for target in route.targets:
                target.session.routes.discard(route)
            del self._routes[route.topic]
