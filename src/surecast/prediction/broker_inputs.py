"""The input queue of each broker: its load and the delay in it, by the events of topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surecast.errors import SaturationError
from surecast.scenario.flows import Flows
from surecast.scenario.group import Group
from surecast.scenario.saturation import broker_rates_per_s
from surecast.scenario.system import System

__all__ = ["BrokerInput", "broker_inputs"]


@dataclass(frozen=True, slots=True)
class BrokerInput:
    """The input queue of a broker. `delay_mean_s` is 0 where the broker adds no queueing delay."""

    rate_per_s: float
    utilisation: float
    delay_mean_s: float
    exact: bool

    @property
    def mean_number(self) -> float:
        return self.rate_per_s * self.delay_mean_s


def broker_inputs(system: System, flows: Flows, groups: Sequence[Group | None] = ()) -> list[BrokerInput]:
    """Returns the input queue of each broker: M/M/1, or M/G/1 in the mean; an overloaded one is refused. A broker that
    is one of the `groups` has none.

    Each event passes a broker once, however many subscribers it goes to: also one that matches no subscription.
    """
    inputs = []
    for i, (broker, rate) in enumerate(zip(system.overlay.brokers, broker_rates_per_s(system, flows), strict=True)):
        service = broker.notification_service
        if service is None or (groups and groups[i] is not None):
            inputs.append(BrokerInput(rate, 0.0, 0.0, True))
            continue
        first, second, _ = service.moments()
        load = rate * first
        if load >= 1.0:
            raise SaturationError(
                f"broker {broker.name}: its input queue is unstable, with {rate:.6g} events/s for a capacity of "
                f"{1.0 / first:.6g}/s; give it a higher capacity or publish less"
            )
        # dropping Eq. 1: M/M/1 by its textbook formula, any other service by that of Pollaczek and Khinchine
        delay = first + rate * second / (2.0 * (1.0 - load))
        inputs.append(BrokerInput(rate, load, delay, abs(service.squared_cv - 1.0) < 1e-9))
    return inputs
