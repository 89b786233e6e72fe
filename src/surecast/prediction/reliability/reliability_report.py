"""The reliability of a system by formula: one report over all schemes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError, refuse_unknown
from surecast.prediction.overload import refuse_overloaded_events
from surecast.prediction.reliability.inversion import Mixtures
from surecast.prediction.reliability.pairs import Connection, PairConnections, connect_pairs
from surecast.prediction.reliability.price import DUPLICATE, Price, price_of
from surecast.prediction.reliability.reliability_model import DeliveryModel, delivery_model
from surecast.prediction.reliability.scheme_reliability import SCHEMES, SchemeAnswer, Term, answers
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import has_part, left_out
from surecast.scenario.system import System

__all__ = ["predict_reliability", "scheme_connections", "subscriber_reliabilities"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Delays = Literal["arrived", "all"]

_CERTAIN = ("home broker down", "path down")
"""Reasons of loss whose shares are exact under every scheme."""
SAMPLES: Final = 40_000
"""States of the overlay that are sampled where connections are not computed exactly."""
_TIMES = ("link capacity", "physical queues", "transmission", "matching", "connectivity", "coding")
"""The parts of a scenario that take time and are left out of the delays."""


def predict_reliability(
    system: System,
    schemes: Sequence[str] | None = None,
    *,
    connection: Connection = "auto",
    ideal: bool = False,
    delays: Delays = "arrived",
    quantiles: Sequence[float] = (0.99,),
    samples: int = SAMPLES,
    load: System | None = None,
) -> QoSReport:
    """Returns real-time reliability, delays and price of a system under each scheme; each is a variant of the report.

    `connection` says how the connection probabilities of the bypass schemes are found: exactly, by the paper's lower
    bound, from `samples` sampled states, or (auto) exactly where that is quick and else sampled. With `ideal`
    subscriptions are refreshed and stored events passed on at once, as in the paper; otherwise at the intervals of the
    scenario. `delays` are those of the events that `arrived` in time, or of `all` that were not lost at a dead home
    broker, as if they lived forever. `load` is the system whose events load the brokers and links, where this one is
    a variation of it; left out, the system itself.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: pair
    ... overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}
    ... availability: {brokers: {availability: 0.9, period: 1000s}}
    ... workload:
    ...   topics: [t]
    ...   deadline: 100s
    ...   publishers: [{name: p, home: a, topics: [t], rate: 1/s}]
    ...   subscribers: [{name: s, home: b, topics: [t]}]
    ... '''))
    >>> report = predict_reliability(system, ideal=True)
    >>> for scheme in report.variants:
    ...     print(scheme, round(report.value("reliability", name="s", variant=scheme), 4))
    none 0.0
    periodic-subscription 0.81
    buffering 0.8656
    bypass 0.81
    bypass-buffering 0.8656
    """
    chosen = _checked(SCHEMES if schemes is None else tuple(schemes), quantiles, delays)
    refuse_overloaded_events(system if load is None else load)
    model = delivery_model(system, ideal=ideal, timed=True, load=load)
    builder = ReportBuilder.of_system(
        system, "predicted", schemes=list(chosen), connection=connection, ideal=ideal, delays=delays
    )
    scheme_answers, connections, tails = _answered(model, chosen, connection, samples)
    connected = None if connections is None else connections.value
    names = tuple(s.name for s in system.subscribers)
    for answer in scheme_answers:
        _add_reliability(builder, model, answer, names)
        if answer.late is None:
            _add_passing(builder, model, answer, names)
        else:
            _add_delays(builder, model, answer, answer.late, names, delays, quantiles)
        _add_price(builder, answer.scheme, price_of(model, answer.scheme, connected, tails))
        for note in answer.notes:
            builder.note(note)
    if connections is not None and connections.bound is not None and "bypass" in chosen:
        _add_bound(builder, model, connections.bound, names)
    _add_assumptions(builder, model, chosen)
    return builder.build()


def subscriber_reliabilities(system: System, scheme: str) -> dict[str, float]:
    """Returns the reliability of each subscriber that has one, as `predict_reliability` does, and nothing else.

    A search asks for it many times: it takes less than half as long as a report.

    >>> from surecast.scenario import load_system
    >>> system = load_system("examples/reliability-tree.yaml")[1]
    >>> report = predict_reliability(system, ["buffering"])
    >>> subscriber_reliabilities(system, "buffering") == report.values("reliability", scope="subscriber")
    True
    """
    (chosen,) = _checked((scheme,), (), "arrived")
    refuse_overloaded_events(system)
    model = delivery_model(system, ideal=False, timed=True, load=None)
    ((answer,), _, _) = _answered(model, (chosen,), "auto", SAMPLES)
    values = _per_subscriber(model, model.client_up**2 * answer.reliability)
    return {
        subscriber.name: value
        for subscriber, value in zip(system.subscribers, values.tolist(), strict=True)
        if not math.isnan(value)
    }


def _answered(
    model: DeliveryModel, chosen: tuple[str, ...], connection: Connection, samples: int
) -> tuple[list[SchemeAnswer], PairConnections | None, Array]:
    """Returns the answer for each scheme, the connections of flows where a scheme needs them, and the shares of entries
    that come too late."""
    tails, means = np.zeros(0), np.zeros(0)
    if any(scheme.endswith("buffering") for scheme in chosen):
        tails, means = model.delays(model.spread.path, model.spread_patience_s)
    connections, bare = scheme_connections(model, chosen, connection, samples)
    scheme_answers = answers(model, chosen, (tails, means), connections, bare)
    return [_timed(model, answer) for answer in scheme_answers], connections, tails


def scheme_connections(
    model: DeliveryModel, chosen: tuple[str, ...], connection: Connection = "auto", samples: int = SAMPLES
) -> tuple[PairConnections | None, PairConnections | None]:
    """Returns the connections of flows where a scheme needs them, and those with links that never fail."""
    connections = bare = None
    if any(scheme.startswith("bypass") for scheme in chosen):
        connections = _flow_connections(model, connection, samples)
    if connections is not None and "bypass-buffering" in chosen:
        # these only say how partitions are shared between brokers and links, so fewer samples do
        sampled = connections.samples is not None
        bare = _flow_connections(model.bare, "monte-carlo" if sampled else connection, max(samples // 4, 1))
    return connections, bare


def _per_subscriber(model: DeliveryModel, values: Array) -> Array:
    """Returns each subscriber's share, of shares of flows (reliability Eq. 2); NaN where nobody publishes to it."""
    return np.clip(model.flows.per_subscriber(model.flows.weighted(values)), 0.0, 1.0)


def _add_bound(builder: ReportBuilder, model: DeliveryModel, bound: Array, names: tuple[str, ...]) -> None:
    """The paper's bound (reliability Eq. 12), beside probabilities that were sampled."""
    by_flow = model.client_up**2 * np.minimum(bound, model.home_up) * model.in_time
    values = model.flows.per_subscriber(model.flows.weighted(by_flow))
    how = "lower_bound" if _takes_no_time(model) else "approximation"
    _add_many(builder, names, "reliability", values, how, "bypass (bound)")
    mean = float(np.nanmean(values))
    builder.add("system", "", "reliability", mean, how=how, variant="bypass (bound)")


def _checked(schemes: tuple[str, ...], quantiles: Sequence[float], delays: str) -> tuple[str, ...]:
    refuse_unknown("scheme", schemes, SCHEMES)
    for q in quantiles:
        if not 0 < q < 1:
            raise ConfigurationError(f"quantile {q!r} is not between 0 and 1; write one such as 0.99")
    if delays not in ("arrived", "all"):
        raise ConfigurationError(f"delays of {delays!r} events are not known; write 'arrived' or 'all'")
    return tuple(dict.fromkeys(schemes))


def _flow_connections(model: DeliveryModel, mode: Connection, samples: int) -> PairConnections:
    """Returns connection probabilities for each flow; each pair of brokers, in either direction, is computed once."""
    if mode not in ("auto", "exact", "bound", "monte-carlo"):
        raise ConfigurationError(f"unknown connection {mode!r}; write auto, exact, bound or monte-carlo")
    path = model.flow_path
    ends = np.sort(np.stack([model.paths.first[path], model.paths.last[path]], axis=1), axis=1)
    pairs, back = np.unique(ends, axis=0, return_inverse=True)
    back = back.ravel()
    connections = connect_pairs(model.system, model.components, pairs.astype(np.intp), mode, samples)
    low, high, bound = (None if v is None else v[back] for v in (connections.low, connections.high, connections.bound))
    return PairConnections(
        connections.value[back], low, high, connections.how, connections.note, connections.samples, bound
    )


def _add_many(
    builder: ReportBuilder,
    names: tuple[str, ...],
    metric: str,
    values: Array,
    how: str,
    variant: str,
    detail: str = "",
    low: Array | None = None,
    high: Array | None = None,
) -> None:
    """One figure per subscriber; a subscriber with no matching publisher has none."""
    exists = ~np.isnan(values)
    builder.add_many(
        "subscriber",
        names,
        metric,
        np.where(exists, values, 0.0),
        how=how,
        variant=variant,
        detail=detail,
        low=low,
        high=high,
        where=exists,
    )


def _takes_no_time(model: DeliveryModel) -> bool:
    return model.times is None or model.times.is_zero


def _timed(model: DeliveryModel, answer: SchemeAnswer) -> SchemeAnswer:
    """Returns the answer with the time that brokers and links take: an event late by that alone counts as late, not
    lost.
    """
    times = model.times
    if times is None or times.is_zero:
        return answer
    fails = any(part is not None for part in (*model.components.brokers, *model.components.links))
    is_certain = times.is_constant and (not fails or answer.scheme in ("none", "periodic-subscription"))
    low, high = (None if end is None else end * model.in_time for end in (answer.low, answer.high))
    return replace(
        answer,
        reliability=answer.reliability * model.in_time,
        behind=answer.reliability * (1.0 - model.in_time),
        how=answer.how if is_certain else "approximation",
        low=low,
        high=high,
    )


def _add_reliability(
    builder: ReportBuilder, model: DeliveryModel, answer: SchemeAnswer, names: tuple[str, ...]
) -> None:
    scheme, client_up = answer.scheme, model.client_up

    def spread(values: Array) -> Array:
        return _per_subscriber(model, values)

    value = spread(client_up**2 * answer.reliability)
    defined = ~np.isnan(value)
    ends = [None if end is None else spread(client_up**2 * end) for end in (answer.low, answer.high)]
    low = None if ends[0] is None else np.minimum(ends[0], value)
    high = None if ends[1] is None else np.maximum(ends[1], value)
    means = [None if end is None else float(np.mean(end[defined])) for end in (low, high)]
    for metric in ("reliability", "share_on_time"):
        _add_many(builder, names, metric, value, answer.how, scheme, "", low, high)
        mean = float(np.mean(value[defined]))
        builder.add("system", "", metric, mean, how=answer.how, variant=scheme, low=means[0], high=means[1])
    opposite = {"lower_bound": "upper_bound"}.get(answer.how, answer.how)
    dropped = {reason: client_up * lost for reason, lost in answer.dropped.items()}
    arrived = answer.reliability
    if answer.behind is not None:
        arrived = arrived + answer.behind
        shares = spread(client_up**2 * answer.behind)
        _add_many(builder, names, "share_late", shares, answer.how, scheme)
        builder.add("system", "", "share_late", float(np.mean(shares[defined])), how=answer.how, variant=scheme)
    if client_up < 1:
        dropped["client link down"] = (1.0 - client_up) * (1.0 + client_up * arrived)
    for reason, lost in dropped.items():
        shares, how = spread(lost), "exact" if reason in _CERTAIN else opposite
        _add_many(builder, names, "share_dropped", shares, how, scheme, reason)
        mean = float(np.mean(shares[defined]))
        builder.add("system", "", "share_dropped", mean, how=how, variant=scheme, detail=reason)
    worst = int(np.nanargmin(value))
    builder.note(f"{scheme}: the worst served subscriber is {names[worst]}, reliability {value[worst]:.6g}")
    wanted = [s.reliability_target for s in model.system.subscribers]
    targets = np.array([np.nan if target is None else target for target in wanted], dtype=np.float64)
    targeted = ~np.isnan(targets) & defined
    if targeted.any():
        met = float(np.mean(value[targeted] >= targets[targeted]))
        builder.add("system", "", "targets_met_share", met, how=answer.how, variant=scheme)


def _add_passing(builder: ReportBuilder, model: DeliveryModel, answer: SchemeAnswer, names: tuple[str, ...]) -> None:
    """The delay of what is not stored: it arrives after the time on brokers and links, or never.

    Where that is none because the model leaves out what takes time, there is no figure.
    """
    delivered = answer.reliability if answer.behind is None else answer.reliability + answer.behind
    if _takes_no_time(model) and _leaves_out_time(model):
        return
    total_s = np.zeros_like(delivered) if model.times is None else model.times.total_s[model.flows.route]
    arrives, sums = model.flows.weighted(delivered), model.flows.weighted(delivered * total_s)
    by_interest = np.divide(sums, arrives, out=np.full(len(arrives), np.nan), where=arrives > 0)
    delay = model.flows.per_subscriber(by_interest)
    constant = model.times is None or model.times.is_constant
    how = "exact" if constant and not (answer.scheme == "bypass" and total_s.any()) else "approximation"
    _add_many(builder, names, "delay_mean_s", delay, how, answer.scheme)
    if not np.isnan(delay).all():
        builder.add("system", "", "delay_mean_s", float(np.nanmean(delay)), how=how, variant=answer.scheme)


def _leaves_out_time(model: DeliveryModel) -> bool:
    """Returns whether something that takes time is left out of the delays."""
    return any(has_part(model.system, part) for part in _TIMES)


def _add_delays(
    builder: ReportBuilder,
    model: DeliveryModel,
    answer: SchemeAnswer,
    late: tuple[Term, ...],
    names: tuple[str, ...],
    delays: Delays,
    quantiles: Sequence[float],
) -> None:
    flows, scheme = model.flows, answer.scheme
    table = model.table if len(late) == 1 else model.bypass_routes[0]
    limit = model.full_periods(model.flow_patience_s)
    if delays == "all":
        limit, none = np.full(len(flows.route), np.inf), np.zeros(len(flows.route))
        late = tuple(replace(t, tail=none, mean=np.where(t.route >= 0, table.means[t.route], 0.0)) for t in late)
    weight = flows.rate_per_s * model.home_up
    end = np.where(np.isfinite(limit), limit, 0.0)
    expired = sum((term.factor * term.tail for term in late), np.zeros(len(limit)))
    waited = sum((term.factor * (term.mean - end * term.tail) for term in late), np.zeros(len(limit)))
    count = len(flows.interests)
    total = np.bincount(flows.interest, weights=weight * (1.0 - expired), minlength=count)
    sums = np.bincount(flows.interest, weights=weight * np.maximum(waited, 0.0), minlength=count)
    by_interest = np.divide(sums, total, out=np.full(count, np.nan), where=total > 0)
    if not sums.any() and _takes_no_time(model) and _leaves_out_time(model):
        return
    passing_s, differs = _passing(model, weight * (1.0 - expired), count)
    values = flows.per_subscriber(by_interest + passing_s)
    _add_many(builder, names, "delay_mean_s", values, answer.how, scheme)
    builder.add("system", "", "delay_mean_s", float(np.nanmean(values)), how=answer.how, variant=scheme)
    if differs.any():
        builder.warn(
            f"{scheme}: not modelled: quantiles of the delay over queues, or over ways of different latency; the mean "
            "counts both"
        )
    mixtures, member = _mixtures(model, late, weight, limit)
    weights = np.bincount(flows.interest, weights=weight, minlength=count)
    firsts = np.unique(member, return_index=True)[1]
    for q in quantiles:
        targets = (weights - q * total)[firsts]
        times = table.quantiles(mixtures, targets)
        if model.interval_s > 0:
            times = np.ceil(times / model.interval_s * (1.0 - 1e-9)) * model.interval_s
        by_interest = np.where((total > 0) & ~differs, times[member] + passing_s, np.nan)
        values = flows.per_subscriber(by_interest)
        _add_many(builder, names, "delay_quantile_s", values, answer.how, scheme, f"p{100 * q:.10g}")


def _passing(model: DeliveryModel, weight: Array, count: int) -> tuple[Array, NDArray[np.bool_]]:
    """Returns the mean time on brokers and links by interest, and whether it varies and so cannot just be added."""
    if model.times is None:
        return np.zeros(count), np.zeros(count, dtype=np.bool_)
    flows, total_s = model.flows, model.times.total_s[model.flows.route]
    sums = np.bincount(flows.interest, weights=weight * total_s, minlength=count)
    weights = np.bincount(flows.interest, weights=weight, minlength=count)
    mean_s = np.divide(sums, weights, out=np.zeros(count), where=weights > 0)
    varies = (model.times.mean_s[flows.route] > 0) | ~np.isclose(total_s, mean_s[flows.interest], rtol=1e-9, atol=0.0)
    return mean_s, np.bincount(flows.interest, weights=varies, minlength=count) > 0


def _mixtures(model: DeliveryModel, terms: Sequence[Term], weight: Array, limit: Array) -> tuple[Mixtures, Index]:
    """Returns the distinct mixtures of routes over all interests, and the mixture of each interest."""
    count = len(model.flows.interests)
    route, factor, tail = (
        np.concatenate(parts) for parts in zip(*((t.route, weight * t.factor, t.tail) for t in terms), strict=True)
    )
    interest, limits = np.tile(model.flows.interest, len(terms)), np.tile(limit, len(terms))
    order = np.argsort(interest, kind="stable")
    # a flow's own route always has its entry, others only if they count
    order = order[(order < len(limit)) | (factor[order] != 0)]
    starts = np.zeros(count + 1, dtype=np.intp)
    np.cumsum(np.bincount(interest[order], minlength=count), out=starts[1:])
    columns = np.stack([route[order].astype(np.float64), factor[order], limits[order]], axis=1)
    number_of: dict[bytes, int] = {}
    member = np.empty(count, dtype=np.intp)
    rows: list[Index] = []
    for i in range(count):
        key = columns[starts[i] : starts[i + 1]].tobytes()
        member[i] = number_of.setdefault(key, len(number_of))
        if member[i] == len(rows):
            rows.append(order[starts[i] : starts[i + 1]])
    entries = np.concatenate(rows)
    ends = np.cumsum([0, *(len(row) for row in rows)]).astype(np.intp)
    return Mixtures(ends, route[entries], factor[entries], limits[entries], tail[entries]), member


def _add_price(builder: ReportBuilder, scheme: str, price: Price) -> None:
    for kind, (value, how) in price.items():
        builder.add("system", "", "messages_per_event", value, how=how, detail=kind, variant=scheme)
    counted = [figure for kind, figure in price.items() if kind != DUPLICATE]
    total = sum(value for value, _ in counted)
    how = "exact" if all(how == "exact" for _, how in counted) else "approximation"
    builder.add("system", "", "messages_per_event", total, how=how, variant=scheme)


def _add_assumptions(builder: ReportBuilder, model: DeliveryModel, chosen: tuple[str, ...]) -> None:
    system, client_up = model.system, model.client_up
    if client_up < 1:
        builder.note(
            f"client links are up {client_up:.6g} of the time, each independently of all else: the publisher's must be "
            "up at publication and the subscriber's when the event gets to its home; nothing is stored for clients"
        )
    for sentence in left_out(system, "the reliability model"):
        builder.leave_out(sentence)
    if not _takes_no_time(model):
        builder.note(
            "delays have the latency of links, and queues at brokers that are independent of each other and of failures"
        )
        detours = [scheme for scheme in chosen if scheme.startswith("bypass")]
        if detours and any(part is not None for part in (*model.components.brokers, *model.components.links)):
            builder.warn(f"{' and '.join(detours)}: a detour is taken to last as long as the way that it replaces")
    if model.components.simplified:
        names = ", ".join(model.components.simplified)
        builder.warn(f"groups with many states have up and down times with the same moments instead: {names}")
