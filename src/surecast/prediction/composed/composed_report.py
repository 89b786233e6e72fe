"""One report that composes all models: what each subscriber gets in time, how late it is, and what is lost why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError, refuse_unknown
from surecast.prediction.composed.composed_model import ComposedModel, Outlook
from surecast.prediction.composed.error_sizes import reliability_errors
from surecast.prediction.composed.event_delay import EventDelay, mixture_quantile_s
from surecast.prediction.composed.parts import (
    COMPOSED_SCHEMES,
    COMPOSED_VARIANT,
    parts_of,
    without_failures,
    without_outlets,
    without_replication,
)
from surecast.prediction.composed.topic_schemes import composed_model
from surecast.prediction.dropping.choose import POLICIES
from surecast.prediction.overload import refuse_overloaded_events
from surecast.prediction.passages import Passage
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.system import Subscriber, System
from surecast.scenario.topic_schemes import without_topic_schemes

__all__ = ["composed_mechanisms", "predict_composed"]

Array = NDArray[np.float64]
_HOW = "approximation"
LOST_ON_LINKS = "lost on a link"
_ROUNDING = 1e-13
"""Shares of lost events below this are none."""


_QUANTILES_MAX = 500
"""Interests of always connected subscribers up to which quantiles of delays are computed."""


@dataclass(frozen=True)
class _Served:
    """The service to one subscriber. Shares are of all events published to it."""

    on_time: float
    delivered: float
    delay_mean_s: float
    response_mean_s: float
    dropped: Mapping[str, float]
    quantiles_s: tuple[float, ...]
    delivered_per_s: float
    responds: bool


def predict_composed(
    system: System,
    scheme: str | None = None,
    policy: str | None = None,
    *,
    quantiles: Sequence[float] = (0.5, 0.9, 0.95, 0.99),
    factors: bool = True,
    besides: Mapping[str, tuple[float, float]] | None = None,
) -> QoSReport:
    """Reliability, delays and losses of each subscriber, with path failures, queues, groups and dropping together.

    `scheme` and `policy` are those of the scenario where left out. With `factors` the report also has what each part
    does alone, and what there would be without replication, as variants. `besides` is other traffic of brokers and
    links, by their name: its utilisation, and its rate times the second moment of its service time.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: pair
    ... overlay: {brokers: [{name: a, capacity: 20/s}, {name: b, capacity: 20/s}], links: [[a, b]]}
    ... availability: {brokers: {availability: 0.9, period: 1000s}}
    ... workload:
    ...   topics: [t]
    ...   deadline: 30s
    ...   publishers: [{name: p, home: a, topics: [t], rate: 2/s}]
    ...   subscribers: [{name: s, home: b, topics: [t], connectivity: {on: 20s, off: 10s}, service: 10/s}]
    ... '''))
    >>> report = predict_composed(system)
    >>> round(report.value("reliability", name="s", variant="composed"), 3)
    0.781
    >>> round(report.value("reliability", name="s", variant="path failure alone"), 3)
    0.81
    """
    scheme = system.delivery.fault_tolerance.scheme if scheme is None else scheme
    policy = system.delivery.dropping.policy if policy is None else policy
    _check(scheme, policy, quantiles)
    refuse_overloaded_events(system)
    model = composed_model(system, scheme, policy, besides=besides)
    parts = parts_of(system)
    builder = ReportBuilder.of_system(system, "predicted", composed=list(parts), scheme=scheme, policy=policy)
    refusals = _add_variant(builder, model, COMPOSED_VARIANT, quantiles)
    _add_brokers(builder, model)
    if factors:
        for variant, alone in _factors(system, scheme, policy, parts):
            _add_variant(builder, alone, variant, ())
    for refusal in refusals:
        builder.warn(f"composed: left out: {refusal}")
    _add_assumptions(builder, model, parts)
    return builder.build()


def composed_mechanisms(system: System, policy: str | None = None) -> Mapping[str, Mechanism]:
    """Returns the dropping mechanism of each subscriber that disconnects at times, by name; one that cannot be served
    is left out.
    """
    chosen = system.delivery.dropping.policy if policy is None else policy
    model = ComposedModel(without_topic_schemes(system), "periodic-subscription", chosen)
    mechanisms = {}
    for subscriber in system.subscribers:
        if subscriber.connectivity is None or not system.publishers_of(subscriber):
            continue
        try:
            mechanisms[subscriber.name] = model.mechanism(subscriber)
        except AssumptionError:
            continue
    return mechanisms


def _check(scheme: str, policy: str, quantiles: Sequence[float]) -> None:
    refuse_unknown("scheme", [scheme], COMPOSED_SCHEMES)
    refuse_unknown("policy", [policy], POLICIES)
    for q in quantiles:
        if not 0 < q < 1:
            raise ConfigurationError(f"quantile {q!r} is not between 0 and 1; write one such as 0.99")


def _factors(system: System, scheme: str, policy: str, parts: Sequence[str]) -> list[tuple[str, ComposedModel]]:
    """Returns models of each part alone, and of all parts without replication."""
    factors = []
    if "path failure" in parts:
        alone = composed_model(without_outlets(system), scheme, "none", waits=False)
        factors.append(("path failure alone", alone))
    if "queueing" in parts or "replication" in parts:
        factors.append(("queueing alone", composed_model(without_outlets(without_failures(system)), scheme, "none")))
    if "dropping" in parts:
        factors.append(("dropping alone", composed_model(without_failures(system), scheme, policy, waits=False)))
    if "replication" in parts:
        factors.append(("composed without replication", composed_model(without_replication(system), scheme, policy)))
    return factors


def _add_variant(
    builder: ReportBuilder, model: ComposedModel, variant: str, quantiles: Sequence[float]
) -> list[AssumptionError]:
    """Adds the figures of all subscribers; returns the refusals of those that cannot be served."""
    served: dict[str, _Served] = {}
    outcomes: dict[tuple[object, ...], _Served | AssumptionError] = {}
    refusals = []
    flows_of = _by_interest(model)
    many = len(flows_of) > _QUANTILES_MAX
    if many and quantiles:
        builder.note(f"composed: quantiles of delays are left out for more than {_QUANTILES_MAX} different interests")
    for subscriber, interest in zip(model.system.subscribers, model.flows.interest_of.tolist(), strict=True):
        if interest not in flows_of:
            continue
        outlet = subscriber.connectivity is not None or subscriber.service is not None
        key: tuple[object, ...] = (interest,)
        if outlet:
            key = (interest, repr(subscriber.connectivity), repr(subscriber.service), subscriber.response_target_s)
        if key not in outcomes:
            try:
                outcomes[key] = _serve(model, subscriber, flows_of[interest], () if many else quantiles)
            except AssumptionError as refusal:
                outcomes[key] = refusal
        outcome = outcomes[key]
        if isinstance(outcome, AssumptionError):
            refusals.append(outcome)
        else:
            served[subscriber.name] = outcome
    if not served:
        raise refusals[0]
    _add_subscribers(builder, served, variant, () if many else quantiles)
    _add_system(builder, model.system, served, variant)
    return refusals


def _by_interest(model: ComposedModel) -> dict[int, NDArray[np.intp]]:
    """Returns the flows of each interest that has any."""
    order = np.argsort(model.flows.interest, kind="stable")
    cuts = np.flatnonzero(np.diff(model.flows.interest[order])) + 1
    return {int(model.flows.interest[part[0]]): part for part in np.split(order, cuts) if len(part)}


def _serve(
    model: ComposedModel, subscriber: Subscriber, flows: NDArray[np.intp], quantiles: Sequence[float]
) -> _Served:
    """Composes the parts for one subscriber: over its flows, with the weight of their rates (reliability Eq. 2)."""
    if subscriber.connectivity is None and subscriber.service is None:
        return _serve_steady(model, flows, quantiles)
    outlook, clients, ways = model.outlook(subscriber, flows), model.delivery.client_up, model.ways
    rates = model.flows.rate_per_s[flows]
    weights = rates / rates.sum()
    mechanism = None if outlook.outcome is None else outlook.outcome.mechanism
    on_time = delivered = waiting = expired = input_expired = 0.0
    mixture: dict[tuple[object, ...], tuple[float, EventDelay]] = {}
    for weight, flow in zip(weights.tolist(), flows.tolist(), strict=True):
        way, deadline = int(ways.of_flow[flow]), float(model.delivery.flow_deadline_s[flow])
        passage, waits = ways.passage(way), ways.waits[way]
        arrives = weight * clients**2 * float(ways.reach[flow])
        if arrives <= 0.0:
            continue
        # what waits for a repair and is late by the queues is dropped on the way, not delivered late
        moving = waits.surviving(partial(_in_time, passage, deadline))
        surviving = (
            moving if mechanism is None or not mechanism.expires else moving.surviving(partial(_survives, mechanism))
        )
        expired += arrives * (1.0 - moving.total / waits.total)
        input_expired += arrives * (moving.total - surviving.total) / waits.total
        got = arrives * surviving.total / waits.total * outlook.success_share
        delivered += got
        delay = EventDelay(surviving, passage, outlook.response)
        on_time += arrives * outlook.success_share * delay.within(deadline) / waits.total
        same = math.isclose(surviving.total, waits.total, rel_tol=1e-12)
        waited = float(ways.waited_s[way]) if same else _mean(surviving.times_s, surviving.shares)
        lives = outlook.outcome is not None and mechanism is not None and mechanism.expires
        before = outlook.outcome.input_s if lives and outlook.outcome is not None else float(ways.total_s[way])
        waiting += got * (waited + before)
        key = (id(waits), passage, deadline)
        entry = mixture.get(key, (0.0, delay))
        mixture[key] = (entry[0] + arrives / waits.total, entry[1])
    times = tuple(mixture_quantile_s(list(mixture.values()), q) for q in quantiles) if delivered > 0 else ()
    return _Served(
        min(on_time, delivered),
        delivered,
        waiting / delivered + outlook.response_mean_s if delivered > 0 else math.nan,
        outlook.response_mean_s,
        _losses(model, flows, weights, outlook, (expired, input_expired)),
        times,
        float(rates.sum()) * delivered,
        outlook.response is not None,
    )


def _serve_steady(model: ComposedModel, flows: NDArray[np.intp], quantiles: Sequence[float]) -> _Served:
    """The same for a subscriber that is always connected, and to which transmission takes no time."""
    ways, rates = model.ways, model.flows.rate_per_s[flows]
    weights, of_flow = rates / rates.sum(), ways.of_flow[flows]
    arrives = weights * model.delivery.client_up**2 * ways.reach[flows]
    got = arrives * ways.delivered[of_flow]
    delivered, on_time = float(got.sum()), float(arrives @ ways.in_time[of_flow])
    sums = float(got @ (ways.waited_s[of_flow] + ways.total_s[of_flow]))
    times: tuple[float, ...] = ()
    if quantiles and delivered > 0.0:
        mixture = []
        for share, way, flow in zip(arrives.tolist(), of_flow.tolist(), flows.tolist(), strict=True):
            waits, passage = ways.waits[way], ways.passage(way)
            moving = waits.surviving(partial(_in_time, passage, float(model.delivery.flow_deadline_s[flow])))
            if share > 0.0:
                mixture.append((share / waits.total, EventDelay(moving, passage, None)))
        times = tuple(mixture_quantile_s(mixture, q) for q in quantiles)
    expired = float(arrives @ (1.0 - ways.delivered[of_flow]))
    return _Served(
        min(on_time, delivered),
        delivered,
        sums / delivered if delivered > 0.0 else math.nan,
        0.0,
        _losses(model, flows, weights, None, (expired, 0.0)),
        times,
        float(rates.sum()) * delivered,
        False,
    )


def _survives(mechanism: Mechanism, times_s: Array) -> Array:
    """Returns P[an event survives a wait for repairs]."""
    if mechanism.lifetime_distribution == "exponential":
        return np.asarray(np.exp(-times_s / mechanism.lifetime_s), dtype=np.float64)
    return np.asarray(times_s < mechanism.lifetime_s, dtype=np.float64)


def _mean(times_s: Array, shares: Array) -> float:
    return float(times_s @ shares / shares.sum()) if shares.sum() > 0 else 0.0


def _in_time(passage: Passage, deadline_s: float, times_s: Array) -> Array:
    """Returns P[an event that waited for repairs can still be in time after the queues on its way]; 1 if it did not."""
    if deadline_s == math.inf:
        return np.ones(len(times_s))
    return np.where(times_s > 0.0, passage.within(deadline_s - times_s), 1.0)


def _losses(
    model: ComposedModel,
    flows: NDArray[np.intp],
    weights: Array,
    outlook: Outlook | None,
    expired: tuple[float, float],
) -> dict[str, float]:
    """Shares lost, by reason: on the way as in the reliability model, then at the subscriber's queue.

    `expired` are the shares that expire by the queues on the way: waiting for a repair, and by the drop policy.
    """
    clients, answer, ways = model.delivery.client_up, model.answer, model.ways
    lost = {reason: float(clients * weights @ shares[flows]) for reason, shares in answer.dropped.items()}
    arriving = float(weights @ ways.reach[flows])
    passing, stored = weights * (answer.reliability[flows] - ways.reach[flows]), model.stored_flows[flows]
    for reason, of_flows in (("expired", stored), (LOST_ON_LINKS, ~stored)):
        lost[reason] = lost.get(reason, 0.0) + clients * float(passing[of_flows].sum())
    reaching = clients**2 * arriving - sum(expired)
    if clients < 1.0:
        lost["client link down"] = (1.0 - clients) * (1.0 + clients * arriving)
    for reason, share in zip(("expired", "expired in input queue"), expired, strict=True):
        lost[reason] = lost.get(reason, 0.0) + share
    for reason, share in outlook.dropped.items() if outlook is not None else ():
        lost[reason] = lost.get(reason, 0.0) + reaching * share
    return {reason: share for reason, share in lost.items() if share > _ROUNDING}


def _add_subscribers(
    builder: ReportBuilder, served: Mapping[str, _Served], variant: str, quantiles: Sequence[float]
) -> None:
    """Adds the figures of all subscribers, one metric after the other."""
    names, rows = tuple(served), list(served.values())

    def add(metric: str, values: Sequence[float], detail: str = "", most: float = math.inf) -> None:
        array = np.clip(np.array(values, dtype=np.float64), 0.0, most)
        there = ~np.isnan(array)
        if there.any():
            builder.add_many(
                "subscriber", names, metric, np.where(there, array, 0.0), how=_HOW, detail=detail, variant=variant,
                where=there,
            )  # fmt: skip

    on_time = [row.on_time for row in rows]
    add("reliability", on_time, most=1.0)
    add("share_on_time", on_time, most=1.0)
    add("share_late", [row.delivered - row.on_time for row in rows], most=1.0)
    add("success_share", [row.delivered for row in rows], most=1.0)
    for reason in dict.fromkeys(reason for row in rows for reason in row.dropped):
        add("share_dropped", [row.dropped.get(reason, math.nan) for row in rows], reason, 1.0)
    add("share_dropped", [math.fsum(row.dropped.values()) for row in rows], most=1.0)
    add("throughput_per_s", [row.delivered_per_s for row in rows])
    add("delay_mean_s", [row.delay_mean_s for row in rows])
    responses = [row.response_mean_s if row.responds and row.delivered > 0.0 else math.nan for row in rows]
    add("response_mean_s", responses)
    for i, q in enumerate(quantiles):
        values = [row.quantiles_s[i] if row.quantiles_s else math.nan for row in rows]
        add("delay_quantile_s", values, f"p{100 * q:.10g}")


def _add_system(builder: ReportBuilder, system: System, served: Mapping[str, _Served], variant: str) -> None:
    """Adds means over the subscribers: of shares as they stand, of delays over the events delivered."""
    count = len(served)
    means = {
        "reliability": math.fsum(figures.on_time for figures in served.values()) / count,
        "success_share": math.fsum(figures.delivered for figures in served.values()) / count,
    }
    for metric, value in means.items():
        builder.add("system", "", metric, min(value, 1.0), how=_HOW, variant=variant)
    got = {name: figures for name, figures in served.items() if figures.delivered > 0}
    total = math.fsum(figures.delivered_per_s for figures in got.values())
    if total > 0:
        mean = math.fsum(figures.delivered_per_s * figures.delay_mean_s for figures in got.values()) / total
        builder.add("system", "", "delay_mean_s", mean, how=_HOW, variant=variant)
    targets = [
        (served[s.name].on_time >= s.reliability_target)
        for s in system.subscribers
        if s.name in served and s.reliability_target is not None
    ]
    targets += [
        (served[s.name].delay_mean_s <= s.response_target_s)
        for s in system.subscribers
        if s.name in served and s.response_target_s is not None
    ]
    if targets:
        builder.add("system", "", "targets_met_share", sum(targets) / len(targets), how=_HOW, variant=variant)


def _add_brokers(builder: ReportBuilder, model: ComposedModel) -> None:
    """Each broker's load, the time it takes, and how much of the time it serves."""
    for i, broker in enumerate(model.system.overlay.brokers):

        def add(metric: str, value: float, how: str = _HOW, name: str = broker.name) -> None:
            builder.add("broker", name, metric, value, how=how, variant=COMPOSED_VARIANT)

        add("availability", float(model.delivery.components.broker_up[i]))
        if model.groups is not None or model.stations.utilisation[i] > 0.0:
            add("utilisation", model.stations.utilisation[i])
        if model.passages[i].total_s > 0.0:
            add("delay_mean_s", model.staying_s[i])


def _add_assumptions(builder: ReportBuilder, model: ComposedModel, parts: Sequence[str]) -> None:
    """Adds a warning for each independence that is assumed between parts that are there, and notes on the rest."""
    for needed, sentence in _INDEPENDENCE:
        if needed <= set(parts):
            builder.warn(f"composed: {sentence}")
    system = model.system
    builder.note(f"composed: {' and '.join(parts)} together, under {model.label}; delays are of delivered events")
    for note in model.answer.notes:
        builder.note(note)
    if parts and model.stores:
        builder.note(
            "composed: a wait for repairs or for another copy ends at an attempt, so it takes whole retransmission "
            "intervals; an event whose deadline passes in such a wait is dropped, one that is late by queues is "
            "delivered late"
        )
    for name, error in reliability_errors(model).items():
        builder.warn(
            f"composed: subscriber {name}: may be off by {error:.2f} in reliability and by 13 % in mean delay: its "
            "events pass several groups, leave each in batches, and are taken to come to the next at random"
        )
    for warning in model.warnings:
        builder.warn(warning)
    if model.delivery.components.simplified:
        names = ", ".join(model.delivery.components.simplified)
        builder.warn(f"groups with many states have up and down times with the same moments instead: {names}")
    if any(link.burst_mean is not None for link in system.overlay.links):
        builder.leave_out("not modelled by the composed model: losses in bursts (overlay.links.burst)")
    for sentence in left_out(system, "the composed model"):
        builder.leave_out(sentence)


_INDEPENDENCE = (
    (
        {"loss"},
        "links lose messages independently of each other, in bursts or not, and no refresh of a subscription",
    ),
    (
        {"path failure"},
        "brokers, links and the clients' links fail independently of each other and of what they carry",
    ),
    (
        {"queueing"},
        "the queues on a way are independent of each other, and events come to each of them at random (Poisson), but "
        "for what regular service before it spaces out",
    ),
    (
        {"path failure", "queueing"},
        "queueing is independent of failures, but for the backlog that a repair lets in: it drains as a fluid",
    ),
    (
        {"replication"},
        "the time that a group takes to order an event is independent of its outages: all its replicas are up",
    ),
    (
        {"dropping"},
        "a subscriber's connected periods are independent of what is published, of all queues and of all failures",
    ),
    (
        {"path failure", "dropping"},
        "a subscriber's queue is independent of failures: while events come they come at random (Poisson) at their "
        "usual rate; an outage of the home broker makes all that waits there later by its length, on or off line",
    ),
)
