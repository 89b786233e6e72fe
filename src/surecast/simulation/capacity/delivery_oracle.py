"""An oracle that knows all subscriptions at once, beside the brokers that learn of them by messages.

A subscription is settled once every change that could stand in for it has gone as far as it goes: under covering and
merging a subscription stops where another one speaks for it, which may still be on its way. Each subscriber with a
settled subscription that matches an event, and that it does not take back before the event has arrived everywhere,
must get it exactly once; nobody gets it twice, or without a matching subscription in place.
"""

from __future__ import annotations

from collections import Counter, deque

from surecast.protocol.demand import JointFilter
from surecast.protocol.filters import Event, Filter

__all__ = ["Oracle", "SimulatedSubscription"]


class SimulatedSubscription:
    """One subscription of a client (by index): issued, in place at its home broker, settled, taken back.

    `subscriber` is the name under which the home broker knows it. It is the client's, or one of its own where the
    client may ask for the same twice: a broker takes an equal filter of the same subscriber for the same subscription.
    """

    __slots__ = ("class_index", "client", "filter", "joint", "settled", "subscriber", "wanted")

    def __init__(self, client: int, class_index: int, filter: Filter, subscriber: str = ""):
        self.client = client
        self.subscriber = subscriber
        self.class_index = class_index
        self.filter = filter
        self.joint = JointFilter(filter.class_name or "#", filter.of_any_class())
        """The filter as brokers know it: classes are topics."""
        self.wanted = True
        self.settled = False


class _Publication:
    __slots__ = ("due", "event", "got")

    def __init__(self, event: Event, due: list[SimulatedSubscription]):
        self.event = event
        self.due = due
        self.got: Counter[int] = Counter()


class Oracle:
    """Follows all subscriptions and publications of a run. Its methods return what is wrong, empty if nothing is."""

    def __init__(self) -> None:
        self.checked = 0
        self._in_place: dict[int, set[SimulatedSubscription]] = {}
        self._changes: dict[int, SimulatedSubscription | None] = {}
        self._next = 0
        self._done: deque[tuple[int, SimulatedSubscription]] = deque()
        self._publications: dict[int, _Publication] = {}
        self._of_class: dict[int, set[SimulatedSubscription]] = {}

    def installed(self, subscription: SimulatedSubscription) -> None:
        """A subscription is in place everywhere from the start."""
        subscription.settled = True
        self.in_place(subscription)
        self._of_class.setdefault(subscription.class_index, set()).add(subscription)

    def changes(self, subscription: SimulatedSubscription, *, removed: bool) -> int:
        """A client issues a subscription or takes it back; the number of the change."""
        if removed:
            subscription.wanted = False
            self._of_class.get(subscription.class_index, set()).discard(subscription)
        else:
            self._of_class.setdefault(subscription.class_index, set()).add(subscription)
        self._next += 1
        self._changes[self._next] = None if removed else subscription
        return self._next

    def in_place(self, subscription: SimulatedSubscription) -> None:
        """The home broker took a subscription in."""
        self._in_place.setdefault(subscription.client, set()).add(subscription)

    def out_of_place(self, subscription: SimulatedSubscription) -> None:
        """The home broker took a subscription out."""
        self._in_place[subscription.client].discard(subscription)

    def change_ended(self, number: int) -> None:
        """No message that a change caused is under way any more."""
        subscription = self._changes.pop(number)
        if subscription is not None:
            self._done.append((self._next, subscription))
        oldest = next(iter(self._changes), self._next + 1)  # in the order of their numbers
        while self._done and self._done[0][0] < oldest:
            self._done.popleft()[1].settled = True

    def published(self, number: int, class_index: int, event: Event) -> None:
        """A client publishes an event."""
        subscriptions = self._of_class.get(class_index, ())
        due = [
            subscription
            for subscription in subscriptions
            if subscription.settled and subscription.filter.matches(event)
        ]
        self._publications[number] = _Publication(event, due)

    def delivered(self, number: int, client: int) -> str:
        """A client gets an event."""
        publication = self._publications[number]
        publication.got[client] += 1
        if publication.got[client] > 1:
            return "gets an event twice"
        if not any(subscription.filter.matches(publication.event) for subscription in self._in_place.get(client, ())):
            return "gets an event that it has no subscription for"
        return ""

    def event_ended(self, number: int) -> list[int]:
        """No copy of an event is under way any more: which clients it should have reached, and did not."""
        publication = self._publications.pop(number)
        due = {subscription.client for subscription in publication.due if subscription.wanted}
        self.checked += len(due)
        return sorted(due - set(publication.got))
