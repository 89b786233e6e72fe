"""The capacity of a system by formula: one report over all routing algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from surecast.errors import refuse_unknown
from surecast.prediction.capacity.averaging import averaged_waiting
from surecast.prediction.capacity.capacity_figures import (
    KINDS,
    add_brokers,
    add_latest,
    add_overlay_links,
    add_physical,
    add_received,
    add_waiting,
    queue_name,
    spaced_out,
    warn_of_averaging,
)
from surecast.prediction.capacity.capacity_model import (
    ALGORITHMS,
    CapacityModel,
    LinkFlows,
    Loads,
    capacity_model,
    known_algorithms,
)
from surecast.prediction.capacity.client_delays import ReceivedRates, audience_of, received_delays
from surecast.prediction.capacity.delays import Cubes, Delays, delays_of, paths_of, service_cubes, sojourns_of
from surecast.prediction.capacity.filter_statistics import FilterStatistics
from surecast.prediction.capacity.headroom import headroom
from surecast.prediction.capacity.latest import Contents, contents_of, latest_delivery
from surecast.prediction.capacity.unpredicted import refuse_registered
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.system import ClassWorkload, System

__all__ = ["predict_capacity"]

_NAMED_MAX = 5


def predict_capacity(
    system: System,
    algorithms: Sequence[str] | None = None,
    *,
    shared_directions: bool = True,
    by_client: bool = True,
) -> QoSReport:
    """Returns routing tables, message rates, utilisation and delays of a system under each routing algorithm.

    Each algorithm is a variant of the report; left out, all nine of `ALGORITHMS`. The system needs filter classes and
    an overlay without cycles. Where a component is overloaded, a warning names it and the variant has no delays.
    With `shared_directions` both directions of a physical link share one queue, otherwise each has its own; a router
    is always one queue. Without `by_client` there are no figures by client and by class.

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
    refuse_unknown("algorithm", chosen, known_algorithms())
    refuse_registered(system, chosen)
    prepared = _prepare(system, shared_directions, by_client)
    builder = ReportBuilder.of_system(system, "predicted", algorithms=list(chosen), shared_directions=shared_directions)
    for algorithm in chosen:
        _add_algorithm(builder, prepared, algorithm)
    _add_assumptions(builder, system, chosen, shared_directions)
    return builder.build()


@dataclass(frozen=True)
class _Prepared:
    """The parts of the model that all algorithms share."""

    system: System
    workload: ClassWorkload
    model: CapacityModel
    cubes: Cubes
    audience: ReceivedRates
    contents: Mapping[FilterStatistics, Contents]
    by_client: bool


def _prepare(system: System, shared_directions: bool, by_client: bool) -> _Prepared:
    model = capacity_model(system, shared_directions=shared_directions)
    workload = system.class_workload
    assert workload is not None  # else there is no model
    audience = audience_of(workload, model.tree.brokers)
    cubes, contents = service_cubes(system, model), contents_of(workload)
    return _Prepared(system, workload, model, cubes, audience, contents, by_client)


def _add_algorithm(builder: ReportBuilder, prepared: _Prepared, algorithm: str) -> None:
    system, model = prepared.system, prepared.model
    flows = model.flows(algorithm)
    loads = model.loads(flows)
    delays = delays_of(model, algorithm, loads) if loads.stable else None
    add_brokers(builder, system, model, algorithm, loads, delays)
    add_overlay_links(builder, system, model, algorithm, loads, delays)
    add_physical(builder, system, model, algorithm, loads, delays)
    # capacity Eqs. 11, 19: what broker B's messages cause, summed over brokers, is what passes, summed over links
    by_kind = loads.link_rates[:, :, 0].sum(axis=1)
    for detail, rate in zip(("", *KINDS), (by_kind.sum(), *by_kind), strict=True):
        builder.add("system", "", "message_rate_per_s", float(rate), how="exact", detail=detail, variant=algorithm)
    _add_headroom(builder, system, model, algorithm)
    _add_targets(builder, system, algorithm, loads, delays)
    if delays is None:
        _warn_overload(builder, system, model, algorithm, loads)
    else:
        _add_delays(builder, prepared, algorithm, flows, loads, delays)


def _add_headroom(builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str) -> None:
    limit = headroom(model, algorithm)
    if limit is None:
        builder.note(f"{algorithm}: no component ever saturates, so there is no headroom figure")
        return
    builder.add("system", "", "headroom_factor", limit.factor, how="exact", variant=algorithm)
    first = queue_name(system, model, limit.queue)
    builder.note(f"{algorithm}: the first component to saturate is {first}, at {limit.factor:.4g} times the load")


def _add_delays(
    builder: ReportBuilder, prepared: _Prepared, algorithm: str, flows: LinkFlows, loads: Loads, delays: Delays
) -> None:
    """Delays of a stable system: worst paths, the latest delivery, what clients see, and averaged waiting times."""
    system, model = prepared.system, prepared.model
    for metric, value in (
        ("notification_delay_worst_s", delays.notification_worst_s),
        ("subscription_delay_worst_s", delays.subscription_worst_s),
    ):
        if value is not None:
            builder.add("system", "", metric, value, how="approximation", variant=algorithm)
    sojourns = sojourns_of(model, flows, loads, prepared.cubes)
    add_latest(builder, latest_delivery(model, algorithm, loads, sojourns, prepared.contents), algorithm)
    received = received_delays(prepared.audience, paths_of(model.tree, sojourns))
    add_received(builder, prepared.workload, prepared.audience, received, algorithm, prepared.by_client)
    averaged = averaged_waiting(model, algorithm, flows, loads)
    add_waiting(builder, system, model, algorithm, averaged)
    warn_of_averaging(builder, system, algorithm, delays.waiting_s[: model.tree.brokers], averaged)


def _add_targets(builder: ReportBuilder, system: System, algorithm: str, loads: Loads, delays: Delays | None) -> None:
    """Adds the share of the targets for delays and utilisation that are met, and whether each is. An overloaded system
    meets no delay target.
    """
    targets = system.targets
    met = {}
    if targets.utilisation is not None:
        met["utilisation"] = bool(loads.utilisation.max(initial=0.0) <= targets.utilisation)
    if targets.notification_delay is not None:
        worst_s = None if delays is None else delays.notification_worst_s or 0.0
        met["notification delay"] = worst_s is not None and worst_s <= targets.notification_delay
    if targets.subscription_delay is not None:
        worst_s = None if delays is None else delays.subscription_worst_s or 0.0
        met["subscription delay"] = worst_s is not None and worst_s <= targets.subscription_delay
    if met:
        how = "exact" if targets.notification_delay is targets.subscription_delay is None else "approximation"
        shares = {"": sum(met.values()) / len(met)} | {name: float(is_met) for name, is_met in met.items()}
        for detail, share in shares.items():
            builder.add("system", "", "targets_met_share", share, how=how, detail=detail, variant=algorithm)


def _warn_overload(builder: ReportBuilder, system: System, model: CapacityModel, algorithm: str, loads: Loads) -> None:
    """Names what is saturated, worst first (a utilisation of exactly 1 is unstable too)."""
    worst = [int(i) for i in np.argsort(-loads.utilisation, kind="stable") if loads.utilisation[i] >= 1.0]
    named = [f"{queue_name(system, model, i)} (utilisation {loads.utilisation[i]:.4g})" for i in worst[:_NAMED_MAX]]
    more = f" and {len(worst) - _NAMED_MAX} more" if len(worst) > _NAMED_MAX else ""
    builder.warn(f"{algorithm}: overloaded, so there are no delays: {', '.join(named)}{more}")


def _add_assumptions(
    builder: ReportBuilder, system: System, algorithms: Sequence[str], shared_directions: bool
) -> None:
    builder.note(
        "waiting_mean_s and all delays are those of M/G/1 queues fed with mean rates; with few filter classes the "
        "traffic follows the set of active subscriptions and they are underestimated, with hundreds of equal classes "
        "they are not; waiting_averaged_s is averaged over the sets"
    )
    if regular := spaced_out(system):
        more = f" and {len(regular) - _NAMED_MAX} more" if len(regular) > _NAMED_MAX else ""
        builder.warn(
            f"waiting times behind other brokers are too long: the service of {', '.join(regular[:_NAMED_MAX])}{more} "
            "is regular, so that messages leave spaced out, and each broker is taken to get them at random (Poisson); "
            "with constant service on all brokers a single wait may be several times too long"
        )
    builder.note(
        "delays of clients are those of the notifications that their own subscriptions match, until their home broker "
        "has processed them; times in different queues are taken as independent, and a sum of them as gamma distributed"
    )
    builder.note(
        "headroom is the factor on the arrival rates of publications and subscriptions at which the first component "
        "saturates; subscriptions live as long as before, so there are more of them"
    )
    if any(algorithm.endswith("covering") for algorithm in algorithms):
        builder.note("covering: one message carries the revocation of a subscription and all that it uncovers")
    if any(algorithm.startswith("hierarchical") for algorithm in algorithms):
        builder.note(f"the root of the hierarchy is broker {system.overlay.brokers[system.overlay.root].name}")
    routing = system.delivery.routing
    if routing is not None and routing.links:
        links = ", ".join(f"{each.between[0]}--{each.between[1]} {each.algorithm}" for each in routing.links)
        builder.note(
            f"links with an algorithm of their own, under every algorithm: {links} (delivery.routing.links); there "
            "waiting_averaged_s is an upper bound"
        )
    if routing is not None and routing.advertisements:
        builder.note(
            "subscriptions travel only towards brokers where their class is published (delivery.routing.advertisements)"
        )
    if system.network is not None:
        ways = "one queue" if shared_directions else "a queue each"
        builder.note(
            f"both directions of a physical link have {ways}; the routers at both ends of a path are passed too"
        )
    for sentence in left_out(system, "the capacity model"):
        builder.leave_out(sentence)
