"""Response targets: what a broker decides and keeps for a subscriber that comes and goes, beside what was predicted.

The broker's core runs in virtual time: the client asks for a target in its SUBSCRIBE, comes and goes, and acknowledges
each message when its transmission is over; decisions come from the code that running brokers ask. Periods are
exponential, or those of measured 3G and 4G connections (`SURECAST_DATA`). For each policy and rate one row: the
prediction for the true moments, and what the subscriber got. Run without arguments; some minutes.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.dropping_predict import periods_of

from surecast.broker.target_adviser import decision_of, question_line
from surecast.prediction.dropping.decisions import decide
from surecast.protocol.broker import BrokerCore, BrokerSettings, Connection, Origin
from surecast.protocol.broker.period_monitor import PeriodMoments
from surecast.protocol.broker.session import Session
from surecast.protocol.mqtt import (
    V5,
    Connack,
    Connect,
    PacketDecoder,
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    encode,
)

POLICIES = ("best", "probabilistic", "finite-buffer", "expiry")
RATES = (1.0, 2.0, 4.0)
SERVICE_PER_S = 8.0
PERIOD_S, TARGET_S = 20.0, 7.0
CYCLES = 2000


@dataclass
class Outcome:
    """What a subscriber got over a run, and what its broker had decided at the end."""

    session: Session
    responses: list[float]
    dropped_connected: int
    asked: int

    before: tuple[int, int] = (0, 0)

    @property
    def success(self) -> float:
        """The share of the messages after the warm-up that was delivered."""
        accounts = self.session.accounts
        delivered, finished = self.before
        return (accounts.delivered - delivered) / max(1, accounts.matched - accounts.queued - finished)


class Subscriber:
    """A client that comes and goes, at a broker in virtual time."""

    def __init__(self, seed: int, user: Sequence[tuple[str, str]], rate_per_s: float, service_per_s: float):
        settings = BrokerSettings(inflight_max=1, connected_prior_s=600.0, disconnected_prior_s=600.0)
        self.broker = BrokerCore(settings)
        self.random = np.random.default_rng(seed)
        self.user = tuple(user)
        self.rate_per_s, self.service_per_s = rate_per_s, service_per_s
        self.events: list[tuple[float, int, str, int]] = []
        self.count = 0
        self.connection: Connection | None = None
        self.decoder = PacketDecoder(version=V5, side="client")
        self.is_subscribed = False
        self.sent_at: dict[bytes, float] = {}
        self.outcome = Outcome(Session("none", 0), [], 0, 0)

    def plan(self, at: float, what: str, number: int = 0) -> None:
        """Makes an appointment."""
        self.count += 1
        heapq.heappush(self.events, (at, self.count, what, number))

    def run(self, periods: Sequence[tuple[float, float]], begin: float = 1e6) -> Outcome:
        """Goes through connected and disconnected periods; messages come until the last one is over.

        What happens in the first third of them, while the broker gets to know the client, does not count.
        """
        now = end = begin
        for number, (on_s, off_s) in enumerate(periods):
            if number == len(periods) // 3:
                self.plan(end, "begin")
            self.plan(end, "connect")
            self.plan(end + on_s, "disconnect")
            end += on_s + off_s
        self.plan(now, "message")
        while self.events:
            now, _, what, number = heapq.heappop(self.events)
            if now >= end:
                break
            getattr(self, what)(now, number)
            self.settle(now)
        self.outcome.session = self.broker.sessions.by_key["sam"]
        return self.outcome

    def begin(self, now: float, _: int) -> None:
        accounts = self.broker.sessions.by_key["sam"].accounts
        self.outcome = Outcome(Session("none", 0), [], 0, 0, (accounts.delivered, accounts.matched - accounts.queued))

    def connect(self, now: float, _: int) -> None:
        self.connection = self.broker.open(Origin(), now)
        self.decoder = PacketDecoder(version=V5, side="client")
        lasting = Properties(session_expiry_s=0xFFFF_FFFF)
        self.send(encode(Connect("sam", False, 0, properties=lasting), V5), now)

    def disconnect(self, now: float, _: int) -> None:
        assert self.connection is not None
        self.broker.lost(self.connection, now)
        self.connection = None

    def message(self, now: float, number: int) -> None:
        before = sum(session.accounts.dropped_total for session in self.broker.sessions.by_key.values())
        payload = str(number).encode()
        self.sent_at[payload] = now
        self.broker.announce("t", payload, False, now)
        after = sum(session.accounts.dropped_total for session in self.broker.sessions.by_key.values())
        self.outcome.dropped_connected += (after - before) * (self.connection is not None)
        self.plan(now + self.random.exponential(1.0 / self.rate_per_s), "message", number + 1)

    def transmitted(self, now: float, number: int) -> None:
        connection = self.connection
        if connection is not None and number >> 16 == connection.number:
            self.send(encode(Puback(number & 0xFFFF), V5), now)

    def send(self, data: bytes, now: float) -> None:
        assert self.connection is not None
        self.broker.receive(self.connection, data, now)

    def settle(self, now: float) -> None:
        """Decides what is to be decided, and hears what the broker says."""
        for question in self.broker.targets.questions():
            self.outcome.asked += 1
            decision = decision_of(decide(json.loads(question_line(question))))
            self.broker.deciding.decide(question.key, question.revision, decision, now)
        self.broker.take_journal()
        while self.connection is not None and self.connection.out:
            data = b"".join(self.connection.out)
            self.connection.out.clear()
            for packet in self.decoder.feed(data):
                self.hear(packet, now)

    def hear(self, packet: object, now: float) -> None:
        assert self.connection is not None
        if isinstance(packet, Connack) and not self.is_subscribed:
            wanted = Subscribe(1, (SubscriptionRequest("t", 1),), Properties(user=self.user))
            self.send(encode(wanted, V5), now)
        elif isinstance(packet, Suback):
            self.is_subscribed = True
        elif isinstance(packet, Publish):
            done = now + self.random.exponential(1.0 / self.service_per_s)
            self.plan(done, "transmitted", self.connection.number << 16 | packet.packet_id)
            self.outcome.responses.append(done - self.sent_at[packet.payload])


def exponential_periods(seed: int, cycles: int) -> list[tuple[float, float]]:
    """Returns connected and disconnected periods."""
    drawn = np.random.default_rng(seed).exponential(PERIOD_S, (cycles, 2))
    return [(float(on), float(off)) for on, off in drawn]


def moments(values: Sequence[float]) -> PeriodMoments:
    """Returns the moments of periods that are known well."""
    array = np.asarray(values)
    return PeriodMoments(1e6, float(array.mean()), float((array**2).mean()), float((array**3).mean()))


def predicted(on: PeriodMoments, off: PeriodMoments, rate_per_s: float, policy: str, target_s: float) -> dict[str, Any]:
    """Returns the decision for periods and rates that are known well."""
    return decide(
        {"time_s": target_s, "quantile": 0.0, "success_min": 0.0, "policy": policy, "on": list(on), "off": list(off),
         "arrival_per_s": rate_per_s, "arrived": 1e9, "service_per_s": SERVICE_PER_S, "served": 1e9}
    )  # fmt: skip


def row(name: str, policy: str, target_s: float, rate_per_s: float, periods: list[tuple[float, float]]) -> str:
    """Runs one case and returns its line."""
    on, off = moments([period[0] for period in periods]), moments([period[1] for period in periods])
    answer = predicted(on, off, rate_per_s, policy, target_s)
    user = (("surecast-response-mean-ms", f"{1000 * target_s:g}"), ("surecast-response-policy", policy))
    outcome = Subscriber(1, user, rate_per_s, SERVICE_PER_S).run(periods)
    state = outcome.session.target
    assert state is not None
    share = state.results.share
    mean = float(np.mean(outcome.responses)) if outcome.responses else float("nan")
    interval = "" if share is None or share.low is None else f"[{share.low:.3g}, {share.high:.3g}]"
    expected_s = answer.get("response_s", float("nan"))
    return (
        f"{name:7}{rate_per_s:>5g}{target_s:>8.3g} {policy:14}{expected_s:>8.3g}{mean:>8.3g} {interval:14}"
        f"{answer['success']:>8.3f}{outcome.success:>8.3f}{outcome.dropped_connected:>18}{outcome.asked:>6}"
    )


def measured_periods(folder: Path, cycles: int) -> list[tuple[float, float]]:
    """Returns the periods of all traces of a folder, again and again."""
    on, off = periods_of(folder)
    rounds = -(-cycles // len(on))
    return list(zip(on.tolist(), off.tolist(), strict=True))[:cycles] * (1 if rounds == 1 else rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=CYCLES, help="connected periods of each run")
    options = parser.parse_args()
    print("mean response time in s and share delivered, predicted and in the broker's core (the last two thirds)")
    print(
        f"{'periods':7}{'rate':>5}{'target':>8} {'policy':14}{'mean':>8}{'got':>8} {'95 %':14}{'success':>8}{'got':>8}"
        f"{'dropped connected':>18}{'asked':>6}"
    )
    for rate in RATES:
        for policy in POLICIES:
            print(row("exp", policy, TARGET_S, rate, exponential_periods(7, options.cycles)), flush=True)
    data = os.environ.get("SURECAST_DATA")
    if data is None:
        print("no measured periods: SURECAST_DATA names no folder", file=sys.stderr)
        return
    for name, target_s in (("3glogs", 4.0), ("4glogs", 0.14)):
        for policy in POLICIES:
            periods = measured_periods(Path(data) / "mobility" / name, options.cycles)
            print(row(name[:2], policy, target_s, 1.0, periods), flush=True)


if __name__ == "__main__":
    main()
