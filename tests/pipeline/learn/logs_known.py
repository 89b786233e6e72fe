"""Logs of a broker whose parameters are known, and their statistics computed record by record in plain Python."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import inf

import numpy as np

from surecast.broker.event_log import (
    Alive,
    Connected,
    Delivered,
    Disconnected,
    Published,
    Record,
    Started,
    Subscribed,
    Unsubscribed,
)
from surecast.pipeline.learn.log_statistics import (
    Client,
    Deadline,
    ObservedSubscription,
    Statistics,
    UptimeRow,
)
from surecast.pipeline.learn.log_statistics import ObservedPublications as PublishedCount
from surecast.pipeline.learn.samples import Times

ALIVE_S = 1.0


@dataclass(frozen=True)
class Truth:
    """What a log is made with; all times are exponential."""

    broker: str = "hub"
    duration_s: float = 2000.0
    up_s: float = 150.0
    down_s: float = 20.0
    rates: dict[str, float] = field(default_factory=lambda: {"p1": 1.0, "p2": 0.5})
    on_s: float = 20.0
    off_s: float = 10.0
    service_s: float = 0.125
    subscribers: int = 3
    deadline_s: float = 30.0


def known_log(truth: Truth, seed: int) -> list[Record]:
    """A log from its start to its end; queues are kept while a subscriber or the broker is away."""
    return _Log(truth, seed).run()


class _Log:
    def __init__(self, truth: Truth, seed: int) -> None:
        self.truth = truth
        self.rng = np.random.default_rng(seed)
        self.records: list[Record] = []
        self.queues: dict[str, list[tuple[int, str]]] = {f"s{i}": [] for i in range(truth.subscribers)}
        self.connected: set[str] = set()
        self.message = 0
        self.incarnation = 0
        self.agenda: list[tuple[float, int, int, str, str]] = []

    def plan(self, at_s: float, what: str, who: str = "") -> None:
        heapq.heappush(self.agenda, (at_s, len(self.agenda) + len(self.records), self.incarnation, what, who))

    def after(self, now: float, mean_s: float) -> float:
        return now + float(self.rng.exponential(mean_s))

    def run(self) -> list[Record]:
        self.plan(0.0, "start")
        while self.agenda:
            now, _, incarnation, what, who = heapq.heappop(self.agenda)
            if now > self.truth.duration_s:
                break
            # What was planned in an incarnation of the broker ends with it.
            if what == "start" or incarnation == self.incarnation:
                getattr(self, what)(now, who)
        return self.records

    def start(self, now: float, _: str) -> None:
        self.incarnation += 1
        self.records.append(Started(now, self.truth.broker))
        self.plan(self.after(now, self.truth.up_s), "crash")
        self.plan(now + ALIVE_S, "alive")
        for who, rate in self.truth.rates.items():
            self.plan(self.after(now, 1.0 / rate), "publish", who)
        for who in self.queues:
            self.connect(now, who)
            if self.incarnation == 1:
                self.records.append(Subscribed(now, who, "plant/#", 1))

    def crash(self, now: float, _: str) -> None:
        self.incarnation += 1
        self.connected.clear()
        self.plan(self.after(now, self.truth.down_s), "start")

    def alive(self, now: float, _: str) -> None:
        self.records.append(Alive(now, self.truth.broker))
        self.plan(now + ALIVE_S, "alive")

    def connect(self, now: float, who: str) -> None:
        self.connected.add(who)
        self.records.append(Connected(now, who, queue_length=len(self.queues[who])))
        self.plan(self.after(now, self.truth.on_s), "leave", who)
        if self.queues[who]:
            self.plan(self.after(now, self.truth.service_s), "deliver", who)

    def leave(self, now: float, who: str) -> None:
        self.connected.discard(who)
        self.records.append(Disconnected(now, who, "client", queue_length=len(self.queues[who])))
        self.plan(self.after(now, self.truth.off_s), "connect", who)
        # A transmission that is cut off begins anew: exponential times have no memory.
        self.agenda = [each for each in self.agenda if each[3:] != ("deliver", who)]
        heapq.heapify(self.agenda)

    def publish(self, now: float, who: str) -> None:
        self.message += 1
        topic = f"plant/{who}"
        size = len(self.queues)
        self.records.append(
            Published(
                now, who, topic, self.message, 1, 10, size, publication_time=now, deadline_s=self.truth.deadline_s
            )
        )
        for client, queue in self.queues.items():
            queue.append((self.message, topic))
            if len(queue) == 1 and client in self.connected:
                self.plan(self.after(now, self.truth.service_s), "deliver", client)
        self.plan(self.after(now, 1.0 / self.truth.rates[who]), "publish", who)

    def deliver(self, now: float, who: str) -> None:
        number, topic = self.queues[who].pop(0)
        self.records.append(Delivered(now, who, topic, number, 1, 10, len(self.queues[who])))
        if self.queues[who]:
            self.plan(self.after(now, self.truth.service_s), "deliver", who)


def statistics_of(records: list[Record], broker: str) -> Statistics:
    """The statistics of one log, one record after the other. It knows only what `known_log` writes."""
    incarnations: list[UptimeRow] = []
    starts = [i for i, each in enumerate(records) if isinstance(each, Started)]
    for i, first in enumerate(starts):
        last = starts[i + 1] if i + 1 < len(starts) else len(records)
        ended_by = "crash" if i + 1 < len(starts) else "open"
        incarnations.append(UptimeRow(broker, records[first].time, records[last - 1].time, ended_by, True))
    start_s, end_s = incarnations[0].up_from_s, incarnations[-1].up_to_s
    window_s = (end_s - start_s) / 64
    spans: dict[tuple[str, Client], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    service: dict[Client, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for i, first in enumerate(starts):
        last = starts[i + 1] if i + 1 < len(starts) else len(records)
        _connections(records[first:last], broker, incarnations[i].up_to_s, spans, service)
    published = [each for each in records if isinstance(each, Published)]
    counts = Counter((each.client, each.topic) for each in published)
    windows: dict[Client, Counter[int]] = defaultdict(Counter)
    for each in published:
        windows[broker, each.client][int((each.time - start_s) // window_s)] += 1
    of_client = Counter(each.client for each in published)
    subscribed, lengths, cut = _subscriptions(records, broker, end_s)
    return Statistics(
        incarnations=tuple(incarnations),
        alive_s={broker: ALIVE_S},
        on={client: Times.of(*spans[kind, client]) for kind, client in spans if kind == "on"},
        off={client: Times.of(*spans[kind, client]) for kind, client in spans if kind == "off"},
        published=tuple(PublishedCount(broker, *key, count) for key, count in counts.items()),
        deadlines={(broker, who): Deadline(published[0].deadline_s or 0.0, n, n) for who, n in of_client.items()},
        windows=dict(windows),
        start_s=start_s,
        window_s=window_s,
        subscriptions=subscribed,
        arrivals=len(lengths) + len(cut),
        lifetimes=Times.of(lengths, cut),
        service={client: Times.of(*each) for client, each in service.items()},
    )


def _connections(
    records: list[Record],
    broker: str,
    until_s: float,
    spans: dict[tuple[str, Client], tuple[list[float], list[float]]],
    service: dict[Client, tuple[list[float], list[float]]],
) -> None:
    state: dict[str, tuple[str, float]] = {}
    waiting: dict[str, float] = {}
    for each in records:
        if isinstance(each, Connected | Disconnected):
            if each.client in waiting:
                service[broker, each.client][1].append(each.time - waiting.pop(each.client))
            if each.client in state:
                kind, since = state[each.client]
                spans[kind, (broker, each.client)][0].append(each.time - since)
            state[each.client] = ("on" if isinstance(each, Connected) else "off", each.time)
        elif isinstance(each, Delivered):
            if each.client in waiting:
                service[broker, each.client][0].append(each.time - waiting.pop(each.client))
            if each.queue_length:
                waiting[each.client] = each.time
    for client, (kind, since) in state.items():
        spans[kind, (broker, client)][1].append(until_s - since)


def _subscriptions(
    records: list[Record], broker: str, end_s: float
) -> tuple[tuple[ObservedSubscription, ...], list[float], list[float]]:
    held: dict[tuple[str, str], float] = {}
    ever: set[tuple[str, str]] = set()
    lengths: list[float] = []
    for each in records:
        if isinstance(each, Subscribed):
            held.setdefault((each.client, each.filter), each.time)
            ever.add((each.client, each.filter))
        elif isinstance(each, Unsubscribed):
            lengths.append(each.time - held.pop((each.client, each.filter)))
    rows = tuple(ObservedSubscription(broker, *key, key in held) for key in sorted(ever))
    return rows, lengths, [end_s - since for since in held.values()]


def replica_logs(records: list[Record], group: str, away: dict[int, tuple[float, float, bool]]) -> list[list[Record]]:
    """The logs of three replicas of a group that did what one log says, which has a single incarnation.

    `away` has when a replica was killed and started again, and whether it writes down then what it missed.
    """
    logs = []
    for number in (1, 2, 3):
        name = f"{group}-{number}"
        killed_s, back_s, catches_up = away.get(number, (inf, inf, False))
        own: list[Record] = []
        late: list[Record] = []
        is_back = False
        for each in records:
            if each.time >= back_s and not is_back:
                is_back = True
                own.append(Started(back_s, name, group=group, replica=number, replicas=3))
                # The last records before a crash may come again.
                own += [*[one for one in own[-4:-1] if isinstance(one, Published | Delivered)], *late]
            if isinstance(each, Started):
                own.append(Started(each.time, name, group=group, replica=number, replicas=3))
            elif not killed_s <= each.time < back_s:
                own.append(Alive(each.time, name) if isinstance(each, Alive) else each)
            elif catches_up and not isinstance(each, Alive):
                late.append(each)
        logs.append(own)
    return logs
