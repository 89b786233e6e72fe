"""The quality of service of subscribers that come and go, by formula: one report over the dropping policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from surecast.errors import AssumptionError, ConfigurationError, SaturationError, refuse_unknown
from surecast.prediction.broker_inputs import BrokerInput
from surecast.prediction.dropping.choose import POLICIES, MechanismOutcome, choose, through_input
from surecast.prediction.dropping.queue import after
from surecast.prediction.dropping.stages_before import SubscriberQueue, outlets_of
from surecast.prediction.overload import refuse_overloaded_events
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.system import System

__all__ = ["predict_dropping"]

_TOLERANCE = 1e-9


def predict_dropping(
    system: System,
    policies: Sequence[str] | Mapping[str, Mechanism] | None = None,
    *,
    protect_connected: bool = True,
    quantiles: Sequence[float] = (0.5, 0.9, 0.99),
) -> QoSReport:
    """Returns success shares, response times and losses of the subscribers that disconnect; each policy is a variant.

    `policies` are names, whose parameters come from the scenario or are the largest that meet each subscriber's target;
    or mechanisms by name, for mixtures and for parameters of one's own. Left out, the policy of the scenario. With
    `protect_connected` the optimal policy drops nothing while the subscriber is connected.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: commuter
    ... overlay: {brokers: [{name: b, capacity: 16/s}]}
    ... workload:
    ...   topics: [t]
    ...   publishers: [{name: p, home: b, topics: [t], rate: 2/s}]
    ...   subscribers:
    ...     - {name: s, home: b, topics: [t], connectivity: {on: 20s, off: 20s}, service: 8/s, response_target: 7s}
    ... delivery: {dropping: {policy: probabilistic, join_probability: auto}}
    ... '''))
    >>> report = predict_dropping(system, ["probabilistic", "finite-buffer", "expiry", "optimal"])
    >>> for policy in report.variants:
    ...     share = report.value("success_share", name="s", variant=policy)
    ...     delay = report.value("delay_mean_s", name="s", variant=policy)
    ...     print(f"{policy}: {share:.4f} delivered, {delay:.3f} s on average")
    probabilistic: 0.6749 delivered, 7.000 s on average
    finite-buffer: 0.6925 delivered, 6.950 s on average
    expiry: 0.8514 delivered, 7.000 s on average
    optimal: 0.6965 delivered, 7.000 s on average
    """
    names = (system.delivery.dropping.policy,) if policies is None else tuple(dict.fromkeys(policies))
    mechanisms = policies if isinstance(policies, Mapping) else {}
    refuse_unknown("policy", [policy for policy in names if policy not in mechanisms], POLICIES)
    for q in quantiles:
        if not 0 < q < 1:
            raise ConfigurationError(f"quantile {q!r} is not between 0 and 1; write one such as 0.99")
    builder = ReportBuilder.of_system(system, "predicted", policies=list(names), protect_connected=protect_connected)
    refuse_overloaded_events(system)
    outlets, inputs = outlets_of(system, builder.note, builder.warn)
    if not outlets:
        raise AssumptionError(
            "no subscriber both disconnects and has a publisher; give workload.subscribers a connectivity such as "
            "{on: 20s, off: 20s}"
        )
    refusals = []
    for policy in names:
        mechanism = mechanisms.get(policy)

        def outcome(
            outlet: SubscriberQueue, policy: str = policy, mechanism: Mechanism | None = mechanism
        ) -> MechanismOutcome:
            if mechanism is not None:
                return through_input(outlet, mechanism)
            return choose(outlet, policy, system.delivery.dropping, protect_connected=protect_connected)

        refusals += _add_policy(builder, policy, outlets, outcome, quantiles)
        _add_brokers(builder, system, inputs, policy)
    if len(refusals) == len(names) * len(outlets):
        raise refusals[0]
    _add_assumptions(builder, system, names)
    return builder.build()


def _add_policy(
    builder: ReportBuilder,
    policy: str,
    outlets: Sequence[SubscriberQueue],
    outcome: Callable[[SubscriberQueue], MechanismOutcome],
    quantiles: Sequence[float],
) -> list[AssumptionError]:
    """Adds the figures of one policy; returns the refusals, which the report shows as warnings."""
    results: dict[tuple[object, ...], tuple[MechanismOutcome, list[tuple[str, float, str, str]]]] = {}
    refusals = []
    weights, shares, met = [], [], []
    for outlet in outlets:
        subscriber, queue = outlet.subscriber, outlet.queue
        rates = (queue.arrival_per_s, queue.service_per_s, outlet.before_s, outlet.exact, outlet.exponential)
        key = (*rates, id(queue.phases), subscriber.response_target_s)
        try:
            if key not in results:
                result = outcome(outlet)
                results[key] = result, _figures(result, outlet, quantiles)
        except AssumptionError as refusal:
            text = str(refusal)
            named = text if subscriber.name in text else f"subscriber {subscriber.name}: {text}"
            builder.warn(f"{policy}: {named}")
            kind = SaturationError if isinstance(refusal, SaturationError) else AssumptionError
            refusals.append(kind(f"{policy}: {named}"))
            if subscriber.response_target_s is not None:
                met.append(0.0)
            continue
        result, figures = results[key]
        for metric, value, detail, how in figures:
            builder.add("subscriber", subscriber.name, metric, value, how=how, detail=detail, variant=policy)
        weights.append(queue.arrival_per_s)
        shares.append(result)
        if subscriber.response_target_s is not None:
            met.append(1.0 if result.delay_mean_s <= subscriber.response_target_s * (1.0 + _TOLERANCE) else 0.0)
    if shares:
        _add_system(builder, policy, weights, shares)
    if met:
        how = "exact" if all(result.exact for result in shares) else "approximation"
        builder.add("system", "", "targets_met_share", math.fsum(met) / len(met), how=how, variant=policy)
    return refusals


def _figures(
    outcome: MechanismOutcome, outlet: SubscriberQueue, quantiles: Sequence[float]
) -> list[tuple[str, float, str, str]]:
    """Returns metric, value, detail and how of all figures of one subscriber."""
    answer, mechanism, rate = outcome.answer, outcome.mechanism, outlet.queue.arrival_per_s
    how = "exact" if outcome.exact else "approximation"
    away = 1.0 - answer.connected_share
    turned = math.fsum(lost for reason, lost in answer.dropped.items() if reason in _TURNED_AWAY)
    rows = [
        ("success_share", min(outcome.success_share, 1.0), "", how),
        ("response_mean_s", answer.response_mean_s, "", how),
        ("delay_mean_s", outcome.delay_mean_s, "", how),
        ("queue_length_mean", answer.queue_length_mean, "", how),
        ("throughput_per_s", rate * outcome.success_share, "", how),
        ("rate_in_per_s", rate, "", "exact"),
        ("join_probability", min(max(1.0 - turned / away, 0.0), 1.0), "", how),
        ("availability", answer.connected_share, "", "exact"),
    ]
    dropped = outcome.dropped
    rows.append(("share_dropped", min(math.fsum(dropped.values()), 1.0), "", how))
    rows += [("share_dropped", lost, reason, how) for reason, lost in dropped.items()]
    if not mechanism.expires:
        # dropping Fig. 7; whether an event that came while connected expires later is not known by formula
        rows.append(("failed_connected_share", min(max(answer.lost_while_connected, 0.0), 1.0), "", how))
    if mechanism.buffer_size is not None:
        rows.append(("buffer_size", float(mechanism.buffer_size), "", how))
    if mechanism.expires:
        rows.append(("event_lifetime_s", mechanism.lifetime_s, "", how))
    whole = after(answer.law, outcome.input_s) if outlet.exponential or outcome.input_s == 0.0 else None
    for q in quantiles:
        detail = f"p{100 * q:.10g}"
        rows.append(("response_quantile_s", answer.quantile_s(q), detail, how))
        if whole is not None:
            rows.append(("delay_quantile_s", whole.quantile_s(q), detail, how))
    wanted = outlet.subscriber.response_target_s
    if wanted is not None:
        met = outcome.delay_mean_s <= wanted * (1.0 + _TOLERANCE)
        rows.append(("targets_met_share", 1.0 if met else 0.0, "", how))
    return rows


_TURNED_AWAY = ("rejected while disconnected", "buffer full while disconnected")


def _add_system(
    builder: ReportBuilder, policy: str, weights: Sequence[float], outcomes: Sequence[MechanismOutcome]
) -> None:
    """Adds means over the subscribers: of shares as they stand, of times over the events delivered."""
    how = "exact" if all(outcome.exact for outcome in outcomes) else "approximation"
    count = len(outcomes)
    share = min(math.fsum(outcome.success_share for outcome in outcomes) / count, 1.0)
    delivered = [weight * outcome.success_share for weight, outcome in zip(weights, outcomes, strict=True)]
    total = math.fsum(delivered)
    response = (
        math.fsum(d * outcome.answer.response_mean_s for d, outcome in zip(delivered, outcomes, strict=True)) / total
    )
    delay = math.fsum(d * outcome.delay_mean_s for d, outcome in zip(delivered, outcomes, strict=True)) / total
    for metric, value in (
        ("success_share", share),
        ("response_mean_s", response),
        ("delay_mean_s", delay),
        ("throughput_per_s", total),
    ):
        builder.add("system", "", metric, value, how=how, variant=policy)


def _add_brokers(builder: ReportBuilder, system: System, inputs: Sequence[BrokerInput], policy: str) -> None:
    for broker, broker_input in zip(system.overlay.brokers, inputs, strict=True):
        how = "exact" if broker_input.exact and len(inputs) == 1 else "approximation"
        builder.add("broker", broker.name, "rate_in_per_s", broker_input.rate_per_s, how="exact", variant=policy)
        if broker.notification_service is not None:
            builder.add("broker", broker.name, "utilisation", broker_input.utilisation, how="exact", variant=policy)
            builder.add("broker", broker.name, "delay_mean_s", broker_input.delay_mean_s, how=how, variant=policy)
            builder.add("broker", broker.name, "queue_length_mean", broker_input.mean_number, how=how, variant=policy)


def _add_assumptions(builder: ReportBuilder, system: System, policies: Sequence[str]) -> None:
    builder.note(
        "the target bounds the mean time from publication to the end of transmission over the events delivered; many "
        "of them take longer: see the quantiles"
    )
    builder.note("join_probability is the share of the events published while disconnected that join the queue")
    if "expiry" in policies and any(b.notification_service is not None for b in system.overlay.brokers):
        builder.note(
            "lifetimes count from publication; the part of them that is spent in the input queue enters by its mean"
        )
    periods = [s.connectivity for s in system.subscribers if s.connectivity is not None]
    if "optimal" in policies and any(abs(p.squared_cv - 1.0) > _TOLERANCE for c in periods for p in (c.on, c.off)):
        builder.note(
            "optimal: where periods are not exponential, the better of a threshold and a join probability; there may "
            "be better policies"
        )
    for sentence in left_out(system, "the dropping model"):
        builder.leave_out(sentence)
