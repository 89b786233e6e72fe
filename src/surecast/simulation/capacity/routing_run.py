"""One run: brokers that route by content, behind queues, in virtual time.

Every queue is served in order, so the time at which a message leaves is known when it comes: after the one before it,
and its own service. That is one step per queue and message, and none for the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from surecast.errors import OverloadError
from surecast.protocol.filters import Event
from surecast.scenario import Streams
from surecast.simulation.capacity.client_behaviour import SimulatedClient, times
from surecast.simulation.capacity.delivery_oracle import Oracle, SimulatedSubscription
from surecast.simulation.capacity.routed_brokers import Message, RoutedBroker, routed_brokers
from surecast.simulation.capacity.routing_plan import RoutingPlan, Settings
from surecast.simulation.capacity.run_sums import BINS, RunResult, RunSums, bin_of
from surecast.simulation.experiment.clock import NETWORK, Clock, SafetyError

__all__ = ["RoutingWorld", "simulate_run"]

_NOTIFICATION: Final = 0
_CONTROL: Final = 1
_FROM_CLIENT: Final = -1
_UNDER_WAY_MAX = 2_000_000
"""So many messages may be under way; a saturated system has ever more of them."""

_CHECK_EVERY = 1 << 16


class _Cause:
    """A publication, a subscription or an unsubscription, and how many messages it has under way."""

    __slots__ = ("class_index", "factor", "kind", "last_s", "number", "removes", "start_s", "under_way")

    def __init__(
        self, kind: int, class_index: int, factor: float, start_s: float, number: int, *, removes: bool = False
    ):
        self.kind = kind
        self.class_index = class_index
        self.factor = factor
        self.start_s = start_s
        self.number = number
        self.removes = removes
        self.under_way = 0
        self.last_s = -1.0


class _Carried:
    """A message on its way: over a directed link, or from a client to its home broker."""

    __slots__ = ("cause", "content", "link", "sent_s")

    def __init__(self, cause: _Cause, link: int, content: Message | Event | SimulatedSubscription, sent_s: float):
        self.cause = cause
        self.link = link
        self.content = content
        self.sent_s = sent_s


def simulate_run(plan: RoutingPlan, settings: Settings, algorithm: str, run: int) -> RunResult:
    """Run number `run` under one algorithm: it depends on the seed and its number only.

    Clients do the same under every algorithm. The run begins in the stationary state of the subscriptions, all of them
    known wherever they have to be, and with empty queues.
    """
    return RoutingWorld(plan, settings, algorithm, run).simulate()


class RoutingWorld:
    """One run: its brokers, queues and clients, and what was counted."""

    def __init__(self, plan: RoutingPlan, settings: Settings, algorithm: str, run: int):
        self.plan, self.settings, self.algorithm, self.run = plan, settings, algorithm, run
        self.clock = Clock()
        self._clock_at = self.clock.at  # avoids an attribute lookup on the hot path
        self.oracle = Oracle() if settings.check else None
        self._issued = self._made = self._handled = 0
        self._brokers = routed_brokers(plan, algorithm)
        self._sender = [plan.names[broker] for broker in plan.tail]
        workload = plan.workload
        self._names = workload.clients
        self._client_of = {name: i for i, name in enumerate(workload.clients)}
        self._factor = [each.service_factor for each in workload.classes]
        streams = Streams(settings.seed)
        self._clients = [SimulatedClient(plan, i, streams, run) for i in range(len(workload.clients))]
        self._serves = [q.notification is not None or q.control is not None for q in plan.queues]
        self._draw = [_services(plan, q, streams, run) for q in range(len(plan.queues))]
        self._free_s = [0.0] * len(plan.queues)
        self.begin()

    def simulate(self) -> RunResult:
        """Runs from beginning to end."""
        self.install()
        self.advance(self.settings.warm_up_s)
        self.begin()
        self.advance(self.settings.warm_up_s + self.settings.duration_s)
        return self.end()

    def begin(self) -> None:
        """Counts from now on."""
        plan = self.plan
        rows = len(self._names) + 2 + len(self._factor)
        self._sums = RunSums(2 * plan.links, plan.brokers, len(plan.queues), rows)
        self._backlog_s = self._backlog()
        self._changed_s = [self.clock.now] * plan.brokers
        self._entries = [(broker.local_entries, broker.remote_entries) for broker in self._brokers]

    def install(self) -> None:
        """Puts the subscriptions of the stationary state in place, and lets all clients begin."""
        for client in self._clients:
            home = self.plan.workload.client_home[client.index]
            for subscription, left_s in client.first_subscriptions():
                waiting = deque(self._brokers[home].subscribe(self._subscriber(subscription), subscription.joint))
                while waiting:
                    link, message = waiting.popleft()
                    waiting += self._brokers[self.plan.head[link]].handle(0.0, message, self._sender[link])[0]
                if self.oracle is not None:
                    self.oracle.installed(subscription)
                self._at(left_s, self._unsubscribe, subscription)
        for client in self._clients:
            self._next_subscription(0.0, client)
            self._next_publication(0.0, client)

    def advance(self, until_s: float) -> None:
        """Lets time pass."""
        while not self.clock.run(until_s, most=_CHECK_EVERY):
            self._refuse_overload()

    def end(self) -> RunResult:
        """Closes the accounts: every message made was handled, or is still on its way."""
        for broker in range(self.plan.brokers):
            self._count_entries(self.clock.now, broker)
        on_the_way = sum(isinstance(what, _Carried) for _, what, _ in self.clock.waiting())
        if self._made != self._handled + on_the_way:
            self._wrong(f"{self._made} messages, but {self._handled} were handled and {on_the_way} are on their way")
        work, left = self._sums.work_s, self._backlog()
        busy = [before + work[q] - left[q] for q, before in enumerate(self._backlog_s)]
        checked = 0 if self.oracle is None else self.oracle.checked
        return self._sums.result(self.settings.duration_s, busy, self.clock.steps, checked)

    def _at(self, time_s: float, step: Callable[..., None], what: object, where: int = 0) -> None:
        self._clock_at(time_s, NETWORK, step, time_s, what, where)

    def _backlog(self) -> list[float]:
        """The work that is left in each queue. A server is busy as long as it has some."""
        return [max(0.0, free_s - self.clock.now) for free_s in self._free_s]

    # What clients do

    def _next_subscription(self, now: float, client: SimulatedClient) -> None:
        following = client.next_subscription()
        if following is not None:
            self._at(now + following[0], self._subscribe, client, following[1])

    def _next_publication(self, now: float, client: SimulatedClient) -> None:
        following = client.next_publication()
        if following is not None:
            self._at(now + following[0], self._publish, client, following[1])

    def _subscribe(self, now: float, client: SimulatedClient, class_index: int) -> None:
        subscription, lifetime_s = client.subscription(class_index)
        number = 0 if self.oracle is None else self.oracle.changes(subscription, removed=False)
        self._issue(
            now, _Cause(_CONTROL, class_index, self._factor[class_index], now, number), client.index, subscription
        )
        self._at(now + lifetime_s, self._unsubscribe, subscription)
        self._next_subscription(now, client)

    def _unsubscribe(self, now: float, subscription: SimulatedSubscription, _: int) -> None:
        number = 0 if self.oracle is None else self.oracle.changes(subscription, removed=True)
        cause = _Cause(
            _CONTROL, subscription.class_index, self._factor[subscription.class_index], now, number, removes=True
        )
        self._issue(now, cause, subscription.client, subscription)

    def _publish(self, now: float, client: SimulatedClient, class_index: int) -> None:
        event = client.event(class_index)
        self._issued += 1
        if self.oracle is not None:
            self.oracle.published(self._issued, class_index, event)
        self._issue(
            now, _Cause(_NOTIFICATION, class_index, self._factor[class_index], now, self._issued), client.index, event
        )
        self._next_publication(now, client)

    def _issue(self, now: float, cause: _Cause, client: int, content: Event | SimulatedSubscription) -> None:
        cause.under_way += 1
        self._made += 1
        self._arrive(now, _Carried(cause, _FROM_CLIENT, content, now), self.plan.workload.client_home[client])

    # What becomes of messages

    def send(self, now: float, link: int, message: Message, cause: _Cause) -> None:
        """Sends a message of a broker over a directed link."""
        cause.under_way += 1
        self._made += 1
        self._sums.sent[cause.kind][link] += 1
        carried, lead_s = _Carried(cause, link, message, now), self.plan.lead_s[link]
        if not self.plan.stages[link]:
            self._clock_at(now + lead_s, NETWORK, self._arrive, now + lead_s, carried, self.plan.head[link])
        elif lead_s > 0:
            self._at(now + lead_s, self._pass, carried, 0)
        else:
            self._pass(now, carried, 0)

    def _pass(self, now: float, carried: _Carried, stage: int) -> None:
        """A message comes to a queue of the network."""
        link = carried.link
        stages = self.plan.stages[link]
        queue, after_s = stages[stage]
        there_s = self._leaves(now, queue, carried.cause) + after_s
        if stage + 1 < len(stages):
            self._clock_at(there_s, NETWORK, self._pass, there_s, carried, stage + 1)
        else:
            self._clock_at(there_s, NETWORK, self._arrive, there_s, carried, self.plan.head[link])

    def _arrive(self, now: float, carried: _Carried, broker: int) -> None:
        """A message comes to a broker."""
        sums, cause = self._sums, carried.cause
        sums.received[cause.kind][broker] += 1
        if carried.link >= 0:
            sums.arrived[carried.link] += 1
            sums.link_s[carried.link] += now - carried.sent_s
        if self._serves[broker]:
            leaves_s = self._leaves(now, broker, cause)
            self._clock_at(leaves_s, NETWORK, self._handle, leaves_s, carried, broker)
        else:
            self._handle(now, carried, broker)

    def _leaves(self, now: float, queue: int, cause: _Cause) -> float:
        """Puts a message into a queue now and returns the time at which it leaves."""
        sums = self._sums
        begins_s = self._free_s[queue]
        if begins_s > now:
            sums.waiting_s[queue] += begins_s - now
        else:
            begins_s = now
        service_s = cause.factor * self._draw[queue][cause.kind]()
        sums.served[queue] += 1
        sums.work_s[queue] += service_s
        leaves_s = self._free_s[queue] = begins_s + service_s
        return leaves_s

    def _handle(self, now: float, carried: _Carried, index: int) -> None:
        """A broker does what a message asks of it."""
        broker, cause, content = self._brokers[index], carried.cause, carried.content
        self._handled += 1
        subscribers: list[str] = []
        if isinstance(content, SimulatedSubscription):
            sent = self._client_change(broker, cause, content)
        elif isinstance(content, Event):
            sent, subscribers = broker.publish(now, content)
        else:
            sent, subscribers = broker.handle(now, content, self._sender[carried.link])
        if cause.kind == _CONTROL:
            self._count_entries(now, index)
            cause.last_s = now
        for link, message in sent:
            self.send(now, link, message, cause)
        if subscribers:
            self._deliver(now, self._receivers(subscribers), cause)
        cause.under_way -= 1
        if not cause.under_way:
            self._ended(cause)

    def _client_change(
        self, broker: RoutedBroker, cause: _Cause, subscription: SimulatedSubscription
    ) -> list[tuple[int, Message]]:
        if cause.removes:
            if self.oracle is not None:
                self.oracle.out_of_place(subscription)
            sent = broker.unsubscribe(subscription.subscriber, subscription.joint)
            if subscription.subscriber != self._names[subscription.client]:
                del self._client_of[subscription.subscriber]
            return sent
        if self.oracle is not None:
            self.oracle.in_place(subscription)
        return broker.subscribe(self._subscriber(subscription), subscription.joint)

    def _receivers(self, subscribers: list[str]) -> list[int]:
        """The clients behind subscribers; one that stands behind several of them gets an event once."""
        first: dict[int, str] = {}
        clients = [(self._client_of[name], name) for name in subscribers]
        return [client for client, name in clients if first.setdefault(client, name) == name]

    def _subscriber(self, subscription: SimulatedSubscription) -> str:
        """The name under which a broker knows a subscription; the client behind it is remembered."""
        self._client_of[subscription.subscriber] = subscription.client
        return subscription.subscriber

    def _deliver(self, now: float, clients: list[int], cause: _Cause) -> None:
        delay_s = now - cause.start_s
        sums, bin_index = self._sums, bin_of(delay_s)
        histogram, delays, total_s = sums.histogram, sums.delays, sums.delay_s
        for client in clients:
            key = client * BINS + bin_index
            histogram[key] = histogram.get(key, 0) + 1
            delays[client] += 1
            total_s[client] += delay_s
        sums.add_delay(len(self._names) + 2 + cause.class_index, delay_s, len(clients))
        cause.last_s = now
        if self.oracle is not None:
            for client in clients:
                wrong = self.oracle.delivered(cause.number, client)
                if wrong:
                    self._wrong(f"client {self._names[client]} {wrong}")

    def _ended(self, cause: _Cause) -> None:
        """Nothing that a client did is under way any more."""
        control = cause.kind == _CONTROL
        if cause.last_s >= 0 and not cause.removes:
            self._sums.add_delay(len(self._names) + control, cause.last_s - cause.start_s)
        if self.oracle is None:
            return
        if control:
            self.oracle.change_ended(cause.number)
            return
        for client in self.oracle.event_ended(cause.number):
            self._wrong(f"client {self._names[client]} did not get an event that it subscribed to long before")

    def _count_entries(self, now: float, broker: int) -> None:
        """Counts the entries that a broker had since the last change, as they were before it."""
        sums, since_s = self._sums, now - self._changed_s[broker]
        local, remote = self._entries[broker]
        sums.local_s[broker] += local * since_s
        sums.remote_s[broker] += remote * since_s
        self._changed_s[broker] = now
        node = self._brokers[broker]
        self._entries[broker] = (node.local_entries, node.remote_entries)

    def _refuse_overload(self) -> None:
        if self._made - self._handled <= _UNDER_WAY_MAX:
            return
        backlog = self._backlog()
        worst = self.plan.queues[max(range(len(backlog)), key=backlog.__getitem__)]
        raise OverloadError(
            f"{self.algorithm}: more than {_UNDER_WAY_MAX} messages are under way, most of them at "
            f"{worst.scope.replace('_', ' ')} {worst.name}; simulate less load or a shorter time"
        )

    def _wrong(self, what: str) -> None:
        replay = f"simulate_run(plan, {self.settings!r}, {self.algorithm!r}, {self.run})"
        raise SafetyError(f"{self.algorithm}: {what}", self.clock.now, replay)


def _services(plan: RoutingPlan, queue: int, streams: Streams, run: int) -> tuple[Callable[[], float], ...]:
    """Returns functions that draw service times of a queue, for notifications and for control messages.

    In the network both draw from one stream.
    """
    server = plan.queues[queue]
    direction = "" if server.part is None or not server.part[2] else " backward"

    def draw(kind: str) -> Callable[[], float]:
        rng = streams.generator(f"routing run {run}/{server.scope}{direction}{kind} service", server.name)
        return times(server.control if kind == " control" else server.notification, rng).__next__

    if server.part is None:
        return draw(" notification"), draw(" control")
    common = draw("")
    return common, common
