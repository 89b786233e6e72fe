"""The outcomes of the events for one subscriber, as arrays from which the figures of a run are computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.measurement.event_fates import EventFate
from surecast.measurement.workload_drive import Measured
from surecast.protocol.overlay.overlay_plan import scheme_parts

__all__ = ["DROPS", "LOST", "MeasuredEvents", "count_out_of_order", "outcomes_of", "window_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOST: Final = "lost although acknowledged"
NOT_TAKEN: Final = "home broker down"
DROPS: Final = {"not-joined": "rejected", "queue-full": "buffer full", "expired": "expired"}
"""The reasons for drops of a mechanism: their names in logs, and in reports."""


@dataclass(frozen=True)
class MeasuredEvents:
    """The events for one subscriber that were due in the window, in their order.

    Times are the scenario's. `delay_s` and `response_s` are NaN where an event did not arrive, and `sojourn_s` is how
    long it was in the queue within the window. `reason` is why an event was dropped, empty where it was not.
    `unrecorded` are the numbers of the acknowledged events that did not arrive in their lifetime, and are in no log.
    """

    published_s: Floats
    delay_s: Floats
    response_s: Floats
    sojourn_s: Floats
    deadline_s: Floats
    met_on: NDArray[np.bool_]
    reason: tuple[str, ...]
    unrecorded: tuple[int, ...] = ()

    @property
    def arrived(self) -> NDArray[np.bool_]:
        """For each event, whether it arrived before the end."""
        return ~np.isnan(self.delay_s)

    @property
    def on_time(self) -> NDArray[np.bool_]:
        """For each event, whether it arrived before its deadline."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.delay_s <= self.deadline_s)

    @property
    def queued(self) -> NDArray[np.bool_]:
        """For each event, whether it was still waiting at the end."""
        return np.asarray(~self.arrived & ~self.dropped)

    @property
    def dropped(self) -> NDArray[np.bool_]:
        """For each event, whether it will never arrive."""
        return np.array([bool(reason) for reason in self.reason], dtype=np.bool_)

    def dropped_for(self, reason: str) -> NDArray[np.bool_]:
        """Returns, for each event, whether it was dropped for a reason."""
        return np.array([each == reason for each in self.reason], dtype=np.bool_)


def window_of(measured: Measured) -> tuple[float, float]:
    """Returns the measured window, in the scenario's time from the beginning of the run."""
    return measured.plan.warm_up_s, (measured.ended - measured.began) * measured.plan.scale


def outcomes_of(measured: Measured, index: int) -> MeasuredEvents:
    """Returns the outcomes of the subscriber with this index."""
    plan = measured.plan
    who, receiver = plan.system.subscribers[index], measured.receivers[index]
    begin_s, end_s = window_of(measured)
    topics = [i for i, topic in enumerate(plan.system.topics) if topic.name in who.topics]
    inside = (plan.events.time_s >= begin_s) & (plan.events.time_s < end_s) & (measured.published_at > 0)
    chosen = np.flatnonzero(inside & np.isin(plan.events.topic, topics))
    event_fates, fates = measured.event_fates, measured.event_fates.of(receiver.client_id)
    comes_and_goes = who.name in plan.mechanisms
    # What comes and goes meets an event when its own broker has it, however long that was on its way.
    at_home = event_fates.reached[who.home] if comes_and_goes and plan.overlay is not None else event_fates.accepted
    size = len(chosen)
    delay, response, sojourn = np.full(size, math.nan), np.full(size, math.nan), np.zeros(size)
    met_on, reasons, unrecorded = np.ones(size, dtype=np.bool_), [], []
    for row, number in enumerate(chosen.tolist()):
        published = float(measured.published_at[number])
        accepted_at = at_home.get(number, event_fates.accepted.get(number, published))
        arrived = receiver.first.get(number)
        fate = fates.get(number)
        over = published + float(plan.events.lifetime_s[number]) / plan.scale
        if number in receiver.expired or (fate is not None and fate.outcome == "expired"):
            fate = EventFate("expired", min(over, measured.cut))  # it is found a little later that it has
        met_on[row] = event_fates.was_connected(receiver.client_id, accepted_at)
        left, reason = measured.cut, ""
        if arrived is not None and arrived <= measured.cut:
            delay[row], response[row] = arrived - published, max(0.0, arrived - accepted_at)
            left = arrived
        elif arrived is None and fate is not None and fate.outcome != "delivered" and fate.time_s <= measured.cut:
            met = event_fates.was_connected(receiver.client_id, fate.time_s)
            reason, left = _reason(fate.outcome, met, comes_and_goes), fate.time_s
        elif arrived is None and (fate is None or fate.outcome == "delivered"):
            acknowledged = measured.acknowledged_at[number] > 0
            reason = _lost(measured, over) if acknowledged else NOT_TAKEN
            left = accepted_at if reason else measured.cut
            if acknowledged and fate is None and reason != LOST:
                unrecorded.append(number)
        reasons.append(reason)
        sojourn[row] = max(0.0, min(left, measured.ended) - max(accepted_at, measured.began + begin_s / plan.scale))
    deadlines = np.array([p.deadline_s for p in plan.system.publishers])[plan.events.publisher[chosen]]
    return MeasuredEvents(
        plan.events.time_s[chosen],
        delay * plan.scale,
        response * plan.scale,
        sojourn * plan.scale,
        deadlines,
        met_on,
        tuple(reasons),
        tuple(unrecorded),
    )


def _lost(measured: Measured, over: float) -> str:
    """Returns why an event that was acknowledged and never arrived is lost, in the words of simulations."""
    plan = measured.plan
    if plan.overlay is None:
        return LOST
    parts = scheme_parts(plan.scheme)
    if parts.custody:
        # What was underway at the end of the figures and expired after it was queued then.
        return "expired" if over <= measured.cut else "" if over <= measured.collected else LOST
    return "partitioned" if parts.detours else "path down"


def _reason(reason: str, connected: bool, comes_and_goes: bool) -> str:
    """Returns a reason in the words of predictions and simulations."""
    if reason not in DROPS or (reason == "expired" and not comes_and_goes):
        return reason
    if reason == "not-joined":
        connected = False  # connected subscribers get everything
    return f"{DROPS[reason]} while {'connected' if connected else 'disconnected'}"


def count_out_of_order(measured: Measured) -> list[int]:
    """Returns the number of events that reached each subscriber before one that others got, or its publisher published,
    earlier.

    The order is that of the subscriber with the most events; those it did not get stand in the order of publication.
    Over several brokers only the order of each publisher counts.
    """
    publisher = measured.plan.events.publisher
    longest = max(measured.receivers, key=lambda receiver: len(receiver.first))
    index_of = {number: i for i, number in enumerate(longest.first)}
    counts = []
    for receiver in measured.receivers:
        last_index, wrong = -1, 0
        last_of: dict[int, int] = {}
        for number in receiver.first:
            who = int(publisher[number])
            position = index_of.get(number, last_index)
            wrong += (position < last_index and measured.plan.overlay is None) or number < last_of.get(who, -1)
            last_index, last_of[who] = max(last_index, position), max(last_of.get(who, -1), number)
        counts.append(wrong)
    return counts
