"""The report of coded delivery and of its alternatives, by formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.prediction.coding.groups import VIEW_SIZE
from surecast.prediction.coding.lossy_network import Audience, ChannelAssumptions, audiences_of
from surecast.prediction.coding.packet_delivery import CodedEvent, SchemeOutcome, mean_delay, quantile
from surecast.prediction.coding.packet_schemes import Alternative, Forecaster, alternatives, coding_of
from surecast.prediction.overload import refuse_overloaded_events
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.system import Overlay, System

__all__ = ["message_bytes", "messages_minimum", "predict_coding"]

Array = NDArray[np.float64]

QUANTILES: Final = (0.5, 0.95, 0.99)
_Z: Final = 1.959963984540054
_HEADERS: Final = {"data": 62, "push": 59, "reply": 59, "digest": 36, "request": 28, "acknowledgement": 27}
"""Bytes of a datagram beside vector and payload: headers and checksums of datagram and packet."""


@dataclass(frozen=True)
class _Share:
    """The contribution of one audience to the figures of a system."""

    audience: Audience
    outcome: SchemeOutcome


def predict_coding(
    system: System,
    schemes: Sequence[str] | None = None,
    *,
    channel: ChannelAssumptions | None = None,
    samples: int = 2000,
    quantiles: Sequence[float] = QUANTILES,
) -> QoSReport:
    """Returns reliability, delays and messages of events that travel as packets, for each alternative.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}], links: [{between: [a, b], loss: 0.1}]},
    ...  workload: {topics: [t], deadline: 2s, publishers: [{name: p, home: a, topics: [t], rate: 1/s}],
    ...             subscribers: [{name: s, home: b, topics: [t]}]},
    ...  delivery: {coding: {packets: 32, redundancy: 0.25, paths: tree, gossip: null}}}
    ... '''))
    >>> report = predict_coding(system, ["tree", "coding"])
    >>> round(report.value("reliability", name="s", variant="tree"), 4), round(0.9**32, 4)
    (0.0343, 0.0343)
    >>> round(report.value("reliability", name="s", variant="coding"), 4)
    0.9844
    """
    refuse_overloaded_events(system)
    spec = coding_of(system)
    audiences = audiences_of(system)
    if not audiences:
        raise AssumptionError(f"{system.name}: no publisher shares a topic with a subscriber, so there is no delivery")
    builder = ReportBuilder.of_system(system, "predicted", coding=spec.model_dump(mode="json"))
    forecaster = Forecaster(system, channel, samples)
    refusals: list[AssumptionError] = []
    chosen = alternatives(spec, list(schemes) if schemes else None)
    for alternative in chosen:
        try:
            shares = [_Share(audience, forecaster.outcome(audience, alternative)) for audience in audiences]
        except AssumptionError as refusal:
            refusals.append(refusal)
            builder.warn(f"{alternative.name} is left out: {refusal}")
            continue
        _add_subscribers(builder, system, alternative, shares, quantiles)
        _add_system(builder, system, alternative, shares, forecaster, quantiles)
    if len(refusals) == len(chosen):
        raise refusals[0]
    _add_notes(builder, system, forecaster)
    return builder.build()


def messages_minimum(overlay: Overlay, audience: Audience, packets: int) -> float:
    """Returns the number of messages below which no scheme of paths can go: every home broker but the publisher's has
    to receive n packets over links of which the best loses p, n / (1 - p) each.
    """
    best: dict[int, float] = {}
    for link in overlay.links:
        for broker in (link.a, link.b):
            best[broker] = min(best.get(broker, 1.0), link.loss)
    return math.fsum(packets / (1.0 - best[home]) for home in audience.homes if home != audience.source)


def message_bytes(kind: str, event: CodedEvent, plain: bool = False) -> float:
    """Returns the mean size in bytes of a datagram of a kind; `plain` where nothing is coded.

    Vectors travel as a position, as a seed where the source has coded, and in full from peers.
    """
    size = float(_HEADERS[kind])
    if kind == "acknowledgement":
        size += math.ceil(event.packets / 8)
    if kind in ("data", "push", "reply"):
        size += event.packet_bytes
        if plain:
            size += 2.0
        elif kind == "data":
            size += (2.0 * event.packets + 8.0 * event.coded) / event.sent
        else:
            size += math.ceil(event.packets * event.field_bits / 8)
    return size


def _add_subscribers(
    builder: ReportBuilder,
    system: System,
    alternative: Alternative,
    shares: Sequence[_Share],
    quantiles: Sequence[float],
) -> None:
    per: dict[int, list[tuple[float, SchemeOutcome, int]]] = {}
    for share in shares:
        for home, members in enumerate(share.audience.members):
            for member in members:
                per.setdefault(member, []).append((share.audience.rate_per_s, share.outcome, home))
    variant = alternative.name
    for member, parts in sorted(per.items()):
        name = system.subscribers[member].name
        rates = np.array([rate for rate, _, _ in parts]) / math.fsum(rate for rate, _, _ in parts)
        how = "exact" if all(outcome.how == "exact" for _, outcome, _ in parts) else "approximation"
        on_time = _mean(rates, [outcome.on_time[home] for _, outcome, home in parts])
        recovered = _mean(rates, [outcome.recovered[home] for _, outcome, home in parts])
        builder.add("subscriber", name, "reliability", on_time, how=how, variant=variant)
        if "gossip" in alternative.method:
            builder.add("subscriber", name, "recovered_share", recovered, how=how, variant=variant)
        delays = [outcome.delays[home] for _, outcome, home in parts]
        _add_delays(builder, "subscriber", name, delays, rates, variant, quantiles)
        limits = [float(o.paths.limits_per_s[home]) for _, o, home in parts if o.paths is not None]
        if limits and math.isfinite(min(limits)):
            builder.add("subscriber", name, "capacity_per_s", min(limits), how="exact", variant=variant)


def _add_system(
    builder: ReportBuilder,
    system: System,
    alternative: Alternative,
    shares: Sequence[_Share],
    forecaster: Forecaster,
    quantiles: Sequence[float],
) -> None:
    variant = alternative.name
    how = "exact" if all(share.outcome.how == "exact" for share in shares) else "approximation"

    def add(metric: str, value: float, detail: str = "", how: str = how) -> None:
        builder.add("system", "", metric, value, how=how, detail=detail, variant=variant)

    rates = np.array([share.audience.rate_per_s for share in shares])
    rates = rates / rates.sum()
    sizes = rates * np.array([share.audience.size for share in shares])
    means = [float(share.outcome.on_time @ share.audience.weights) / share.audience.size for share in shares]
    add("reliability", _mean(sizes / sizes.sum(), means))
    add("all_on_time_share", _mean(rates, [share.outcome.all_on_time for share in shares]), how="approximation")
    if "gossip" in alternative.method:
        helped = [float(share.outcome.recovered @ share.audience.weights) / share.audience.size for share in shares]
        add("recovered_share", _mean(sizes / sizes.sum(), helped))
    delays = [delay for share in shares for delay in share.outcome.delays]
    weights = np.concatenate([share.audience.weights * rate for share, rate in zip(shares, rates, strict=True)])
    _add_delays(builder, "system", "", delays, weights, variant, quantiles)
    event = forecaster.event(None if alternative.method.startswith("coding") else 0)
    plain = not alternative.method.startswith("coding")
    kinds = dict.fromkeys(kind for share in shares for kind in share.outcome.messages)
    sent = {k: _mean(rates, [share.outcome.messages.get(k, 0.0) for share in shares]) for k in kinds}
    least = _mean(rates, [messages_minimum(system.overlay, share.audience, event.packets) for share in shares])
    for kind, amount in sent.items():
        add("messages_per_event", amount, kind, how="approximation")
        add("bytes_per_event", amount * message_bytes(kind, event, plain), kind, how="approximation")
    add("messages_per_event", math.fsum(sent.values()), how="approximation")
    add("bytes_per_event", math.fsum(n * message_bytes(k, event, plain) for k, n in sent.items()), how="approximation")
    add("messages_minimum_per_event", least, how="lower_bound")
    if least > 0.0:
        add("overhead_ratio", max(0.0, math.fsum(sent.values()) / least - 1.0), how="approximation")
    for share in shares:
        for p, _ in share.audience.flows if share.outcome.paths is not None and len(shares) == 1 else ():
            rate_per_s = share.outcome.paths.rate_per_s if share.outcome.paths is not None else math.inf
            if math.isfinite(rate_per_s):
                name = system.publishers[p].name
                builder.add("publisher", name, "capacity_per_s", rate_per_s, how="exact", variant=variant)


def _add_delays(
    builder: ReportBuilder,
    scope: str,
    name: str,
    delays: Sequence[tuple[Array, Array]],
    weights: Array,
    variant: str,
    quantiles: Sequence[float],
) -> None:
    mean_s = mean_delay(delays, weights)
    if not math.isfinite(mean_s):
        return
    builder.add(scope, name, "delay_mean_s", mean_s, how="approximation", variant=variant)
    for q in quantiles:
        value = quantile(delays, weights, q)
        detail = f"p{100 * q:.10g}"
        builder.add(scope, name, "delay_quantile_s", value, how="approximation", detail=detail, variant=variant)


def _add_notes(builder: ReportBuilder, system: System, forecaster: Forecaster) -> None:
    channel = forecaster.channel
    if system.delivery.coding is not None and system.delivery.coding.paths == "maximum-flow":
        builder.note(
            f"maximum-flow paths share links: {forecaster.samples} draws of the losses stand for them, so that a share "
            f"is known to ± {_Z * math.sqrt(0.25 / forecaster.samples):.1%} at worst"
        )
    bursty = any(link.burst_mean is not None and link.loss > 0.0 for link in system.overlay.links)
    if bursty:
        builder.note(
            "losses in bursts: exact for a tree; with coding, brokers that recode are taken to have a field without "
            "limit, and over maximum-flow paths the share on time is predicted some percent too high; packets on "
            "their paths are taken not to change the state in which gossip meets a link"
        )
    between = "over the overlay's shortest path" if channel.peer_loss is None else f"with loss {channel.peer_loss:g}"
    builder.note(
        f"coded delivery: links lose packets {'in bursts' if bursty else 'independently'}; a home broker reaches its "
        "subscribers "
        + ("without loss" if not channel.access_loss else f"with loss {channel.access_loss:g}")
        + f"; subscribers reach each other {between}, each such message counted once"
    )
    if system.delivery.coding is not None and system.delivery.coding.gossip is not None:
        builder.note(
            f"gossip: who tells and asks whom is drawn, up to {forecaster.samples} times, with new partial views of "
            f"{VIEW_SIZE} peers each time; a run has the same views throughout, so that its delays differ from the "
            "mean by some percent, one way or the other"
        )
    for sentence in left_out(system, "the model of coded delivery"):
        builder.leave_out(sentence)


def _mean(weights: Array, values: Sequence[float]) -> float:
    return float(np.clip(weights @ np.array(values, dtype=np.float64), 0.0, None))
