"""Figures of the capacity report: components, and delays by client and class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.capacity.averaging import OVERLOADED_MAX, Averaged
from surecast.prediction.capacity.capacity_model import CapacityModel, Loads
from surecast.prediction.capacity.client_delays import QUANTILES, ReceivedDelays, ReceivedRates
from surecast.prediction.capacity.delays import Delays
from surecast.prediction.capacity.latest import LatestDelivery
from surecast.report import ReportBuilder
from surecast.scenario.system import ClassWorkload, System

__all__ = [
    "KINDS",
    "add_brokers",
    "add_latest",
    "add_overlay_links",
    "add_physical",
    "add_received",
    "add_waiting",
    "queue_name",
    "spaced_out",
    "warn_of_averaging",
]

Array = NDArray[np.float64]

_UNDERESTIMATED = 1.2

KINDS = ("notification", "control")
"""The kinds of message, in the order of the planes of `Loads`."""


def add_brokers(
    builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str, loads: Loads, delays: Delays | None
) -> None:
    """Tables, rates, utilisation and waiting times of brokers."""
    tree, names = model.tree, tuple(broker.name for broker in system.overlay.brokers)
    # capacity Eqs. 1, 3, 5
    local = model.lifetime_s * (model.subscriptions @ model.count)
    remote = np.zeros(tree.brokers)
    entries = model.remote_entries(algorithm) @ model.count + model.entries_for_all(algorithm)
    np.add.at(remote, tree.tail, entries)

    def add(metric: str, values: Array, detail: str = "", how: str = "exact", where: object = True) -> None:
        mask = np.broadcast_to(np.asarray(where, dtype=np.bool_), values.shape)
        builder.add_many("broker", names, metric, values, how=how, detail=detail, variant=algorithm, where=mask)

    for detail, values in (("", local + remote), ("local", local), ("remote", remote)):
        add("table_entries", values, detail)
    rates = loads.broker_rates[:, :, 0]
    for detail, values in zip(("", *KINDS), (rates.sum(axis=0), *rates), strict=True):
        add("rate_in_per_s", values, detail)
    add("utilisation", loads.utilisation[: tree.brokers], where=model.serves)
    if delays is not None:
        add("waiting_mean_s", delays.waiting_s[: tree.brokers], how="approximation", where=model.serves)


def add_waiting(
    builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str, averaged: Averaged
) -> None:
    """Adds waiting times over the sets of active subscriptions, where these do not overload the broker."""
    names = tuple(broker.name for broker in system.overlay.brokers)
    exists = model.serves & np.isfinite(averaged.waiting_s)
    builder.add_many(
        "broker",
        names,
        "waiting_averaged_s",
        np.where(exists, averaged.waiting_s, 0.0),
        how="approximation",
        variant=algorithm,
        where=exists,
    )


def add_overlay_links(
    builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str, loads: Loads, delays: Delays | None
) -> None:
    """Adds traffic and delays of the overlay links."""
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


def add_physical(
    builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str, loads: Loads, delays: Delays | None
) -> None:
    """Adds routers and physical links that carry traffic; those without a service time get no utilisation."""
    network, servers = system.network, model.servers
    if network is None:
        return
    utilisation = loads.utilisation[model.tree.brokers :]
    directed = bool(servers.backward.any())
    for scope, chosen, component_names in (
        ("router", servers.is_router, [router.name for router in network.routers]),
        ("physical_link", ~servers.is_router, [link.name for link in network.links]),
    ):
        rates = np.bincount(servers.component[chosen], loads.server_rates[chosen, 0], minlength=len(component_names))
        carries = np.flatnonzero(rates > 0)
        names = tuple(component_names[i] for i in carries)
        builder.add_many(scope, names, "traffic_per_s", rates[carries], how="exact", variant=algorithm)
        busy = np.flatnonzero(chosen & (loads.server_rates[:, 0] > 0) & (servers.moments[:, 0] > 0))
        by_queue = [component_names[i] for i in servers.component[busy]]
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


def queue_name(system: System, model: CapacityModel, queue: int) -> str:
    """Returns the name of a queue for texts; brokers come first, then the physical queues."""
    network, servers, server = system.network, model.servers, queue - model.tree.brokers
    if network is None or server < 0:
        return f"broker {system.overlay.brokers[queue].name}"
    component = int(servers.component[server])
    if servers.is_router[server]:
        return f"router {network.routers[component].name}"
    way = " (backward)" if servers.backward[server] else ""
    return f"physical link {network.links[component].name}{way}"


def add_received(
    builder: ReportBuilder,
    workload: ClassWorkload,
    audience: ReceivedRates,
    delays: ReceivedDelays,
    algorithm: str,
    by_client: bool,
) -> None:
    """Rates, means and quantiles of what is received: in all, and by client and class where wanted."""
    if by_client:
        names = tuple(workload.clients), tuple(each.name for each in workload.classes)
        quantiles = delays.client_quantile_s, delays.class_quantile_s
        _add_rows(
            builder, "subscriber", names[0], audience.client_rate_per_s, delays.client_mean_s, quantiles[0], algorithm
        )
        _add_rows(builder, "class", names[1], audience.class_rate_per_s, delays.class_mean_s, quantiles[1], algorithm)
    total = float(audience.class_rate_per_s.sum())
    builder.add("system", "", "throughput_per_s", total, how="exact", variant=algorithm)
    if total > 0:
        builder.add("system", "", "delay_mean_s", delays.mean_s, how="approximation", variant=algorithm)
        for detail, value in zip(QUANTILES, delays.quantile_s, strict=True):
            builder.add("system", "", "delay_quantile_s", value, how="approximation", detail=detail, variant=algorithm)


def _add_rows(
    builder: ReportBuilder,
    scope: str,
    names: Sequence[str],
    rate: Array,
    mean: Array,
    quantiles: Array,
    algorithm: str,
) -> None:
    """Adds one row for each name; a component that receives nothing has no delay."""
    builder.add_many(scope, names, "throughput_per_s", rate, how="exact", variant=algorithm)
    some = rate > 0
    builder.add_many(scope, names, "delay_mean_s", mean, how="approximation", variant=algorithm, where=some)
    for column, detail in enumerate(QUANTILES):
        values = quantiles[:, column]
        builder.add_many(
            scope, names, "delay_quantile_s", values, how="approximation", detail=detail, variant=algorithm, where=some
        )


def add_latest(builder: ReportBuilder, latest: LatestDelivery | None, algorithm: str) -> None:
    """Adds the expected latest delivery by each approximation; the best one has no detail."""
    if latest is None:
        return
    for detail, value in (
        ("", latest.branches_s),
        ("mean-path", latest.mean_path_s),
        ("worst-path", latest.worst_path_s),
    ):
        if value is not None:
            builder.add(
                "system",
                "",
                "notification_delay_latest_s",
                value,
                how="approximation",
                detail=detail,
                variant=algorithm,
            )
    if latest.branches_s is None:
        builder.note("links times classes are too many for the mean of the latest delivery; its approximations remain")


def spaced_out(system: System) -> list[str]:
    """Returns the brokers whose regular service spaces out what the next broker gets; none where there is no next."""
    brokers = system.overlay.brokers
    regular = [b.name for b in brokers if b.notification_service and b.notification_service.squared_cv < 1.0 - 1e-9]
    return regular if len(brokers) > 1 else []


def warn_of_averaging(
    builder: ReportBuilder, system: System, algorithm: str, plain_s: Array, averaged: Averaged
) -> None:
    """Says where the delays, which are those at mean rates, are far from those over the sets of subscriptions."""
    intro = f"{algorithm}: delays are underestimated: the traffic follows the set of active subscriptions, "
    if spaced_out(system):
        intro = (
            f"{algorithm}: delays are not those at mean rates, though regular service makes them shorter, too: the "
            "traffic follows the set of active subscriptions, "
        )
    names = [broker.name for broker in system.overlay.brokers]
    worst = int(averaged.overloaded_share.argmax())
    if averaged.overloaded_share[worst] > OVERLOADED_MAX:
        builder.warn(
            f"{intro}which overloads broker {names[worst]} for {averaged.overloaded_share[worst]:.2g} of the time"
        )
        return
    ratio = np.divide(averaged.waiting_s, plain_s, out=np.ones_like(plain_s), where=plain_s > 0)
    worst = int(ratio.argmax())
    if ratio[worst] > _UNDERESTIMATED:
        builder.warn(
            f"{intro}and over these a message waits {averaged.waiting_s[worst]:.3g} s at broker {names[worst]} in the "
            f"mean, not {plain_s[worst]:.3g} s as at mean rates"
        )
