"""Figures of an overlay's brokers and links in the report of a run, and warnings about times that do not fit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from surecast.measurement.measured_events import MeasuredEvents
from surecast.measurement.measurement_plan import REFRESH_LEAST_S, SUSPECT_LEAST_S
from surecast.measurement.workload_drive import Measured
from surecast.protocol.overlay.overlay_plan import scheme_parts
from surecast.report import ReportBuilder

__all__ = ["add_overlay_figures", "note_groups", "warn_of_expiries", "warn_of_times"]

_SHARE_MAX: Final = 0.1
"""How much of the shortest repair or deadline the times of the machine may take."""


def add_overlay_figures(builder: ReportBuilder, measured: Measured, duration_s: float) -> None:
    """Adds table sizes and processor time of each broker, the traffic of each link, and messages by kind.

    These counts are of the whole run, from its first subscription to the last message.
    """
    plan = measured.plan
    variant, names = plan.broker_variant, [broker.name for broker in plan.system.overlay.brokers]
    published = int((measured.acknowledged_at > 0).sum())
    messages: Counter[str] = Counter()
    for name in names:
        counts = measured.counts[name]
        handled = counts.published + counts.received
        if counts.table_entries is not None:
            builder.add("broker", name, "table_entries", counts.table_entries, how="measured", variant=variant,
                        detail="remote")  # fmt: skip
        if handled and counts.processor_s:
            builder.add("broker", name, "cpu_per_event_s", counts.processor_s / handled, how="measured",
                        variant=variant, samples=handled)  # fmt: skip
        for hop in counts.hops.values():
            messages["notification"] += hop["acknowledged"]
            messages["detour"] += hop["detoured"]
    run_s = (measured.cut - measured.began) * plan.scale
    for link in plan.system.overlay.links:
        ends = (names[link.a], names[link.b]), (names[link.b], names[link.a])
        passed = sum(measured.counts[a].hops.get(b, Counter())["acknowledged"] for a, b in ends)
        builder.add("overlay_link", link.name, "traffic_per_s", passed / run_s, how="measured", variant=variant,
                    detail="notification")  # fmt: skip
    for kind, number in messages.items() if published else ():
        builder.add("system", "", "messages_per_event", number / published, how="measured", variant=variant,
                    detail=kind, samples=published)  # fmt: skip
    lost = Counter[str]()
    for counts in measured.counts.values():
        for hop in counts.hops.values():
            lost.update({reason: number for reason, number in hop.items() if reason.startswith("dropped") and number})
            lost["lost with a session"] += hop["lost"]
        lost["expired on their way"] += counts.expired
    words = ", ".join(
        f"{reason.removeprefix('dropped: ')} {number}" for reason, number in sorted(lost.items()) if number
    )
    builder.note(
        "events in custody are sent again at every link-up: models agree best with a short retransmission_interval"
    )
    tolerance = plan.system.delivery.fault_tolerance
    if plan.overlay is not None and plan.overlay.trees[0].refresh == "link":
        builder.note("brokers compare their tables at every link-up, as if refreshes were ideal")
    elif tolerance.refresh_interval < REFRESH_LEAST_S * plan.scale:
        builder.warn(
            f"subscriptions are refreshed every {REFRESH_LEAST_S:g} s, {REFRESH_LEAST_S * plan.scale:.4g} s of the "
            f"scenario's time, and not every {tolerance.refresh_interval:.4g} s: use a time scale of "
            f"{tolerance.refresh_interval / REFRESH_LEAST_S:.2g} or less"
        )
    builder.note(
        "of every broker: routing-table entries are those that neighbours had announced at the end; processor time is "
        "of the whole process, its start-up included, by events published there or received; traffic counts events "
        "that a neighbour acknowledged"
    )
    if words:
        builder.note(
            f"events that brokers counted as gone, by link: {words}; a broker that is killed counts what it had"
        )


def note_groups(builder: ReportBuilder, measured: Measured) -> None:
    """Says what is different where the brokers of an overlay are groups."""
    replicas = measured.plan.group.replicas
    if replicas > 1:
        builder.note(
            f"each broker is a group of {replicas} replicas: its processor time is that of all of them, and has a "
            "probe's publications at each, by which outages are found; no run of groups is simulated again with its "
            "outages as they were executed"
        )


def warn_of_times(builder: ReportBuilder, measured: Measured) -> None:
    """Warns where the machine's own times, scaled, are no small part of a repair or a deadline.

    A process is started ahead, to be up when it is to be; what its start takes matters to repairs of brokers alone.
    """
    plan = measured.plan
    overlay = plan.system.overlay
    repairs = {f"broker {each.name}": each.failures.mttr_s for each in overlay.brokers if each.failures is not None}
    starts = {} if plan.freezes else {f"the mean repair of {what}": time_s for what, time_s in repairs.items()}
    repairs |= {f"link {each.name}": each.failures.mttr_s for each in overlay.links if each.failures is not None}
    limits = {f"the mean repair of {what}": time_s for what, time_s in repairs.items()}
    limits |= {
        f"the deadline of {each.name}": each.deadline_s for each in plan.system.publishers if each.deadline_s < math.inf
    }
    for name, time_s, short in (("suspicion", measured.suspect_s, limits), ("start-up", measured.start_up_s, starts)):
        shortest = min(short, key=short.__getitem__, default="")
        scaled_s = time_s * plan.scale
        if shortest and scaled_s > _SHARE_MAX * short[shortest]:
            builder.warn(
                f"{name} takes {time_s:.2g} s, {scaled_s:.3g} s of the scenario's time, which is more than a tenth of "
                f"{shortest}, {short[shortest]:.4g} s: use a time scale of "
                f"{_SHARE_MAX * short[shortest] / time_s:.2g} or less"
            )
    detection_s = plan.system.delivery.fault_tolerance.detection
    if 0 < detection_s < SUSPECT_LEAST_S * plan.scale:
        builder.warn(
            f"neighbours are suspected after {SUSPECT_LEAST_S:g} s, {SUSPECT_LEAST_S * plan.scale:.4g} s of the "
            f"scenario's time, and not after {detection_s:.4g} s: use a time scale of "
            f"{detection_s / SUSPECT_LEAST_S:.2g} or less"
        )


def warn_of_expiries(builder: ReportBuilder, measured: Measured, outcomes: Sequence[MeasuredEvents]) -> None:
    """Says how many events are taken for expired on their way, and warns where brokers have counted fewer.

    Event logs have no record of an event that expired between brokers: it is one that did not arrive in its lifetime.
    Each must have expired at some broker at least, or have been on a link when a broker was killed.
    """
    if not scheme_parts(measured.plan.scheme).custody:
        return
    taken = len({number for each in outcomes for number in each.unrecorded})
    hops = [hop for counts in measured.counts.values() for hop in counts.hops.values()]
    expired = sum(counts.expired for counts in measured.counts.values()) + sum(hop["dropped: expired"] for hop in hops)
    killed = sum(hop["on_link"] for hop in hops)
    if taken:
        builder.note(
            f"{taken} events did not reach all of their subscribers in their lifetime and are taken for expired on "
            f"their way, or for queued if that was after the end; brokers counted {expired} as expired, once at each, "
            f"and {killed} on a link as one of its ends was killed. A deadline longer than the run shows each loss"
        )
    if taken > expired + killed:
        builder.warn(
            f"{taken - expired - killed} events that are taken for expired were counted as such by no broker: they "
            "were lost, or expired in a broker at the moment of its kill"
        )
