"""The systems to simulate: the brokers' feeds, the subscribers that get something, and their mechanisms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError, SaturationError
from surecast.scenario import Connectivity, Distribution, System
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.spec.delivery import Dropping
from surecast.simulation.experiment import Extent

__all__ = [
    "DroppingPlan",
    "DroppingSettings",
    "Mechanisms",
    "Policy",
    "check_stable",
    "make_plan",
    "resolve_policies",
    "tables_of",
]

Mechanisms = Mapping[str, Mechanism | Mapping[str, Mechanism]]
"""By policy: one mechanism for all subscribers, or one by name for each that disconnects."""


@dataclass(frozen=True, slots=True)
class DroppingPlan:
    """`feeds` has, by home broker, the publishers whose events it processes; `subscribers` those that are published
    to; `rates_per_s` the rate of the events of each one's interest."""

    system: System
    feeds: dict[int, tuple[int, ...]]
    subscribers: tuple[int, ...]
    rates_per_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy by name: the mechanism of each subscriber of the plan, and the size of each broker's input buffer."""

    name: str
    mechanisms: tuple[Mechanism, ...]
    input_sizes: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppingSettings(Extent):
    """The settings of a simulation of dropping: events published from `warm_up_s` on, for `duration_s`, count."""

    @property
    def window(self) -> tuple[float, float, float]:
        """The times at which counting begins and ends, and the end of the run.

        Later events never change what becomes of earlier ones, so none are published after the end; those that are
        under way are followed for as long again at most.
        """
        return self.warm_up_s, self.end_s, self.end_s + self.duration_s


def make_plan(system: System) -> DroppingPlan:
    """Returns the subscribers with the rates that reach them.

    Paths over several brokers are refused, since this queueing network has none.
    """
    names = [broker.name for broker in system.overlay.brokers]
    subscribers, rates = [], []
    for i, subscriber in enumerate(system.subscribers):
        rate = 0.0
        for publisher in system.publishers_of(subscriber):
            if publisher.home != subscriber.home:
                raise AssumptionError(
                    f"subscriber {subscriber.name} at broker {names[subscriber.home]} is interested in what "
                    f"{publisher.name} publishes at broker {names[publisher.home]}: the simulation of dropping has one "
                    "broker between the two; give them the same home"
                )
            rate += publisher.rate_per_s * len(set(subscriber.topics) & set(publisher.topics)) / len(publisher.topics)
        if rate > 0:
            subscribers.append(i)
            rates.append(rate)
    if not subscribers:
        raise AssumptionError(f"{system.name}: no subscriber has a matching publisher; there is nothing to simulate")
    homes = dict.fromkeys(system.subscribers[i].home for i in subscribers)
    busy = [p for p, publisher in enumerate(system.publishers) if publisher.rate_per_s > 0]
    feeds = {home: tuple(p for p in busy if system.publishers[p].home == home) for home in homes}
    return DroppingPlan(system, feeds, tuple(subscribers), tuple(rates))


def resolve_policies(
    plan: DroppingPlan, names: Sequence[str] | None, mechanisms: Mechanisms | None
) -> tuple[Policy, ...]:
    """The policies to simulate; those of the scenario with all parameters given need no mechanism."""
    by_name = dict(mechanisms or {})
    if isinstance(names, str):
        raise ConfigurationError(f"policies: write a list, such as [{names!r}]")
    chosen = tuple(names) if names is not None else tuple(by_name) or (plan.system.delivery.dropping.policy,)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigurationError("policies: name at least one policy, and each only once")
    return tuple(_policy(plan, name, by_name.get(name)) for name in chosen)


def _policy(plan: DroppingPlan, name: str, mechanism_given: Mechanism | Mapping[str, Mechanism] | None) -> Policy:
    subscribers = [plan.system.subscribers[i] for i in plan.subscribers]
    if mechanism_given is None:
        mechanism_given = _of_scenario(plan.system.delivery.dropping, name)
    if isinstance(mechanism_given, Mechanism):
        mechanisms = [mechanism_given] * len(subscribers)
    else:
        missing = [s.name for s in subscribers if s.name not in mechanism_given and s.connectivity is not None]
        if missing:
            raise ConfigurationError(f"mechanisms: {name}: there is none for subscriber {missing[0]}")
        sizes_given = {mechanism.input_buffer_size for mechanism in mechanism_given.values()}
        # Who is always connected needs no mechanism, but shares the input queue.
        plain = Mechanism(input_buffer_size=sizes_given.pop() if len(sizes_given) == 1 else None)
        mechanisms = [mechanism_given.get(s.name, plain) for s in subscribers]
    sizes: dict[int, int] = {}
    for subscriber, mechanism in zip(subscribers, mechanisms, strict=True):
        size = mechanism.input_buffer_size or 0
        if sizes.setdefault(subscriber.home, size) != size:
            raise ConfigurationError(
                f"mechanisms: {name}: subscriber {subscriber.name} has another input_buffer_size than others at broker "
                f"{plan.system.overlay.brokers[subscriber.home].name}, which has one input queue"
            )
    _check_loads(plan, name, mechanisms, sizes)
    return Policy(name, tuple(mechanisms), sizes)


def _of_scenario(dropping: Dropping, name: str) -> Mechanism:
    """The mechanism that the scenario itself gives in full."""
    if name == "none":
        return Mechanism()
    join, lifetime, size = dropping.join_probability, dropping.lifetime, dropping.buffer_size
    if name != dropping.policy or name == "optimal" or join == "auto" or lifetime == "auto" or size == "auto":
        raise ConfigurationError(
            f"the parameters of policy {name!r} are not in the scenario: "
            f"give them as mechanisms={{{name!r}: Mechanism(...)}}"
        )
    return Mechanism(
        join_probability=1.0 if join is None else join,
        lifetime_s=math.inf if lifetime is None else lifetime,
        lifetime_distribution=dropping.lifetime_distribution,
        buffer_size=size,
    )


def _check_loads(plan: DroppingPlan, name: str, mechanisms: Sequence[Mechanism], sizes: Mapping[int, int]) -> None:
    system = plan.system
    for home, publishers in plan.feeds.items():
        service = system.overlay.brokers[home].notification_service
        rate = sum(system.publishers[p].rate_per_s for p in publishers)
        if service is not None and not sizes[home] and rate * service.mean_s >= 1.0:
            raise SaturationError(
                f"broker {system.overlay.brokers[home].name} is overloaded: {rate:.6g} events/s arrive, it "
                f"processes {1.0 / service.mean_s:.6g}/s; its input queue would grow for ever"
            )
    for i, rate, mechanism in zip(plan.subscribers, plan.rates_per_s, mechanisms, strict=True):
        subscriber = system.subscribers[i]
        where = f"subscriber {subscriber.name} under policy {name}"
        check_stable(where, rate, subscriber.service, subscriber.connectivity, mechanism)


def check_stable(
    where: str, rate_per_s: float, service: Distribution | None, connectivity: Connectivity | None, mechanism: Mechanism
) -> None:
    """Refuses a queue that grows for ever (dropping, the condition before Eq. 28, corrected: lambda_eff < mu P_ON)."""
    on = 1.0
    if connectivity is not None:
        on = connectivity.on.mean_s / (connectivity.on.mean_s + connectivity.off.mean_s)
    row_off, row_on = tables_of(mechanism)
    bounded = mechanism.buffer_size is not None or mechanism.expires
    off_rate = 0.0 if bounded else float(row_off[-1]) * (1.0 - on)
    on_rate = (1.0 if mechanism.protect_connected else 0.0 if bounded else float(row_on[-1])) * on
    needed = rate_per_s * (on_rate + off_rate) * (0.0 if service is None else service.mean_s)
    if needed >= on:
        raise SaturationError(
            f"{where}: the queue would grow for ever: transmitting what joins takes {needed:.4g} of the time, and "
            f"it is connected for {on:.4g} of it; drop more, or transmit faster"
        )


def tables_of(mechanism: Mechanism) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Join probabilities by queue length while disconnected and while connected, equally long.

    >>> [row.tolist() for row in tables_of(Mechanism(join_probability=0.4))]
    [[0.4], [1.0]]
    """
    off, on = mechanism.join_table or ((mechanism.join_probability,), (1.0,))
    length = max(len(off), len(on))
    row_off, row_on = (np.array([*row, *[row[-1]] * (length - len(row))], dtype=np.float64) for row in (off, on))
    return row_off, row_on
