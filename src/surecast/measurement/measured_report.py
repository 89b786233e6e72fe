"""The QoS report of a run: the metrics and components that predictions and simulations of the scenario have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import OverloadError
from surecast.measurement.asked_targets import decision_remarks
from surecast.measurement.client_share import LATE_S
from surecast.measurement.faults import OUTAGE_LEAST_S, Outage, find_down_times, find_outages
from surecast.measurement.measured_events import (
    LOST,
    NOT_TAKEN,
    MeasuredEvents,
    count_out_of_order,
    outcomes_of,
    window_of,
)
from surecast.measurement.overlay_figures import add_overlay_figures, note_groups, warn_of_expiries, warn_of_times
from surecast.measurement.workload_drive import Measured
from surecast.report import QoSReport, ReportBuilder, check_accounts
from surecast.scenario.mechanism import Mechanism
from surecast.simulation.experiment.confidence import ratio_estimate

__all__ = ["build_report"]

Floats = NDArray[np.float64]

BATCHES: Final = 10
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)
GROUP_QUANTILES: Final = (0.5, 0.95)
_LATE_SHARE: Final = 0.05
_LATE_SAMPLES: Final = 0.01
_LATE_S: Final = 0.1
_START_UP_FACTOR: Final = 5.0


def build_report(measured: Measured) -> QoSReport:
    """Returns the figures of a run. Raises OverloadError if it ended before there was anything to count."""
    plan = measured.plan
    begin_s, end_s = window_of(measured)
    if end_s <= begin_s or not (measured.published_at > 0).any():
        raise OverloadError("the run ended before anything was measured; give it a longer --duration")
    builder = ReportBuilder.of_system(
        plan.system,
        "measured",
        seed=plan.seed,
        time_scale=plan.scale,
        duration_s=end_s - begin_s,
        warm_up_s=begin_s,
        patience_s=plan.patience_s,
        replicas=plan.group.replicas,
        interrupted=measured.is_interrupted,
    )
    figures = _Figures(builder, measured)
    for index in range(len(plan.system.subscribers)):
        figures.subscriber(index)
    figures.system()
    if plan.overlay is None:
        figures.broker(0)
    else:
        for index in range(len(plan.system.overlay.brokers)):
            figures.broker(index)
        add_overlay_figures(builder, measured, end_s - begin_s)
        note_groups(builder, measured)
    _add_remarks(builder, measured, figures.outcomes)
    report = builder.build()
    wrong = check_accounts(report)
    if wrong:
        raise AssertionError(f"the accounts of the run do not balance: {wrong[0]}")
    return report


class _Figures:
    def __init__(self, builder: ReportBuilder, measured: Measured):
        self.builder, self.measured, self.plan = builder, measured, measured.plan
        self.begin_s, self.end_s = window_of(measured)
        self.outcomes: list[MeasuredEvents] = []
        self.out_of_order = count_out_of_order(measured)
        edges = np.linspace(self.begin_s, self.end_s, BATCHES + 1)
        self.edges, self.lengths = edges, np.diff(edges)

    def _ratio(
        self,
        scope: str,
        name: str,
        metric: str,
        over: Floats,
        under: Floats,
        variant: str,
        largest: float = math.inf,
        value: float | None = None,
    ) -> None:
        """Adds a ratio of sums over batches, or the given value, with the interval that the batches give."""
        if not under.sum() > 0:
            return
        pooled, half = (float(part[0]) for part in ratio_estimate(over[:, None], under[:, None]))
        value = pooled if value is None else value
        has_interval = not math.isnan(half)
        self.builder.add(
            scope,
            name,
            metric,
            min(value, largest),
            how="measured",
            variant=variant,
            low=max(0.0, value - half) if has_interval else None,
            high=min(largest, value + half) if has_interval else None,
            samples=None if under is self.lengths else int(under.sum()),
        )

    def _batches(self, outcomes: MeasuredEvents, values: NDArray[np.bool_] | Floats) -> Floats:
        """Sums of a value over the events of each batch."""
        where = np.clip(np.searchsorted(self.edges, outcomes.published_s, side="right") - 1, 0, BATCHES - 1)
        return _sums(where, np.nan_to_num(np.asarray(values, dtype=np.float64)))

    def subscriber(self, index: int) -> None:
        """Adds all figures of one subscriber; one without a publisher has none."""
        who = self.plan.system.subscribers[index]
        outcomes = outcomes_of(self.measured, index)
        self.outcomes.append(outcomes)
        if not len(outcomes.published_s):
            return
        variant = self.plan.variant(who)
        ratio = partial(self._ratio, "subscriber", who.name, variant=variant)
        published, arrived = (
            self._batches(outcomes, np.ones(len(outcomes.reason))),
            self._batches(outcomes, outcomes.arrived),
        )
        if who.name in self.plan.mechanisms:
            ratio("success_share", arrived, published, largest=1.0)
            self._coming(index, outcomes, variant)
        else:
            ratio("reliability", self._batches(outcomes, outcomes.on_time), published, largest=1.0)
        ratio("delay_mean_s", self._batches(outcomes, outcomes.delay_s), arrived)
        ratio("response_mean_s", self._batches(outcomes, outcomes.response_s), arrived)
        ratio("throughput_per_s", arrived, self.lengths)
        ratio("rate_in_per_s", published, self.lengths)
        ratio("queue_length_mean", self._batches(outcomes, outcomes.sojourn_s), self.lengths)
        self._counts(index, outcomes, variant)
        for metric, values in (("delay_quantile_s", outcomes.delay_s), ("response_quantile_s", outcomes.response_s)):
            self._quantiles("subscriber", who.name, metric, values[outcomes.arrived], QUANTILES, variant)

    def _quantiles(
        self, scope: str, name: str, metric: str, values: Floats, quantiles: Sequence[float], variant: str
    ) -> None:
        for q in quantiles if len(values) else ():
            value, detail = float(np.quantile(values, q)), f"p{100 * q:.10g}"
            self.builder.add(
                scope,
                name,
                metric,
                max(0.0, value),
                how="measured",
                detail=detail,
                variant=variant,
                samples=len(values),
            )

    def _counts(self, index: int, outcomes: MeasuredEvents, variant: str) -> None:
        """Adds the accounts of a subscriber: everything published to it is on time, late, dropped for a reason, or
        queued."""
        who = self.plan.system.subscribers[index]
        add = partial(self.builder.add, "subscriber", who.name, how="measured", variant=variant)
        total = len(outcomes.reason)
        parts = {
            ("on_time", ""): int(outcomes.on_time.sum()),
            ("late", ""): int((outcomes.arrived & ~outcomes.on_time).sum()),
            ("queued", ""): int(outcomes.queued.sum()),
            ("dropped", ""): int(outcomes.dropped.sum()),
        }
        expected = self._reasons(who.name)
        for reason in dict.fromkeys([*expected, *filter(None, outcomes.reason)]):
            parts["dropped", reason] = int(outcomes.dropped_for(reason).sum())
        add("count_published", total)
        for (fate, detail), number in parts.items():
            add(f"share_{fate}", number / total, detail=detail, samples=total)
            add(f"count_{fate}", number, detail=detail)
        add("count_duplicate", self.measured.receivers[index].duplicates)
        add("count_out_of_order", self.out_of_order[index])

    def _reasons(self, name: str) -> list[str]:
        """Returns the reasons for which events may be dropped for a subscriber; a reason that never occurred counts as
        0."""
        mechanism = self.plan.mechanisms.get(name)
        reasons = [NOT_TAKEN, LOST]
        if mechanism is None:
            return [*reasons, "expired"]
        rejects = mechanism.join_probability < 1.0 or mechanism.join_table is not None
        reasons += ["rejected while disconnected"] if rejects else []
        states = ("disconnected", "connected")
        reasons += [f"buffer full while {state}" for state in states] if mechanism.buffer_size is not None else []
        return reasons + ([f"expired while {state}" for state in states] if mechanism.expires else [])

    def _coming(self, index: int, outcomes: MeasuredEvents, variant: str) -> None:
        """Adds the figures of subscribers that disconnect at times: events that joined, connected time, their
        parameters."""
        who = self.plan.system.subscribers[index]
        mechanism = self.plan.mechanisms.get(who.name, Mechanism())
        ratio = partial(self._ratio, "subscriber", who.name, variant=variant)
        accepted = ~outcomes.dropped_for(NOT_TAKEN)
        turned = outcomes.dropped_for("rejected while disconnected") | outcomes.dropped_for(
            "buffer full while disconnected"
        )
        away = accepted & (~outcomes.met_on | turned)
        ratio("join_probability", self._batches(outcomes, away & ~turned), self._batches(outcomes, away), largest=1.0)
        there = accepted & ~away
        failed = self._batches(outcomes, there & outcomes.dropped)
        ratio("failed_connected_share", failed, self._batches(outcomes, there), largest=1.0)
        ratio("availability", self._connected(index), self.lengths, largest=1.0)
        add = partial(self.builder.add, "subscriber", who.name, how="measured", variant=variant)
        if mechanism.buffer_size is not None:
            add("buffer_size", mechanism.buffer_size)
        if mechanism.expires:
            add("event_lifetime_s", mechanism.lifetime_s)
        if who.response_target_s is not None and outcomes.arrived.any():
            add("targets_met_share", float(np.nanmean(outcomes.delay_s) <= who.response_target_s))

    def _connected(self, index: int) -> Floats:
        """Returns how long a subscriber was connected in each batch, by the broker's log."""
        measured = self.measured
        changes = measured.event_fates.changes.get(measured.receivers[index].client_id, [])
        points = [((moment - measured.began) * self.plan.scale, is_on) for moment, is_on in changes]
        ends = [moment for moment, _ in points[1:]] + [math.inf]
        total = np.zeros(BATCHES)
        for (start, is_on), end in zip(points, ends, strict=True):
            if is_on:
                total += np.maximum(0.0, np.minimum(self.edges[1:], end) - np.maximum(self.edges[:-1], start))
        return total

    def system(self) -> None:
        """Adds means over the subscribers of each variant: of shares as they stand, of times over the events that
        arrived."""
        groups: dict[str, list[MeasuredEvents]] = {}
        for who, outcomes in zip(self.plan.system.subscribers, self.outcomes, strict=True):
            if len(outcomes.reason):
                groups.setdefault(self.plan.variant(who), []).append(outcomes)
        for variant, members in groups.items():
            ratio = partial(self._ratio, "system", "", variant=variant)
            metric = "reliability" if variant == self.plan.scheme else "success_share"
            good = [outcomes.on_time if metric == "reliability" else outcomes.arrived for outcomes in members]
            published = [self._batches(outcomes, np.ones(len(outcomes.reason))) for outcomes in members]
            shares = [self._batches(f, g) / np.maximum(p, 1) for f, g, p in zip(members, good, published, strict=True)]
            there = np.sum([p > 0 for p in published], axis=0).astype(np.float64)
            mean = float(np.mean([g.mean() for g in good]))
            ratio(metric, np.sum(shares, axis=0), there, largest=1.0, value=mean)
            arrived = np.sum([self._batches(outcomes, outcomes.arrived) for outcomes in members], axis=0)
            for name in ("delay", "response"):
                total = np.sum(
                    [self._batches(outcomes, getattr(outcomes, f"{name}_s")) for outcomes in members], axis=0
                )
                ratio(f"{name}_mean_s", total, arrived)
            ratio("throughput_per_s", arrived, self.lengths)
            self._targets(variant)

    def _targets(self, variant: str) -> None:
        met = []
        for who, outcomes in zip(self.plan.system.subscribers, self.outcomes, strict=True):
            if self.plan.variant(who) != variant or not len(outcomes.reason):
                continue
            if who.name in self.plan.mechanisms and who.response_target_s is not None and outcomes.arrived.any():
                met.append(float(np.nanmean(outcomes.delay_s) <= who.response_target_s))
            elif who.name not in self.plan.mechanisms and who.reliability_target is not None:
                met.append(float(outcomes.on_time.mean() >= who.reliability_target))
        if met:
            share = sum(met) / len(met)
            self.builder.add("system", "", "targets_met_share", share, how="measured", variant=variant)

    def broker(self, index: int) -> None:
        """Adds the events that a broker accepted, the times to their acknowledgements, and its outages."""
        measured, plan = self.measured, self.plan
        name, variant = plan.system.overlay.brokers[index].name, plan.broker_variant
        events = plan.events.time_s
        inside = (events >= self.begin_s) & (events < self.end_s) & (measured.published_at > 0)
        if plan.overlay is not None:
            inside &= np.array([p.home for p in plan.system.publishers])[plan.events.publisher] == index
        accepted = inside & (measured.acknowledged_at > 0)
        where = np.clip(np.searchsorted(self.edges, events, side="right") - 1, 0, BATCHES - 1)
        counts = np.bincount(where[accepted], minlength=BATCHES).astype(np.float64)
        self._ratio("broker", name, "throughput_per_s", counts, self.lengths, variant)
        offered = np.bincount(where[inside], minlength=BATCHES).astype(np.float64)
        for policy in dict.fromkeys(plan.variant(s) for s in plan.system.subscribers):
            self._ratio("broker", name, "rate_in_per_s", offered, self.lengths, policy)
        waits = (measured.acknowledged_at - measured.sent_at)[accepted]
        sums = _sums(where[accepted], waits)
        self._ratio("broker", name, "acknowledgement_mean_s", sums, counts, variant)
        self._quantiles("broker", name, "acknowledgement_quantile_s", waits, GROUP_QUANTILES, variant)
        begin, end = (measured.began + moment / plan.scale for moment in (self.begin_s, self.end_s))
        processes = plan.processes_of[index]
        own = [crash for crash in measured.crashes if crash.number in processes]
        if measured.acknowledgements:
            probes = measured.acknowledgements[processes.start - 1 : processes.stop - 1]
            outages = find_outages(sorted(itertools.chain(*probes)), own, begin, end)
        else:
            outages = find_down_times(own, begin, end)
        self._outages(name, variant, outages, begin, end)

    def _outages(self, name: str, variant: str, outages: Sequence[Outage], begin: float, end: float) -> None:
        scale = self.plan.scale
        add = partial(self.builder.add, "broker", name, how="measured", variant=variant)
        down = np.array([outage.length_s for outage in outages]) * scale
        total = (end - begin) * scale
        add("availability", max(0.0, 1.0 - float(down.sum()) / total))
        ended = down[: len(down) - sum(outage.end >= end for outage in outages)]
        if len(outages):
            add("mtbf_s", (total - float(down.sum())) / len(outages), samples=len(outages))
        if len(ended):
            add("mttr_s", float(ended.mean()), samples=len(ended))
            self._quantiles("broker", name, "outage_quantile_s", ended, GROUP_QUANTILES, variant)
        failovers = [outage.length_s for outage in outages if outage.failover]
        if failovers:
            add("failover_mean_s", float(np.mean(failovers)), samples=len(failovers))


def _sums(where: NDArray[np.intp], values: Floats) -> Floats:
    return np.bincount(where, weights=values, minlength=BATCHES).astype(np.float64)


def _add_remarks(builder: ReportBuilder, measured: Measured, outcomes: Sequence[MeasuredEvents]) -> None:
    plan, scale = measured.plan, measured.plan.scale
    begin_s, end_s = window_of(measured)
    if scale != 1.0:
        builder.note(
            f"time scale {scale:g}: rates, times of failure and repair, connected periods, transmission times and "
            f"lifetimes of events run {scale:g} times as fast, and are reported in the scenario's time; the machine's "
            f"own times count {scale:g}-fold in delays and outages, and acknowledgement and fail-over times are real"
        )
    outage = f"an outage is a time of more than {OUTAGE_LEAST_S:g} s without any acknowledgement"
    if plan.overlay is not None and plan.group.replicas == 1:
        outage = "an outage of a broker is the time from a kill or freeze until it was up again"
    builder.note(
        f"acknowledgement times are those of publishers on the machine of the broker, from sending to PUBACK; {outage}"
    )
    if plan.scheme != plan.system.delivery.fault_tolerance.scheme and len(plan.mechanisms) < len(outcomes):
        kept = "the broker keeps subscriptions and events over a crash, and no entry has to be refreshed"
        if plan.overlay is not None:
            kept = "a broker that was repaired learns at once what its neighbours want, as if refreshes were ideal"
        builder.note(f"{kept}: its figures stand under {plan.scheme}")
    builder.note(
        "an event published while no broker answers is lost"
        if not plan.patience_s
        else f"publishers send an event again for up to {plan.patience_s:g} s of real time until it is acknowledged"
    )
    builder.note(f"intervals come from {BATCHES} parts of the run, taken as independent")
    builder.note(
        f"{len(measured.crashes)} crashes, {int((measured.acknowledged_at > 0).sum())} events acknowledged; the "
        f"broker's accounts of {len(measured.accounts)} sessions were checked"
    )
    if plan.components:
        pairs = ", ".join(f"{broker} as {component}" for broker, component in plan.components.items())
        builder.note(f"brokers fail when components of an availability trace did: {pairs}")
    notes, warnings = decision_remarks(plan.asked, measured.targets, scale)
    for note in notes:
        builder.note(note)
    for warning in warnings:
        builder.warn(warning)
    _warn(builder, measured, outcomes)
    if measured.is_interrupted:
        builder.warn(f"interrupted: {end_s - begin_s:.4g} s of {plan.duration_s:.4g} s were measured")


def _warn(builder: ReportBuilder, measured: Measured, outcomes: Sequence[MeasuredEvents]) -> None:
    plan = measured.plan
    broker = plan.system.overlay.brokers[0]
    if broker.notification_service is not None or broker.matching is not None:
        builder.warn(f"broker {broker.name}: the service times of the scenario are not run: the broker takes its own")
    if plan.group.replicas > 1 and plan.group.entry == "leader":
        builder.note("publishers are connected to the replica that leads, and follow when another does")
    if plan.overlay is None:
        _warn_of_start_up(builder, measured)
    else:
        warn_of_times(builder, measured)
        warn_of_expiries(builder, measured, outcomes)
    _warn_of_expiry(builder, measured, outcomes)
    lost = sum(int(each.dropped_for(LOST).sum()) for each in outcomes)
    if lost:
        builder.warn(f"{lost} acknowledged events were lost: neither delivered, dropped, expired nor queued")
    for session in measured.accounts:
        accounts = session["accounts"]
        if accounts["queued"] != session["inflight"] + session["waiting"]:
            builder.warn(f"the broker's accounts of {session['client']} do not balance: {accounts}")
    for problem in measured.problems:
        builder.warn(problem)
    if measured.event_fates.missing_records:
        builder.warn(f"{measured.event_fates.missing_records} records of the event log could not be written")
    _warn_of_lateness(builder, measured)


def _warn_of_lateness(builder: ReportBuilder, measured: Measured) -> None:
    """Says how late each process of clients was, and warns where that matters to what was measured."""
    scale, allowed_s = measured.plan.scale, _allowed_s(measured)
    remedy = "use a lower time scale or rate, or more client processes"
    for number, late in enumerate(measured.lateness, 1):
        who = f"client process {number} of {len(measured.lateness)}"
        builder.note(
            f"{who}: {late.published} events sent, one in a hundred {late.published_p99_s:.2g} s late or more, the "
            f"latest {late.published_max_s:.2g} s; {late.late_samples} of {late.samples} wake-ups came more than "
            f"{LATE_S:g} s late, the latest {late.sample_max_s:.2g} s; these are real times"
        )
        if late.published_p99_s * scale > allowed_s:
            builder.warn(
                f"{who} fell behind: one of its events in a hundred was sent {late.published_p99_s * scale:.3g} s late "
                f"or more, in the scenario's time; {remedy}"
            )
        if late.late_samples > _LATE_SAMPLES * late.samples and LATE_S * scale > allowed_s:
            builder.warn(
                f"{who} was late: more than one in a hundred of its wake-ups came more than {LATE_S * scale:.3g} s "
                f"late, in the scenario's time, and it has noticed arrivals so much late; {remedy}"
            )


def _warn_of_start_up(builder: ReportBuilder, measured: Measured) -> None:
    """Processes that take longer to start than repairs take are down for too long."""
    plan, failures = measured.plan, measured.plan.group.failures
    least_s = measured.start_up_s * plan.scale
    if failures is not None and failures.mttr_s < _START_UP_FACTOR * least_s:
        builder.warn(
            f"a process takes {measured.start_up_s:.2g} s to start, {least_s:.3g} s of the scenario's time, and "
            f"repairs take {failures.mttr_s:.4g} s: down times are longer than they should be; use a time scale of "
            f"{failures.mttr_s / measured.start_up_s / _START_UP_FACTOR:.2g} or less"
        )


def _warn_of_expiry(builder: ReportBuilder, measured: Measured, outcomes: Sequence[MeasuredEvents]) -> None:
    """Warns if the lifetime of events, which is for subscribers that disconnect at times, expired events of others as
    well."""
    too = measured.plan.expiring_too
    if too:
        subscribers = measured.plan.system.subscribers
        expired = sum(int(outcomes[i].dropped_for("expired").sum()) for i in too)
        names = ", ".join(subscribers[i].name for i in too[:3])
        builder.warn(
            f"the lifetime of events holds for {names}{' and others' if len(too) > 3 else ''} too, always connected: "
            "the expiry of an MQTT message is the same for all subscribers, and what waits for longer expires for "
            f"them; {expired} of their events did"
        )


def _allowed_s(measured: Measured) -> float:
    """Returns the delay beyond its due time with which an event may be sent, in the scenario's time, before it
    matters."""
    system = measured.plan.system
    periods = [s.connectivity for s in system.subscribers if s.connectivity is not None]
    times = [law.mean_s for period in periods for law in (period.on, period.off)]
    times += [p.deadline_s for p in system.publishers if p.deadline_s < math.inf]
    return _LATE_SHARE * min(times) if times else _LATE_S * measured.plan.scale
