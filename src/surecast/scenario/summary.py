"""A resolved system in words and as plain data, for people and for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from surecast.documents.units import format_size
from surecast.scenario.distributions import Distribution
from surecast.scenario.network import Network
from surecast.scenario.system import Failures, Overlay, System

__all__ = ["short_names", "summarise", "system_data"]

Rows = list[tuple[str, str]]


def summarise(system: System) -> dict[str, Rows]:
    """Returns the parts of a system: for each part, rows of (name, value)."""
    parts = {
        "network": _network_rows(system.network) if system.network else [("physical network", "none")],
        "overlay": _overlay_rows(system.overlay),
        "workload": _workload_rows(system),
        "delivery": _delivery_rows(system),
    }
    targets = [(name.replace("_", " "), _target(name, value)) for name, value in system.targets if value is not None]
    if targets:
        parts["targets"] = targets
    return parts


def _target(name: str, value: float) -> str:
    return share(value) if name in ("reliability", "utilisation") else seconds(value)


def seconds(value: float) -> str:
    """Returns a time as text, with three digits.

    >>> seconds(0.00123), seconds(5400), seconds(0)
    ('1.23 ms', '1.5 h', '0 s')
    """
    if value == 0 or math.isinf(value):
        return "0 s" if value == 0 else "for ever"
    for unit, scale in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}" if value / scale < 1000 else f"{value / scale:.0f} {unit}"
    return f"{value / 1e-9:.3g} ns"


def rate(per_second: float) -> str:
    """Returns a rate as text, with four digits.

    >>> rate(1400), rate(1 / 6), rate(0)
    ('1400/s', '10/min', '0/s')
    """
    for unit, scale in (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("day", 86400.0)):
        if per_second * scale >= 0.9995:
            return f"{float(f'{per_second * scale:.4g}'):.12g}/{unit}"
    return f"{per_second:.4g}/s"


def share(value: float) -> str:
    """Returns a share as text, with as many nines as it has.

    >>> share(0.95), share(0.99943)
    ('0.95', '0.99943')
    """
    digits = 2 if value <= 0.99 or value == 1 else 1 + math.ceil(-math.log10(1 - value))
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if value < 1 else "1"


def _range(values: Iterable[float], form: Any) -> str:
    ordered = sorted(values)
    if not ordered:
        return "none"
    return str(form(ordered[0])) if ordered[0] == ordered[-1] else f"{form(ordered[0])} to {form(ordered[-1])}"


def _capacity(services: Iterable[Distribution | None]) -> str:
    rates = [1.0 / s.mean_s for s in services if s is not None]
    return _range(rates, rate) if rates else "without limit"


def _network_rows(network: Network) -> Rows:
    rows = [
        ("routers", f"{len(network.routers)}, capacity {_capacity(r.service for r in network.routers)}"),
        ("links", f"{len(network.links)}, capacity {_capacity(link.service for link in network.links)}"),
        ("link latency", _range((link.latency_s for link in network.links), seconds)),
    ]
    if network.domains:
        shown = ", ".join(network.domains[:6]) + (" ..." if len(network.domains) > 6 else "")
        rows.append(("domains", f"{len(network.domains)}: {shown}"))
    return rows


def _failures(parts: Iterable[Failures | None]) -> str:
    all_failures = list(parts)
    failing = [f for f in all_failures if f is not None]
    if not failing:
        return "never fail"
    text = (
        f"{_range((f.availability for f in failing), share)}, up {_range((f.mtbf_s for f in failing), seconds)}, "
        f"down {_range((f.mttr_s for f in failing), seconds)}"
    )
    return text if len(failing) == len(all_failures) else f"{text}; {len(all_failures) - len(failing)} never fail"


def _overlay_rows(overlay: Overlay) -> Rows:
    kind = "a tree" if overlay.is_tree else "with cycles"
    rows = [
        ("brokers", f"{len(overlay.brokers)}, capacity {_capacity(b.notification_service for b in overlay.brokers)}"),
        ("links", f"{len(overlay.links)}, {kind}, root {overlay.brokers[overlay.root].name}"),
    ]
    if overlay.links:
        rows.append(("link latency", _range((link.latency_s for link in overlay.links), seconds)))
        if any(link.loss for link in overlay.links):
            rows.append(("packet loss", _range((link.loss for link in overlay.links), share)))
        bursts = [link.burst_mean for link in overlay.links if link.burst_mean is not None]
        if bursts:
            rows.append(("packets lost in a row", _range(bursts, lambda mean: f"{mean:g}")))
    if overlay.candidates:
        rows.append(("candidate positions", str(len(overlay.candidates))))
    rows.append(("broker availability", _failures(b.failures for b in overlay.brokers)))
    if overlay.links:
        rows.append(("link availability", _failures(link.failures for link in overlay.links)))
    return rows


def _workload_rows(system: System) -> Rows:
    rows: Rows = []
    if system.topics:
        rows.append(("topics", str(len(system.topics))))
    if system.publishers:
        total = sum(p.rate_per_s for p in system.publishers)
        rows.append(("publishers", f"{sum(p.count for p in system.publishers):,}, {rate(total)} in all"))
        rows.append(("events live", _range((p.deadline_s for p in system.publishers), seconds)))
    if system.subscribers:
        rows.append(("subscribers", str(len(system.subscribers))))
        wandering = [s.connectivity for s in system.subscribers if s.connectivity is not None]
        if wandering:
            on = _range((c.on.mean_s for c in wandering), seconds)
            off = _range((c.off.mean_s for c in wandering), seconds)
            rows.append(("come and go", f"{len(wandering)}: connected {on}, away {off}"))
    classes = system.class_workload
    if classes is not None:
        rows += [
            ("filter classes", str(len(classes.classes))),
            ("clients", str(len(classes.clients))),
            (
                "active subscriptions",
                f"{classes.active_subscriptions:.6g}, each for {seconds(classes.lifetime.mean_s)}",
            ),
            ("publications", rate(float(classes.publication_rate_per_s.sum()))),
        ]
    return rows or [("clients", "none")]


def _delivery_rows(system: System) -> Rows:
    delivery = system.delivery
    rows: Rows = []
    if delivery.routing is not None:
        own = len(delivery.routing.links)
        parts = [f"{delivery.routing.scheme} {delivery.routing.algorithm}"]
        parts += [f"another algorithm on {own} link{'s' if own != 1 else ''}"] if own else []
        parts += ["with advertisements"] if delivery.routing.advertisements else []
        rows.append(("routing", ", ".join(parts)))
    else:
        trees = len(set(system.overlay.trees.values()))
        rows.append(("routing", f"along {trees} topic tree{'s' if trees != 1 else ''}"))
    rows.append(("fault tolerance", delivery.fault_tolerance.scheme))
    if delivery.replication.replicas > 1:
        replication = delivery.replication
        where = f" at {', '.join(replication.brokers)}" if replication.brokers else ""
        rows.append(("replication", f"{replication.replicas} replicas, {replication.variant} Paxos{where}"))
    if delivery.dropping.policy != "none":
        rows.append(("dropping", delivery.dropping.policy))
    if delivery.coding is not None:
        coding = delivery.coding
        size = format_size(coding.packet_size)
        rows.append(("coding", f"{coding.packets} packets of {size} plus {coding.redundancy:.0%}, {coding.paths}"))
    return rows


def system_data(system: System) -> dict[str, Any]:
    """Returns the resolved system as plain data: every component with its drawn values."""
    network, overlay = system.network, system.overlay
    return {
        "name": system.name,
        "seed": system.seed,
        "summary": {part: dict(rows) for part, rows in summarise(system).items()},
        "network": None if network is None else _network_data(network),
        "brokers": [
            {
                "name": broker.name,
                "router": None if network is None or broker.router is None else network.routers[broker.router].name,
                "service_s": None if broker.notification_service is None else broker.notification_service.mean_s,
                **_failure_data(broker.failures),
            }
            for broker in overlay.brokers
        ],
        "links": [
            {
                "name": link.name,
                "between": [overlay.brokers[link.a].name, overlay.brokers[link.b].name],
                "latency_s": link.latency_s,
                "loss": link.loss,
                "burst_mean": link.burst_mean,
                "physical_hops": max(0, len(link.routers) - 1),
                **_failure_data(link.failures),
            }
            for link in overlay.links
        ],
        "topics": [{"name": topic.name, "popularity": topic.popularity} for topic in system.topics],
        "publishers": [
            {
                "name": p.name,
                "home": overlay.brokers[p.home].name,
                "topics": list(p.topics),
                "rate_per_s": p.rate_per_s,
                "deadline_s": None if math.isinf(p.deadline_s) else p.deadline_s,
            }
            for p in system.publishers
        ],
        "subscribers": [
            {"name": s.name, "home": overlay.brokers[s.home].name, "topics": list(s.topics)} for s in system.subscribers
        ],
        "notes": list(system.notes),
    }


def _network_data(network: Network) -> dict[str, Any]:
    return {
        "routers": len(network.routers),
        "links": len(network.links),
        "domains": list(network.domains),
        "geographic": network.geographic,
    }


def _failure_data(failures: Failures | None) -> dict[str, float | None]:
    if failures is None:
        return {"availability": 1.0, "mtbf_s": None, "mttr_s": None}
    return {"availability": failures.availability, "mtbf_s": failures.mtbf_s, "mttr_s": failures.mttr_s}


def short_names(names: Sequence[str]) -> str:
    """Returns names of brokers in one line; numbered names that begin alike share their beginning.

    >>> short_names(["office-2", "office-3", "office-10"]), short_names(["office-2"]), short_names(["east", "west"])
    ('office-2, 3, 10', 'office-2', 'east, west')
    """
    heads = {name.rpartition("-")[0] for name in names}
    tails = [name.rpartition("-")[2] for name in names]
    if len(names) < 2 or len(heads) > 1 or heads == {""} or not all(tail.isdecimal() for tail in tails):
        return ", ".join(names)
    return ", ".join([names[0], *tails[1:]])
