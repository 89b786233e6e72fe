"""The subscribers of a topic by what has to be done for them: targets, groups that get equal bytes, and fan-outs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.message import Message
from surecast.protocol.broker.session import Session, Subscription

__all__ = ["FanKey", "FanOut", "Group", "Target"]


class Target:
    """A session that wants a topic: what its subscriptions give together (the highest QoS, all identifiers).

    `share` is the key of a shared subscription, which is alone here. `plain` says that this is so for every message;
    otherwise `chosen` must look at the message.
    """

    __slots__ = ("as_published", "identifiers", "plain", "qos", "session", "share", "subscriptions")

    def __init__(self, session: Session, subscriptions: list[Subscription]):
        self.session = session
        self.subscriptions = subscriptions
        self.share = subscriptions[0].key if subscriptions[0].share else ""
        self.plain = not any(s.no_local or s.content is not None for s in subscriptions)
        self._combine(subscriptions)

    def _combine(self, subscriptions: list[Subscription]) -> None:
        self.qos = max(s.qos for s in subscriptions)
        self.as_published = any(s.retain_as_published for s in subscriptions)
        self.identifiers = tuple(s.identifier for s in subscriptions if s.identifier)

    def chosen(self, message: Message, wants: Callable[[Subscription, Message], bool]) -> Target | None:
        """This target for one message: without the subscriptions that exclude it, None if all do."""
        if self.plain:
            return self
        local = message.publisher == self.session.key
        kept = [s for s in self.subscriptions if not (local and s.no_local) and wants(s, message)]
        return Target(self.session, kept) if kept else None


class Group:
    """Sessions whose connections get the same bytes of messages, at QoS 1 but for packet identifiers. At QoS 0, `count`
    messages went to each and are not in their accounts yet.

    The connections are those of this replica; the bytes of the others are made where they are.
    """

    __slots__ = ("appends", "bytes_max", "connections", "count", "identifiers", "targets", "version_5")

    def __init__(self, version_5: bool, identifiers: tuple[int, ...]):
        self.version_5 = version_5
        self.identifiers = identifiers
        self.connections: list[Connection] = []
        self.targets: list[Target] = []
        self.appends: list[Callable[[bytes], None]] = []
        self.bytes_max = 1 << 62
        self.count = 0

    def add(self, target: Target, connection: Connection) -> None:
        """Takes a connection in."""
        self.targets.append(target)
        if not connection.is_elsewhere:
            self.connections.append(connection)
            self.appends.append(connection.out.append)
        self.bytes_max = min(self.bytes_max, connection.packet_bytes_max)
        target.session.groups.add(self)

    def settle(self) -> None:
        """Enters what was sent into the accounts of the sessions."""
        if self.count:
            for target in self.targets:
                accounts = target.session.accounts
                accounts.matched += self.count
                accounts.delivered += self.count
            self.count = 0


FanKey = tuple[int, tuple[tuple[Session, bool, tuple[int, ...]], ...]]
"""The common part of fan-outs of equal use."""


class FanOut:
    """The subscribers of plain messages, published at QoS 0 or 1 and not retained, on topics that have the same ones.

    All of one of the `groups` get the same bytes, at QoS 0. The sessions of the groups `direct` get messages at QoS 1
    and end with their connection, so that nothing but sizes need be kept of what they get; of `kept` there are entries
    for each message.
    All others are in `rest` and get one message after the other. `targets` counts all. `is_whole` is False where
    messages must be taken one by one, because of shared subscriptions, or of somebody who is told of each. `quick` is
    the only group, where there is nothing else. `uses` counts the topics that share this one.
    """

    __slots__ = ("direct", "groups", "is_whole", "kept", "key", "quick", "rest", "targets", "uses")

    def __init__(self, key: FanKey | None, is_whole: bool = True):
        self.key = key
        self.is_whole = is_whole
        self.groups: list[Group] = []
        self.quick: Group | None = None
        self.direct: list[Group] = []
        self.kept: list[Target] = []
        self.rest: list[Target] = []
        self.targets = 0
        self.uses = 0

    def add(self, target: Target, qos: int) -> None:
        """Takes in who gets messages that were published at this QoS."""
        session, connection = target.session, target.session.connection
        self.targets += 1
        if qos and target.qos:
            if (
                connection is not None
                and not session.lifetime_s
                and not connection.aliases_max
                and not (connection.version_5 and target.identifiers)
            ):
                _join(self.direct, target, connection, ())
            else:
                self.kept.append(target)
            return
        if connection is None or connection.congested or connection.aliases_max or not target.plain:
            self.rest.append(target)
            return
        _join(self.groups, target, connection, target.identifiers if connection.version_5 else ())

    def finish(self, qos: int) -> None:
        """Finds out whether messages of this QoS, as they came, for one group are all that is to be done."""
        if not qos and len(self.groups) == 1 and not (self.rest or self.groups[0].identifiers):
            self.quick = self.groups[0]

    def has(self, session: Session) -> bool:
        """Returns whether a session is among those that get the messages."""
        return not session.groups.isdisjoint(chain(self.groups, self.direct)) or any(
            target.session is session for target in chain(self.kept, self.rest)
        )

    def settle(self) -> None:
        """Enters what was sent into the accounts of the sessions."""
        for group in self.groups:
            group.settle()


def _join(groups: list[Group], target: Target, connection: Connection, identifiers: tuple[int, ...]) -> None:
    """Adds a target to the group of its kind, which may be new."""
    for group in groups:
        if group.version_5 is connection.version_5 and group.identifiers == identifiers:
            break
    else:
        group = Group(connection.version_5, identifiers)
        groups.append(group)
    group.add(target, connection)
