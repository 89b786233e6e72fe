"""Publications and subscriptions of the clients of a broker, collected for whoever carries them to other brokers.

A broker that stands alone has none, and pays one comparison for each batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.message import EventName, Message
from surecast.protocol.broker.session import Seen, Session, Subscription
from surecast.protocol.mqtt import Connect, PublishBatch

__all__ = ["LocalTraffic", "Publication"]


class Publication(NamedTuple):
    """Messages that a client published and that were taken; `publisher` is the key of its session, and
    `event` the identity of the first of a batch, where sessions move."""

    publisher: str
    messages: PublishBatch | Message
    event: EventName | None = None


class LocalTraffic:
    """The publications and the changes of subscriptions since the last turn.

    Topics that begin with `$` are the broker's own: they are left out.
    """

    def __init__(self) -> None:
        self.members: dict[Session, None] = {}
        """The sessions whose shared subscriptions have changed, or whose clients have come or gone."""
        self.left: list[tuple[str, Message]] = []
        """The messages that members of shared subscriptions have left behind, each with the subscription as clients
        write it, in order."""
        self._sharing: Counter[Session] = Counter()
        self.publications: list[Publication] = []
        self.subscriptions: list[tuple[Subscription, int]] = []
        """Subscriptions that began (1) and ended (-1), in order."""
        self.sessions: dict[str, None] | None = None
        """The keys of sessions that began, ended or were connected to; None where nobody asks."""
        self.elsewhere: Callable[[str, Connect, float], str] | None = None
        """Returns where a client that wants to connect should go instead; nothing if it is right here. The first
        argument is its user."""
        self.waits: Callable[[Connection, Connect, float], bool] | None = None
        """Tells whether a client that wants to connect has to wait, since its session comes from another broker."""
        self.take_events: Callable[[int], EventName] | None = None
        """Returns the identity of the first of some new publications; None where sessions do not move."""
        self.make_seen: Callable[[], Seen] | None = None
        """Returns an empty memory for a session that may move; None where sessions do not."""
        self.refuses: Callable[[str], bool] | None = None
        """Tells whether messages of QoS 1 and 2 to a topic are refused, where that may be."""

    def publish(
        self, publisher: str, batch: PublishBatch, begin: int, stop: int, event: EventName | None = None
    ) -> None:
        """Notes some messages of a batch; `event` is the identity of the first of the whole batch."""
        first = event.plus(begin) if event is not None else None
        self.publications.append(Publication(publisher, batch.part(begin, stop), first))

    def publish_message(self, message: Message) -> None:
        """Notes a message."""
        if not message.topic.startswith("$"):
            self.publications.append(Publication(message.publisher, message, message.event))

    def shift(self, session: Session, subscription: Subscription, by: int) -> None:
        """Notes that a subscription of a session began or ended."""
        if subscription.filter.startswith("$"):
            return
        if not subscription.share:
            self.subscriptions.append((subscription, by))
            return
        self.members[session] = None
        self._sharing[session] += by
        if not self._sharing[session]:
            del self._sharing[session]

    @property
    def is_pending(self) -> bool:
        """Returns whether anything was noted since the last turn."""
        return bool(self.publications or self.subscriptions or self.members or self.left or self.sessions)

    def forget(self) -> None:
        """Forgets what was noted since the last turn: it is known already."""
        self.publications.clear()
        self.subscriptions.clear()
        self.members.clear()
        self.left.clear()

    def note(self, session: Session) -> None:
        """Notes that a session began or ended, or that its client connected."""
        if self.sessions is not None:
            self.sessions[session.key] = None

    def changed(self, session: Session) -> None:
        """Notes that the client of a session has come or gone."""
        if session in self._sharing:
            self.members[session] = None
