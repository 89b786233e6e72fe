"""The report of coded delivery and of its alternatives in virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.protocol.dissemination import DisseminationSettings
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.saturation import refuse_saturated_events
from surecast.scenario.spec.delivery import Coding
from surecast.scenario.system import Overlay, System
from surecast.simulation.coding.coding_runs import Caster, How, SimulatedAlternative, alternatives, settings_for
from surecast.simulation.coding.outcomes import Outcomes, joined
from surecast.simulation.coding.packet_network import LossyChannel, SimulatedAudience, audiences_of
from surecast.simulation.experiment import Progress, ratio_estimate, until_known

__all__ = ["BATCHES", "estimate", "messages_minimum", "simulate_alternative", "simulate_coding"]

Floats = NDArray[np.float64]

BATCHES = 20
"""Intervals are taken over so many batches of events: events of a batch share what the protocol has learnt."""
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class _Part:
    """The outcomes of the events of one audience."""

    audience: SimulatedAudience
    outcomes: Outcomes
    settings: DisseminationSettings


def simulate_coding(
    system: System,
    schemes: Sequence[str] | None = None,
    *,
    events: int = 2000,
    half_width: float | None = None,
    events_max: int = 20_000,
    seed: int = 0,
    channel: LossyChannel | None = None,
    how: How = "compiled",
    quantiles: Sequence[float] = QUANTILES,
    progress: Progress | None = None,
) -> QoSReport:
    """Returns the service that each subscriber gets from events that travel as packets, by each alternative.

    Packets take the steps of the protocol itself, over links that lose and delay them.

    With `half_width` events are added, up to `events_max`, until the shares on time, for all and in the mean, are known
    that well (95 %). Events do not overlap: each finds the links idle.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}], links: [{between: [a, b], loss: 0.1}]},
    ...  workload: {topics: [t], deadline: 2s, publishers: [{name: p, home: a, topics: [t], rate: 1/s}],
    ...             subscribers: [{name: s, home: b, topics: [t]}]},
    ...  delivery: {coding: {packets: 32, redundancy: 0.25, paths: tree, gossip: null}}}
    ... '''))
    >>> report = simulate_coding(system, ["tree", "coding"], events=2000, seed=1)
    >>> 0.02 < report.value("reliability", name="s", variant="tree") < 0.05
    True
    >>> 0.975 < report.value("reliability", name="s", variant="coding") < 0.995
    True
    """
    refuse_saturated_events(system)
    spec = _coding_of(system)
    channel = channel or LossyChannel.of_scenario(spec)
    if events < BATCHES:
        raise ConfigurationError(f"events: {events} must be {BATCHES} or more, for an interval")
    audiences = audiences_of(system)
    if not audiences:
        raise AssumptionError(f"{system.name}: no publisher shares a topic with a subscriber, so there is no delivery")
    chosen = alternatives(spec, list(schemes) if schemes else None)
    builder = ReportBuilder(
        system.name,
        "simulated",
        seed=seed,
        notes=system.notes,
        parameters={"method": how, "events": events, "coding": spec.model_dump(mode="json")},
    )
    refusals: list[AssumptionError] = []
    for done, alternative in enumerate(chosen):
        settings = settings_for(spec, alternative)
        try:
            parts = [
                _Part(
                    audience,
                    simulate_alternative(
                        system.overlay,
                        audience,
                        [system.subscribers[i].home for i in audience.members],
                        settings,
                        events=events,
                        half_width=half_width,
                        events_max=events_max,
                        seed=seed,
                        channel=channel,
                        how=how,
                    ),
                    settings,
                )
                for audience in audiences
            ]
        except AssumptionError as refusal:
            refusals.append(refusal)
            builder.warn(f"{alternative.name} is left out: {refusal}")
            continue
        _add_subscribers(builder, system, alternative, parts, quantiles)
        _add_system(builder, system, spec, alternative, parts, quantiles)
        if progress is not None:
            progress(done + 1, len(chosen))
    if len(refusals) == len(chosen):
        raise refusals[0]
    _add_notes(builder, system, channel)
    return builder.build()


def simulate_alternative(
    overlay: Overlay,
    audience: SimulatedAudience,
    homes: list[int],
    settings: DisseminationSettings,
    *,
    events: int,
    seed: int,
    half_width: float | None = None,
    events_max: int = 20_000,
    channel: LossyChannel | None = None,
    how: How = "compiled",
) -> Outcomes:
    """The events of one audience under one scheme, as many as the half-width asks for."""
    caster = Caster(
        overlay,
        audience.source,
        homes,
        settings,
        deadline_s=audience.deadline_s,
        seed=seed,
        channel=channel,
        how=how,
    )
    runs: list[Outcomes] = []
    widest = math.inf

    def is_known() -> bool:
        nonlocal widest
        if half_width is None:
            return True
        on_time = joined(runs).on_time
        widest = max(estimate(values)[1] for values in (on_time.all(axis=1), on_time.mean(axis=1)))
        return widest <= half_width

    def more(done: int) -> int:
        # As many as the half-width says, and not so many that a rough guess costs much.
        wanted = done * ((widest / half_width) ** 2 - 1.0) if half_width is not None else 0.0
        return int(min(max(wanted, 200), 2 * done))

    until_known(
        lambda count: runs.append(caster.run(count)), is_known, first=events, most=max(events, events_max), more=more
    )
    return joined(runs)


def estimate(values: ArrayLike, weights: ArrayLike | None = None) -> tuple[float, float]:
    """The mean over events, or the ratio of two means, and its 95 % half-width over batches.

    Of yes and no that are all the same there is no spread; the half-width is then 3 over their number (rule of three).

    >>> estimate(np.arange(40.0))[0]
    19.5
    """
    whole = np.asarray(values, dtype=np.float64)
    top = [float(part.sum()) for part in np.array_split(whole, BATCHES)]
    below = np.ones(len(whole)) if weights is None else np.asarray(weights, dtype=np.float64)
    under = [float(part.sum()) for part in np.array_split(below, BATCHES)]
    value, half = ratio_estimate(np.array(top)[:, None], np.array(under)[:, None])
    if np.asarray(values).dtype == np.bool_ and value[0] in (0.0, 1.0):
        return float(value[0]), min(1.0, 3.0 / len(whole))
    return float(value[0]), float(half[0])


def messages_minimum(overlay: Overlay, audience: SimulatedAudience, homes: list[int], packets: int) -> float:
    """Messages below which no paths can go: n / (1 - loss) for each home broker to be reached, by its best link."""
    best: dict[int, float] = {}
    for link in overlay.links:
        for broker in (link.a, link.b):
            best[broker] = min(best.get(broker, 1.0), link.loss)
    return math.fsum(packets / (1.0 - best[home]) for home in set(homes) - {audience.source})


class _Figures:
    """Adds figures of one component and variant with their intervals."""

    def __init__(self, builder: ReportBuilder, scope: str, name: str, variant: str):
        self.builder, self.scope, self.name, self.variant = builder, scope, name, variant

    def add(self, metric: str, parts: Sequence[tuple[float, float, float]], samples: int, detail: str = "") -> None:
        """The weighted mean of estimates (weight, value, half-width), which are independent of each other."""
        whole = math.fsum(weight for weight, _, _ in parts)
        value = math.fsum(weight * value for weight, value, _ in parts) / whole
        half = math.sqrt(math.fsum((weight * half) ** 2 for weight, _, half in parts)) / whole
        if not math.isfinite(value):
            return
        most = 1.0 if metric.endswith("_share") or metric == "reliability" else math.inf
        low, high = (max(value - half, 0.0), min(value + half, most)) if math.isfinite(half) else (None, None)
        self.builder.add(
            self.scope,
            self.name,
            metric,
            min(value, most),
            how="simulated",
            detail=detail,
            variant=self.variant,
            low=low,
            high=high,
            samples=samples,
        )


def _add_subscribers(
    builder: ReportBuilder,
    system: System,
    alternative: SimulatedAlternative,
    parts: Sequence[_Part],
    quantiles: Sequence[float],
) -> None:
    per: dict[int, list[tuple[float, Outcomes, int]]] = {}
    for part in parts:
        for column, member in enumerate(part.audience.members):
            per.setdefault(member, []).append((part.audience.rate_per_s, part.outcomes, column))
    for member, mine in sorted(per.items()):
        figures = _Figures(builder, "subscriber", system.subscribers[member].name, alternative.name)
        samples = sum(len(outcomes.done_s) for _, outcomes, _ in mine)
        on_time = [(rate, *estimate(outcomes.on_time[:, column])) for rate, outcomes, column in mine]
        figures.add("reliability", on_time, samples)
        if "gossip" in alternative.scheme:
            helped = [(rate, *estimate(outcomes.recovered[:, column])) for rate, outcomes, column in mine]
            figures.add("recovered_share", helped, samples)
        _add_delays(figures, [(rate, outcomes.done_s[:, [column]]) for rate, outcomes, column in mine], quantiles)


def _add_system(
    builder: ReportBuilder,
    system: System,
    spec: Coding,
    alternative: SimulatedAlternative,
    parts: Sequence[_Part],
    quantiles: Sequence[float],
) -> None:
    figures = _Figures(builder, "system", "", alternative.name)
    rates = [part.audience.rate_per_s for part in parts]
    sizes = [rate * len(part.audience.members) for rate, part in zip(rates, parts, strict=True)]
    samples = sum(len(part.outcomes.done_s) for part in parts)

    def add(metric: str, weights: Sequence[float], values: Sequence[ArrayLike], detail: str = "") -> None:
        estimates = [(weight, *estimate(value)) for weight, value in zip(weights, values, strict=True)]
        figures.add(metric, estimates, samples, detail)

    on_time = [part.outcomes.on_time for part in parts]
    add("reliability", sizes, [events.mean(axis=1) for events in on_time])
    add("all_on_time_share", rates, [events.all(axis=1) for events in on_time])
    if "gossip" in alternative.scheme:
        add("recovered_share", sizes, [part.outcomes.recovered.mean(axis=1) for part in parts])
    _add_delays(figures, [(rate, part.outcomes.done_s) for rate, part in zip(rates, parts, strict=True)], quantiles)
    amounts: dict[str, list[dict[str, Floats]]] = {
        "messages_per_event": [part.outcomes.messages() for part in parts],
        "bytes_per_event": [part.outcomes.bytes_sent(part.settings.coding, int(spec.packet_size)) for part in parts],
    }
    for metric, of_parts in amounts.items():
        nothing = [np.zeros(len(part.outcomes.done_s)) for part in parts]
        for kind in dict.fromkeys(kind for by_kind in of_parts for kind in by_kind):
            add(metric, rates, [by_kind.get(kind, none) for by_kind, none in zip(of_parts, nothing, strict=True)], kind)
        add(metric, rates, [sum(by_kind.values(), none) for by_kind, none in zip(of_parts, nothing, strict=True)])
    least = [
        messages_minimum(
            system.overlay, part.audience, [system.subscribers[i].home for i in part.audience.members], spec.packets
        )
        for part in parts
    ]
    whole = math.fsum(rate * messages for rate, messages in zip(rates, least, strict=True)) / math.fsum(rates)
    builder.add("system", "", "messages_minimum_per_event", whole, how="lower_bound", variant=alternative.name)
    if whole > 0.0:
        totals = [sum(by_kind.values(), np.zeros(1)) for by_kind in amounts["messages_per_event"]]
        sent = [np.array(total, dtype=np.float64) for total in totals]
        add("overhead_ratio", rates, [np.maximum(messages / whole - 1.0, 0.0) for messages in sent])


def _add_delays(figures: _Figures, parts: Sequence[tuple[float, Floats]], quantiles: Sequence[float]) -> None:
    estimates = []
    for weight, done_s in parts:
        arrived = np.isfinite(done_s)
        if arrived.any():
            times_s = np.where(arrived, done_s, 0.0)
            estimates.append((weight, *estimate(times_s.sum(axis=1), arrived.sum(axis=1).astype(np.float64))))
    if not estimates:
        return
    samples = sum(int(np.isfinite(done_s).sum()) for _, done_s in parts)
    figures.add("delay_mean_s", estimates, samples)
    for q in quantiles:
        values = []
        for weight, done_s in parts:
            batches = [batch[np.isfinite(batch)] for batch in np.array_split(done_s, BATCHES)]
            some = [float(np.quantile(batch, q)) for batch in batches if len(batch)]
            if some:
                value = float(np.quantile(done_s[np.isfinite(done_s)], q))
                _, half = ratio_estimate(np.array(some)[:, None], np.ones((len(some), 1)))
                values.append((weight, value, float(half[0])))
        figures.add("delay_quantile_s", values, samples, f"p{100 * q:.10g}")


def _add_notes(builder: ReportBuilder, system: System, channel: LossyChannel) -> None:
    losses = _said_losses(system, channel)
    between = "over the overlay's shortest path" if channel.peer_loss is None else f"with loss {channel.peer_loss:g}"
    builder.note(
        f"coded delivery: links lose packets {losses}; a home broker reaches its subscribers "
        + ("without loss" if not channel.access_loss else f"with loss {channel.access_loss:g}")
        + f"; subscribers reach each other {between}, each such message counted once; events do not overlap"
    )
    for sentence in left_out(system, "the simulation of coded delivery"):
        builder.warn(sentence)


def _said_losses(system: System, channel: LossyChannel) -> str:
    """Returns a phrase that says how links lose packets."""
    means = {link.burst_mean if channel.burst_mean is None else channel.burst_mean for link in system.overlay.links}
    bursts = sorted(mean for mean in means if mean is not None)
    texts = ["independently"] if len(bursts) < max(1, len(means)) else []
    if bursts:
        lengths = " to ".join(f"{mean:g}" for mean in sorted({bursts[0], bursts[-1]}))
        texts.append(f"in bursts of {lengths} on average")
    return " or ".join(texts)


def _coding_of(system: System) -> Coding:
    if system.delivery.coding is None:
        raise ConfigurationError(f"{system.name}: delivery.coding is missing; give it packets and redundancy")
    return system.delivery.coding
