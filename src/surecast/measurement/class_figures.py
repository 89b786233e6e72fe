"""The QoS report of a run with filter classes: loads, deliveries and delays by client, class and system."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import OverloadError
from surecast.measurement.class_run import ClassRun
from surecast.report import QoSReport, ReportBuilder
from surecast.simulation.experiment.confidence import ratio_estimate

__all__ = ["build_class_report"]

Floats = NDArray[np.float64]
BATCHES: Final = 10
QUANTILES: Final = (0.5, 0.95, 0.99)


def build_class_report(measured: ClassRun) -> QoSReport:
    """Returns the figures of a run with filter classes, under the routing algorithm of the scenario."""
    plan = measured.plan
    builder = ReportBuilder.of_system(
        plan.system,
        "measured",
        seed=plan.seed,
        time_scale=plan.scale,
        duration_s=plan.duration_s,
        warm_up_s=plan.warm_up_s,
        replicas=plan.group.replicas,
        interrupted=measured.is_interrupted,
    )
    if measured.failed:
        raise OverloadError(f"a client of the run failed: {measured.failed[0]}")
    figures = _Figures(builder, measured)
    figures.deliveries()
    if plan.overlay is None:
        figures.loads()
    else:
        figures.overlay_loads()
    missing, unasked = measured.violations()
    if missing or unasked:
        builder.warn(f"{missing} events did not reach a client that had asked for them, and {unasked} one that had not")
    builder.note(
        f"{len(measured.sent)} events and {len(measured.subscriptions)} subscriptions; each delivery was checked"
    )
    if plan.overlay is None:
        builder.note("one broker forwards nothing: its figures are the same under every routing algorithm")
    else:
        builder.note(
            "routing-table entries of neighbours are sampled twice a second of real time; messages between brokers are "
            "events, and for control changes of what a broker wants of its neighbour; several changes that happen at "
            "once are told together by a broker that runs"
        )
    if plan.scale != 1.0:
        builder.note(
            f"time scale {plan.scale:g}: publications, subscriptions and their lifetimes are {plan.scale:g} times as "
            "fast, and rates are reported in the scenario's time; delays are real ones, of this machine"
        )
    if measured.is_interrupted:
        builder.warn("interrupted: only a part of the time was measured")
    return builder.build()


class _Figures:
    def __init__(self, builder: ReportBuilder, measured: ClassRun):
        self.builder, self.measured = builder, measured
        plan = measured.plan
        self.scale, self.began = plan.scale, measured.began
        self.begin_s, self.end_s = plan.warm_up_s, (measured.ended - measured.began) * plan.scale
        if self.end_s <= self.begin_s:
            raise OverloadError("the run ended before anything was measured; give it a longer --duration")
        self.edges = np.linspace(self.begin_s, self.end_s, BATCHES + 1)
        self.lengths = np.diff(self.edges)
        routing = plan.system.delivery.routing
        scheme, algorithm = ("peer-to-peer", "simple") if routing is None else (routing.scheme, routing.algorithm)
        self.variant = algorithm if algorithm == "flooding" else f"{scheme} {algorithm}"

    def _ratio(self, scope: str, name: str, metric: str, over: Floats, under: Floats, detail: str = "") -> None:
        if not under.sum() > 0:
            return
        value, half = (float(part[0]) for part in ratio_estimate(over[:, None], under[:, None]))
        self.builder.add(
            scope,
            name,
            metric,
            value,
            how="measured",
            detail=detail,
            variant=self.variant,
            low=None if math.isnan(half) else max(0.0, value - half),
            high=None if math.isnan(half) else value + half,
        )

    def _scenario_s(self, real_times: Floats) -> Floats:
        return np.asarray((real_times - self.began) * self.scale, dtype=np.float64)

    def _batches(self, times_s: Floats, weights: Floats | None = None) -> Floats:
        inside = (times_s >= self.begin_s) & (times_s < self.end_s)
        where = np.clip(np.searchsorted(self.edges, times_s[inside], side="right") - 1, 0, BATCHES - 1)
        chosen = None if weights is None else weights[inside]
        return np.bincount(where, weights=chosen, minlength=BATCHES).astype(np.float64)

    def deliveries(self) -> None:
        """Adds throughput and delays: each client gets an event once, however many of its subscriptions it matches."""
        sent, workload = self.measured.sent, self.measured.plan.system.class_workload
        assert workload is not None
        rows = [
            (client, sent[number].class_index, sent[number].due, arrived_at - sent[number].due)
            for client, arrived in enumerate(self.measured.first)
            for number, arrived_at in arrived.items()
        ]
        table = np.array(rows, dtype=np.float64).reshape(-1, 4)
        published, delay_s = self._scenario_s(table[:, 2]), table[:, 3]
        for i, name in enumerate(workload.clients):
            self._delivered("subscriber", name, published, delay_s, table[:, 0] == i)
        for i, each in enumerate(workload.classes):
            self._delivered("class", each.name, published, delay_s, table[:, 1] == i)
        self._delivered("system", "", published, delay_s, np.ones(len(table), dtype=np.bool_))

    def _delivered(self, scope: str, name: str, published: Floats, delay_s: Floats, chosen: NDArray[np.bool_]) -> None:
        times, delays = published[chosen], np.maximum(delay_s[chosen], 0.0)
        counts = self._batches(times)
        self._ratio(scope, name, "throughput_per_s", counts, self.lengths)
        self._ratio(scope, name, "delay_mean_s", self._batches(times, delays), counts)
        inside = delays[(times >= self.begin_s) & (times < self.end_s)]
        for q in QUANTILES if len(inside) else ():
            detail = f"p{100 * q:.10g}"
            add = partial(self.builder.add, how="measured", variant=self.variant, detail=detail, samples=len(inside))
            add(scope, name, "delay_quantile_s", float(np.quantile(inside, q)))

    def overlay_loads(self) -> None:
        """Adds the table sizes of brokers, the traffic of links, and the events that brokers sent each other."""
        measured, overlay = self.measured, self.measured.plan.system.overlay
        names = [broker.name for broker in overlay.brokers]
        add = partial(self.builder.add, how="measured", variant=self.variant)
        run_s = (measured.ended - measured.counted_from) * self.scale
        own = self._own_messages()
        for place, name in enumerate(names):
            samples = [entries[name] for entries in measured.entries if name in entries]
            if samples:
                add("broker", name, "table_entries", float(np.mean(samples)), detail="remote", samples=len(samples))
            for kind, detail in enumerate(("notification", "control")):
                received = sum(sent[kind] for (_, to), sent in measured.messages.items() if to == name)
                arrived = int(own[kind][place]) + received
                add("broker", name, "rate_in_per_s", arrived / run_s, detail=detail, samples=arrived)
            counts = measured.counts[name]
            handled = counts.published + counts.received
            if handled and counts.processor_s:
                add("broker", name, "cpu_per_event_s", counts.processor_s / handled, samples=handled)
        for kind, detail in enumerate(("notification", "control")):
            for link in overlay.links:
                ends = (names[link.a], names[link.b]), (names[link.b], names[link.a])
                passed = sum(measured.messages[each][kind] for each in ends if each in measured.messages)
                add("overlay_link", link.name, "traffic_per_s", passed / run_s, detail=detail, samples=passed)
            total = sum(sent[kind] for sent in measured.messages.values())
            add("system", "", "message_rate_per_s", total / run_s, detail=detail, samples=total)

    def _own_messages(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns how many events, and changes of subscriptions, came from clients of each broker while brokers were
        counted."""
        measured, workload = self.measured, self.measured.plan.system.class_workload
        assert workload is not None
        homes, size = workload.client_home, len(measured.plan.system.overlay.brokers)

        def by_broker(moments: list[tuple[int, float]]) -> NDArray[np.int64]:
            inside = [homes[i] for i, moment in moments if measured.counted_from <= moment < measured.ended]
            return np.bincount(inside, minlength=size)

        changes = [(each.client, moment) for each in measured.subscriptions for moment in (each.sent, each.ending)]
        return by_broker([(each.client, each.sent) for each in measured.sent]), by_broker(changes)

    def loads(self) -> None:
        """Adds messages into the broker, and the subscriptions it holds."""
        measured = self.measured
        name = measured.plan.system.overlay.brokers[0].name
        notifications = self._batches(self._scenario_s(np.array([record.sent for record in measured.sent])))
        sent = self._scenario_s(np.array([record.sent for record in measured.subscriptions]))
        ended = self._scenario_s(np.array([record.ending for record in measured.subscriptions]))
        control = self._batches(sent) + self._batches(ended[np.isfinite(ended)])
        self._ratio("broker", name, "rate_in_per_s", notifications, self.lengths, "notification")
        self._ratio("broker", name, "rate_in_per_s", control, self.lengths, "control")
        self._ratio("broker", name, "rate_in_per_s", notifications + control, self.lengths)
        active = self._scenario_s(np.array([record.active for record in measured.subscriptions]))
        gone = self._scenario_s(np.array([record.gone for record in measured.subscriptions]))
        held = np.array(
            [
                np.maximum(0.0, np.minimum(gone, high) - np.maximum(active, low)).sum()
                for low, high in zip(self.edges[:-1], self.edges[1:], strict=True)
            ]
        )
        for detail in ("", "local"):
            self._ratio("broker", name, "table_entries", held, self.lengths, detail)
        add = partial(self.builder.add, how="measured", variant=self.variant)
        add("broker", name, "table_entries", 0.0, detail="remote")
        for detail in ("", "notification", "control"):
            add("system", "", "message_rate_per_s", 0.0, detail=detail)
        answered = np.isfinite(active) & (sent >= self.begin_s)
        if answered.any():
            waited = float(np.mean((active - sent)[answered])) / self.scale
            add("system", "", "subscription_delay_mean_s", waited, samples=int(answered.sum()))
