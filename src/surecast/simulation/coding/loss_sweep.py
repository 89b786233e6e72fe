"""Success and delivery time of all alternatives against the loss of the links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from surecast.errors import AssumptionError, ConfigurationError
from surecast.scenario.system import System
from surecast.simulation.coding.coding_runs import alternatives, settings_for
from surecast.simulation.coding.coding_simulation import estimate, messages_minimum, simulate_alternative
from surecast.simulation.coding.packet_network import LossyChannel, audiences_of
from surecast.simulation.experiment import Progress

__all__ = ["LossPoint", "LossSweep", "sweep_loss"]

Estimate = tuple[float, float]
"""A value and its 95 % half-width."""


@dataclass(frozen=True, slots=True)
class LossPoint:
    """One alternative at one loss. Delays are of what arrived in time, NaN if nothing did."""

    alternative: str
    loss: float
    events: int
    on_time: Estimate
    all_on_time: Estimate
    delay_mean_s: Estimate
    delay_p99_s: float
    messages: Estimate
    megabytes: float
    messages_minimum: float

    @property
    def overhead(self) -> float:
        """Messages sent beyond the least necessary number, relative to that number."""
        return self.messages[0] / self.messages_minimum - 1.0


@dataclass(frozen=True)
class LossSweep:
    """Points of all alternatives over all losses, in that order."""

    name: str
    deadline_s: float
    subscribers: int
    packets: int
    redundancy: float
    half_width: float
    seed: int
    losses: tuple[float, ...]
    points: tuple[LossPoint, ...]

    @property
    def alternatives(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(point.alternative for point in self.points))

    def of(self, alternative: str) -> tuple[LossPoint, ...]:
        return tuple(point for point in self.points if point.alternative == alternative)


def sweep_loss(
    system: System,
    losses: Sequence[float],
    names: Sequence[str] | None = None,
    *,
    half_width: float = 0.01,
    events: int = 200,
    events_max: int = 20_000,
    seed: int = 0,
    channel: LossyChannel | None = None,
    progress: Progress | None = None,
) -> LossSweep:
    """Simulates alternatives, all or those of the schemes named, with every link of the overlay at each loss.

    Events are added until the shares on time are known to `half_width` (95 %).
    """
    spec = system.delivery.coding
    if spec is None:
        raise ConfigurationError(f"{system.name}: delivery.coding is missing; give it packets and redundancy")
    if not losses or not all(0.0 <= loss < 1.0 for loss in losses):
        raise ConfigurationError("losses: give one or more, each a share from 0 to below 1")
    channel = channel or LossyChannel.of_scenario(spec)
    audiences = audiences_of(system)
    if len(audiences) != 1:
        raise AssumptionError(
            f"{system.name}: a sweep follows one publisher's home broker and one set of subscribers, and there are "
            f"{len(audiences)}; name the topics so that all subscribers get the same events"
        )
    (audience,) = audiences
    homes = [system.subscribers[i].home for i in audience.members]
    chosen = alternatives(spec, list(names) if names else None)
    points = []
    for alternative in chosen:
        settings = settings_for(spec, alternative)
        for loss in losses:
            overlay = replace(system.overlay, links=tuple(replace(link, loss=loss) for link in system.overlay.links))
            outcomes = simulate_alternative(
                overlay,
                audience,
                homes,
                settings,
                events=events,
                half_width=half_width,
                events_max=events_max,
                seed=seed,
                channel=channel,
            )
            arrived = outcomes.on_time
            times_s = np.where(arrived, outcomes.done_s, 0.0)
            some = bool(arrived.any())
            sent = sum(outcomes.messages().values(), np.zeros(len(arrived)))
            volume = sum(outcomes.bytes_sent(settings.coding, int(spec.packet_size)).values(), np.zeros(len(arrived)))
            delay = estimate(times_s.sum(axis=1), arrived.sum(axis=1).astype(float)) if some else (np.nan, np.nan)
            points.append(
                LossPoint(
                    alternative.name,
                    loss,
                    len(arrived),
                    estimate(arrived.mean(axis=1)),
                    estimate(arrived.all(axis=1)),
                    delay,
                    float(np.quantile(outcomes.done_s[arrived], 0.99)) if some else np.nan,
                    estimate(sent),
                    float(volume.mean()) / 1e6,
                    messages_minimum(overlay, audience, homes, spec.packets),
                )
            )
            if progress is not None:
                progress(len(points), len(chosen) * len(losses))
    return LossSweep(
        system.name,
        audience.deadline_s,
        len(homes),
        spec.packets,
        spec.redundancy,
        half_width,
        seed,
        tuple(losses),
        tuple(points),
    )
