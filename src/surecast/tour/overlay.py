"""Detour: an overlay of real brokers loses a broker and then a link, while its subscribers watch."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Final

import numpy as np

from surecast import predict
from surecast.broker.overlay.local_overlay import LocalOverlay
from surecast.broker.overlay.overlay_writing import write_overlay
from surecast.protocol.overlay.plan_of_system import plan_of_system
from surecast.scenario import System
from surecast.scenario.distributions import Exponential
from surecast.scenario.system import Failures
from surecast.studio.chart import Axis, Chart, Layer, Points, RuleLine, Span
from surecast.studio.page import Cell, Table
from surecast.tour.overlay_clients import OverlayFaults, OverlayWatch, watch_overlay
from surecast.tour.scenarios import load_scenario
from surecast.tour.stage_content import (
    Block,
    CheckedClaim,
    CheckedClaims,
    Key,
    Picture,
    SavedTable,
    StageOutcome,
    Tile,
    TourContext,
    picture,
)

__all__ = ["overlay_stage", "overlay_verdicts", "with_faults"]

_SCHEMES: Final = ("none", "buffering", "bypass", "bypass-buffering")
_START_S: Final = 60.0


def overlay_stage(context: TourContext) -> StageOutcome:
    """Starts the overlay, lets it be used, kills a broker, cuts a link, and checks what arrived."""
    system = load_scenario("diamond").system
    faults = OverlayFaults("north", ("west", "north"), *((2.0, 1.5) if context.quick else (5.0, 4.0)))
    path = context.work / "overlay" / "overlay.yaml"
    context.show("starting four brokers", 0, 0)
    write_overlay(path, system.name, plan_of_system(system), options={"gates": True})
    overlay = LocalOverlay(path)
    try:
        for name in overlay.names:
            overlay.start(name)
        overlay.wait_ready(_START_S)
        watch = asyncio.run(
            watch_overlay(
                overlay, system, faults, lambda done, total: context.show("publishing and watching", done, total)
            )
        )
    finally:
        overlay.close()
    return _outcome(watch, system)


def with_faults(system: System, watch: OverlayWatch) -> System:
    """Returns the system with the availability and the repair times that its components had in the run."""
    faults = watch.faults
    broker_down_s, link_down_s = watch.back_s - watch.killed_s, watch.opened_s - watch.cut_s

    def failures(down_s: float) -> Failures:
        return Failures(Exponential().with_mean(watch.ended_s - down_s), Exponential().with_mean(down_s))

    overlay = system.overlay
    names = [broker.name for broker in overlay.brokers]
    brokers = tuple(
        replace(broker, failures=failures(broker_down_s)) if broker.name == faults.broker else broker
        for broker in overlay.brokers
    )
    links = tuple(
        replace(link, failures=failures(link_down_s)) if {names[link.a], names[link.b]} == set(faults.link) else link
        for link in overlay.links
    )
    return replace(system, overlay=replace(overlay, brokers=brokers, links=links))


def _delays(watch: OverlayWatch, name: str) -> dict[int, float]:
    """Returns the delay of the first copy of each event that arrived."""
    delays: dict[int, float] = {}
    for event in watch.arrived[name]:
        delays.setdefault(event.number, event.at_s - watch.sent_s[event.number])
    return delays


def _in_time(watch: OverlayWatch, name: str, deadline_s: float) -> float:
    """Returns the share of all events that a subscriber got in time."""
    delays = _delays(watch, name)
    return sum(delay_s <= deadline_s for delay_s in delays.values()) / len(watch.sent_s) if watch.sent_s else math.nan


def overlay_verdicts(watch: OverlayWatch) -> tuple[CheckedClaim, ...]:
    """Returns the verdicts on what the subscribers got."""
    missing = {
        name: len(watch.acknowledged - {event.number for event in arrived}) for name, arrived in watch.arrived.items()
    }
    doubled = {name: len(arrived) - len({event.number for event in arrived}) for name, arrived in watch.arrived.items()}
    return (
        CheckedClaim(
            not any(missing.values()),
            "Nothing that was acknowledged is lost, though a broker was killed and a link cut.",
            f"{len(watch.acknowledged):,} of {len(watch.sent_s):,} events were acknowledged; missing: "
            f"{', '.join(f'{number} at {name}' for name, number in missing.items())}.",
        ),
        CheckedClaim(
            not any(doubled.values()),
            "No event came twice, though the way around a failure is a second way.",
            f"twice: {', '.join(f'{number} at {name}' for name, number in doubled.items())}.",
        ),
    )


def _worst(watch: OverlayWatch, name: str, begin_s: float, end_s: float) -> float:
    """Returns the longest delay of the events that were sent in a time."""
    delays = _delays(watch, name)
    return max((delay for number, delay in delays.items() if begin_s <= watch.sent_s[number] < end_s), default=math.nan)


def _outcome(watch: OverlayWatch, system: System) -> StageOutcome:
    faults = watch.faults
    name = system.subscribers[0].name
    deadline_s = system.publishers[0].deadline_s
    verdicts = overlay_verdicts(watch)
    predicted = predict(with_faults(system, watch), schemes=_SCHEMES)
    shares = {
        scheme: {
            row.name: row.value
            for row in predicted.select(scope="subscriber", metric="reliability")
            if row.variant.startswith(scheme)
        }
        for scheme in _SCHEMES
    }
    killed_ms = 1000 * _worst(watch, name, watch.killed_s - 1.0, watch.killed_s + 1.0)
    cut_ms = 1000 * _worst(watch, name, watch.cut_s - 1.0, watch.cut_s + 1.0)
    measured = 100 * _in_time(watch, name, deadline_s)
    held = "all checks hold" if all(verdict.holds for verdict in verdicts) else "a check does not hold: see below"
    lead = (
        f"Four brokers in a circle took {len(watch.sent_s):,} events. Broker {faults.broker}, which is on the way to "
        f"{name}, was killed with SIGKILL; later its link to {faults.link[0]} was cut. Both times events took the way "
        f"around: {measured:.1f} % reached {name} within {1000 * deadline_s:.0f} ms, and {held}."
    )
    tiles = (
        Tile("longest delay, broker killed", f"{killed_ms:.0f} ms", "a closed connection is noticed at once"),
        Tile("longest delay, link cut", f"{cut_ms:.0f} ms", "a silent link is given up after 500 ms"),
        Tile(f"in time at {name}", f"{measured:.1f} %", "measured, all events of the run"),
        Tile("acknowledged and lost", f"{_lost(watch)}", f"of {len(watch.acknowledged):,} events"),
    )
    blocks: tuple[Block, ...] = (
        _delay_picture(watch, deadline_s),
        CheckedClaims("Checked on what arrived", verdicts),
        _schemes_table(watch, system, shares, deadline_s),
    )
    key: Key = {
        "events": len(watch.sent_s),
        "in_time_measured": measured / 100,
        "in_time_predicted": shares["bypass-buffering"].get(name),
        "delay_killed_s": killed_ms / 1000,
        "delay_cut_s": cut_ms / 1000,
        "lost_although_acknowledged": _lost(watch),
    }
    return StageOutcome(lead, tiles, blocks, key)


def _lost(watch: OverlayWatch) -> int:
    return max(len(watch.acknowledged - {event.number for event in arrived}) for arrived in watch.arrived.values())


def _delay_picture(watch: OverlayWatch, deadline_s: float) -> Picture:
    """Returns the picture of the delay of every event at every subscriber."""
    faults = watch.faults
    layers: list[Layer] = []
    rows: list[list[Cell]] = []
    for name in watch.arrived:
        delays = _delays(watch, name)
        sent_s = [watch.sent_s[number] for number in delays]
        values_ms = 1000 * np.array(list(delays.values()))
        layers.append(Points(name, sent_s, values_ms, size_px=5.0, edge_px=0.5))
        rows += [[name, a, float(b)] for a, b in zip(sent_s, values_ms, strict=True)]
    chart = Chart(
        layers,
        title="A broker dies, a link is cut: the delay of every event",
        x=Axis("time of publication (s)"),
        y=Axis("delay (ms)", log=True),
        rules=[
            RuleLine(f"{faults.broker} is killed", watch.killed_s, colour="accent"),
            RuleLine("it is back", watch.back_s, colour=2),
            RuleLine("the link is cut", watch.cut_s, colour="accent"),
            RuleLine("it is open", watch.opened_s, colour=2),
        ],
        spans=[Span(watch.killed_s, watch.back_s), Span(watch.cut_s, watch.opened_s)],
        about=f"scatter plot of the delays of {len(watch.sent_s)} events at {len(watch.arrived)} subscribers.",
        caption=(
            "Each dot is an event at a subscriber. Killing a broker closes its connections, so its neighbours send "
            "around it at once. A cut link is silent: events wait until it is given up, and then all go around. "
            f"Later than {1000 * deadline_s:.0f} ms is too late."
        ),
        ratio=0.0,
        height_px_min=440,
    )
    return picture(chart, ("subscriber", "published at s", "delay in ms"), rows, "detour")


def _schemes_table(
    watch: OverlayWatch, system: System, shares: dict[str, dict[str, float]], deadline_s: float
) -> SavedTable:
    """Returns the table of events in time: predicted for every scheme from this run's outages, and measured."""
    rows: list[list[Cell]] = []
    for each in system.subscribers:
        texts = [f"{100 * shares[scheme][each.name]:.1f} %" for scheme in _SCHEMES]
        rows.append([each.name, *texts, f"{100 * _in_time(watch, each.name, deadline_s):.1f} %"])
    header = ("in time at", *(f"predicted: {scheme}" for scheme in _SCHEMES), "measured: bypass-buffering")
    title = "What each scheme would have given with the outages of this run, by formula, and what was measured"
    return SavedTable(Table(header, rows, title), "schemes")
