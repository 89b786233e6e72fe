"""The capacity of a system by formula: one report over all routing algorithms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.predict.capacity.delays import Delays, delays_of, wait_spread
from surecast.predict.capacity.filters import remote_entries
from surecast.predict.capacity.headroom import headroom
from surecast.predict.capacity.model import ALGORITHMS, CapacityModel, Loads, capacity_model
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.system import System

__all__ = ["predict_capacity"]

Array = NDArray[np.float64]

_KINDS = ("notification", "control")
_SPREAD_MAX = 0.2
_NAMED_MAX = 5


def predict_capacity(
    system: System, algorithms: Sequence[str] | None = None, *, shared_directions: bool = True
) -> QoSReport:
    """Routing tables, message rates, utilisation and delays of a system under each routing algorithm.

    Each algorithm is a variant of the report; left out, all nine of `ALGORITHMS`. The system needs filter classes and
    an overlay without cycles. Where a component is overloaded, a warning names it and the variant has no delays.
    With `shared_directions` both directions of a physical link share one queue, otherwise each has its own; a router
    is always one queue.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: pair
    ... overlay: {brokers: [{name: a, capacity: 100/s}, {name: b, capacity: 100/s}], links: [[a, b]]}
    ... workload:
    ...   classes: [{name: c, count: 50}]
    ...   clients: [{name: x, home: a}, {name: y, home: b}]
    ...   subscriptions: {active: 100, lifetime: 100s}
    ...   publications: 20/s
    ... '''))
    >>> report = predict_capacity(system, ["flooding", "peer-to-peer covering"])
    >>> for algorithm in report.variants:
    ...     rate = report.value("message_rate_per_s", variant=algorithm)
    ...     delay = report.value("notification_delay_worst_s", variant=algorithm)
    ...     print(f"{algorithm}: {rate:.2f}/s, {1000 * delay:.1f} ms")
    flooding: 20.00/s, 25.3 ms
    peer-to-peer covering: 7.21/s, 23.4 ms
    """
    chosen = ALGORITHMS if algorithms is None else tuple(dict.fromkeys(algorithms))
    for algorithm in chosen:
        if algorithm not in ALGORITHMS:
            raise ConfigurationError(f"unknown routing algorithm {algorithm!r}; known are {', '.join(ALGORITHMS)}")
    model = capacity_model(system, shared_directions=shared_directions)
    builder = ReportBuilder(
        system.name,
        "predicted",
        seed=system.seed,
        notes=system.notes,
        parameters={"algorithms": list(chosen), "shared_directions": shared_directions},
    )
    for algorithm in chosen:
        _add_algorithm(builder, system, model, algorithm)
    _add_assumptions(builder, system, chosen, shared_directions)
    return builder.build()


def _add_algorithm(builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str) -> None:
    flows = model.flows(algorithm)
    loads = model.loads(flows)
    delays = delays_of(model, algorithm, loads) if loads.stable else None
    _add_brokers(builder, system, model, algorithm, loads, delays)
    _add_overlay_links(builder, system, model, algorithm, loads, delays)
    _add_physical(builder, system, model, algorithm, loads, delays)
    # capacity Eqs. 11, 19: what broker B's messages cause, summed over brokers, is what passes, summed over links
    by_kind = loads.link_rates[:, :, 0].sum(axis=1)
    for detail, rate in zip(("", *_KINDS), (by_kind.sum(), *by_kind), strict=True):
        builder.add("system", "", "message_rate_per_s", float(rate), how="exact", detail=detail, variant=algorithm)
    limit = headroom(model, algorithm)
    if limit is None:
        builder.note(f"{algorithm}: no component ever saturates, so there is no headroom figure")
    else:
        builder.add("system", "", "headroom_factor", limit.factor, how="exact", variant=algorithm)
        first = _queue_name(system, model, limit.queue)
        builder.note(f"{algorithm}: the first component to saturate is {first}, at {limit.factor:.4g} times the load")
    _add_targets(builder, system, algorithm, loads, delays)
    if delays is None:
        _warn_overload(builder, system, model, algorithm, loads)
        return
    for metric, value in (
        ("notification_delay_worst_s", delays.notification_worst_s),
        ("subscription_delay_worst_s", delays.subscription_worst_s),
    ):
        if value is not None:
            builder.add("system", "", metric, value, how="approximation", variant=algorithm)
    spread = wait_spread(model, flows, loads)
    if spread.max() > _SPREAD_MAX:
        worst = system.overlay.brokers[int(spread.argmax())].name
        builder.warn(
            f"{algorithm}: delays are underestimated: with so few filter classes the traffic follows the set of active "
            f"subscriptions, which moves the spare capacity of broker {worst} by up to {spread.max():.0%}"
        )


def _add_targets(builder: ReportBuilder, system: System, algorithm: str, loads: Loads, delays: Delays | None) -> None:
    """Which share of the targets for delays and utilisation is met; an overloaded system has no delay to meet one."""
    targets = system.targets
    met = []
    if targets.utilisation is not None:
        met.append(loads.utilisation.max(initial=0.0) <= targets.utilisation)
    if targets.notification_delay is not None:
        met.append(delays is not None and (delays.notification_worst_s or 0.0) <= targets.notification_delay)
    if targets.subscription_delay is not None:
        met.append(delays is not None and (delays.subscription_worst_s or 0.0) <= targets.subscription_delay)
    if met:
        how = "exact" if targets.notification_delay is targets.subscription_delay is None else "approximation"
        share = sum(met) / len(met)
        builder.add("system", "", "targets_met_share", share, how=how, variant=algorithm)


def _add_brokers(
    builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str, loads: Loads, delays: Delays | None
) -> None:
    tree, names = model.tree, tuple(broker.name for broker in system.overlay.brokers)
    # capacity Eqs. 1, 3, 5
    local = model.lifetime_s * (model.subscriptions @ model.count)
    remote = np.zeros(tree.brokers)
    entries = remote_entries(algorithm.rpartition(" ")[2], model.known_behind(algorithm)) @ model.count
    np.add.at(remote, tree.tail, entries)

    def add(metric: str, values: Array, detail: str = "", how: str = "exact", where: object = True) -> None:
        mask = np.broadcast_to(np.asarray(where, dtype=np.bool_), values.shape)
        builder.add_many("broker", names, metric, values, how=how, detail=detail, variant=algorithm, where=mask)

    for detail, values in (("", local + remote), ("local", local), ("remote", remote)):
        add("table_entries", values, detail)
    rates = loads.broker_rates[:, :, 0]
    for detail, values in zip(("", *_KINDS), (rates.sum(axis=0), *rates), strict=True):
        add("rate_in_per_s", values, detail)
    serves = (model.notification_service[:, 0] > 0) | (model.control_service[:, 0] > 0)
    add("utilisation", loads.utilisation[: tree.brokers], where=serves)
    if delays is not None:
        add("waiting_mean_s", delays.waiting_s[: tree.brokers], how="approximation", where=serves)


def _add_overlay_links(
    builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str, loads: Loads, delays: Delays | None
) -> None:
    links = model.tree.links
    names = tuple(link.name for link in system.overlay.links)
    passing = loads.link_rates[:, :, 0].sum(axis=0)
    forward, backward = passing[:links], passing[links:]
    both = forward + backward
    for detail, values in (("", both), ("forward", forward), ("backward", backward)):
        builder.add_many("overlay_link", names, "traffic_per_s", values, how="exact", detail=detail, variant=algorithm)
    if delays is not None:
        ways = delays.link_s[:links] * forward + delays.link_s[links:] * backward
        mean = np.divide(ways, both, out=delays.link_s[:links].copy(), where=both > 0)
        builder.add_many(
            "overlay_link", names, "delay_mean_s", mean, how="approximation", variant=algorithm, where=both > 0
        )


def _add_physical(
    builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str, loads: Loads, delays: Delays | None
) -> None:
    """Routers and physical links that carry traffic; those without a service time have no utilisation."""
    network, servers = system.network, model.servers
    if network is None:
        return
    utilisation = loads.utilisation[model.tree.brokers :]
    directed = bool(servers.backward.any())
    for scope, chosen, known in (
        ("router", servers.is_router, [router.name for router in network.routers]),
        ("physical_link", ~servers.is_router, [link.name for link in network.links]),
    ):
        rates = np.bincount(servers.component[chosen], loads.server_rates[chosen, 0], minlength=len(known))
        carries = np.flatnonzero(rates > 0)
        names = tuple(known[i] for i in carries)
        builder.add_many(scope, names, "traffic_per_s", rates[carries], how="exact", variant=algorithm)
        busy = np.flatnonzero(chosen & (loads.server_rates[:, 0] > 0) & (servers.moments[:, 0] > 0))
        by_queue = [known[i] for i in servers.component[busy]]
        details: str | list[str] = ""
        if scope == "physical_link" and directed:
            details = ["backward" if turned else "forward" for turned in servers.backward[busy]]
        builder.add_many(
            scope, by_queue, "utilisation", utilisation[busy], how="exact", detail=details, variant=algorithm
        )
        if delays is not None:
            waiting = delays.waiting_s[model.tree.brokers :][busy]
            builder.add_many(
                scope, by_queue, "waiting_mean_s", waiting, how="approximation", detail=details, variant=algorithm
            )


def _queue_name(system: System, model: CapacityModel, queue: int) -> str:
    network, servers, at = system.network, model.servers, queue - model.tree.brokers
    if network is None or at < 0:
        return f"broker {system.overlay.brokers[queue].name}"
    component = int(servers.component[at])
    if servers.is_router[at]:
        return f"router {network.routers[component].name}"
    way = " (backward)" if servers.backward[at] else ""
    return f"physical link {network.links[component].name}{way}"


def _warn_overload(builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str, loads: Loads) -> None:
    """Names what is saturated, worst first (a utilisation of exactly 1 is unstable too)."""
    worst = [int(i) for i in np.argsort(-loads.utilisation, kind="stable") if loads.utilisation[i] >= 1.0]
    named = [f"{_queue_name(system, model, i)} (utilisation {loads.utilisation[i]:.4g})" for i in worst[:_NAMED_MAX]]
    more = f" and {len(worst) - _NAMED_MAX} more" if len(worst) > _NAMED_MAX else ""
    builder.warn(f"{algorithm}: overloaded, so there are no delays: {', '.join(named)}{more}")


def _add_assumptions(
    builder: ReportBuilder, system: System, algorithms: Sequence[str], shared_directions: bool
) -> None:
    builder.note(
        "waiting times are those of M/G/1 queues fed with mean rates; with few filter classes the traffic follows the "
        "set of active subscriptions and the delays are underestimated, with hundreds of equal classes they are not"
    )
    builder.note(
        "headroom is the factor on the arrival rates of publications and subscriptions at which the first component "
        "saturates; subscriptions live as long as before, so there are more of them"
    )
    if any(algorithm.endswith("covering") for algorithm in algorithms):
        builder.note("covering: one message carries the revocation of a subscription and all that it uncovers")
    if any(algorithm.startswith("hierarchical") for algorithm in algorithms):
        builder.note(f"the root of the hierarchy is broker {system.overlay.brokers[system.overlay.root].name}")
    if system.network is not None:
        ways = "one queue" if shared_directions else "a queue each"
        builder.note(
            f"both directions of a physical link have {ways}; the routers at both ends of a path are passed too"
        )
    links = system.overlay.links
    if any(np.isfinite(link.capacity_per_s) for link in links):
        builder.warn("the capacity of overlay links is for maximum-flow paths and does not delay messages here")
    failing = [part.name for part in system.overlay.brokers if part.failures is not None]
    failing += [link.name for link in links if link.failures is not None or link.loss > 0]
    if failing:
        builder.warn(f"the capacity model takes every component as up and lossless, {failing[0]} among them")
