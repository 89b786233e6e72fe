"""A placement for a real workload: taxi trips of New York on a real network. About half a minute.

Trips of the DEBS 2015 Grand Challenge (a csv.gz without a header: drop-offs of half an hour on 1 January 2013) are the
notifications; the network is the one called newyork of SNDlib. Measured are

- the filter classes: pick-up zones of a grid, with their shares of the trips;
- the rate of notifications: every taxi under way sends one each --interval seconds, from the trips' durations;
- the values of two attributes: fare, and latitude of the drop-off, as histograms, of their own for the busiest zones
  and together for the rest. The model takes them as independent, which they nearly are (printed).

Nobody recorded who subscribed to what. Assumed are --subscriptions active ones with a mean life of ten minutes, spread
over zones like the trips; each asks for a range of the latitude, and of the fare with probability 0.7, around what
trips have, and as wide as INTERVALS says; a zone has most of its publishers and subscribers in one part of the network
(--locality), drawn at random, since the network's places are not known. So are the capacities.

The data comes from a folder with events/debs2015_taxi and topologies/sndlib: --data, or SURECAST_DATA.

Run: SURECAST_DATA=folder python benchmarks/plan_taxi.py --save taxi.yaml
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from surecast.planning.placement import placement_problem, plan_placement
from surecast.planning.sweeps import sweep_load
from surecast.prediction.capacity import predict_capacity
from surecast.scenario import Scenario, System, load_system
from surecast.scenario.summary import short_names

TRIPS = Path("events/debs2015_taxi/trips_1.csv.gz")
NETWORK = Path("topologies/sndlib/newyork.txt")
BOX = (-74.05, -73.75, 40.6, 40.9)
"""Longitudes and latitudes of the city; a position outside was not measured."""
ZONE_DEGREES = 0.01
ZONE_TRIPS_MIN = 40
BINS = 16
INTERVALS = {
    "fare": (0.7, [0.0, 5.0, 20.0], [0.6, 0.4]),
    "latitude": (1.0, [0.0, 0.01, 0.05], [0.6, 0.4]),
}
"""By attribute: how often a subscription asks for it, and edges and weights of the width of the range (assumed)."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trips:
    """Trips with known positions: zone of the pick-up, duration, and the attributes by name."""

    zone: tuple[tuple[int, int], ...]
    duration_s: Array
    attributes: dict[str, Array]
    span_s: float


def read_trips(path: Path) -> Trips:
    """The trips of a file; those without a position or a duration are left out."""
    zones, durations, rows, ends = [], [], [], []
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.reader(file):
            lon, lat, to_lon, to_lat = (float(value) for value in row[6:10])
            inside = all(
                BOX[0] <= x <= BOX[1] and BOX[2] <= y <= BOX[3] for x, y in ((lon, lat), (to_lon, to_lat))
            )  # fmt: skip
            ends.append(np.datetime64(row[3]))
            if inside and float(row[4]) > 0:
                zones.append((int((lon - BOX[0]) / ZONE_DEGREES), int((lat - BOX[2]) / ZONE_DEGREES)))
                durations.append(float(row[4]))
                rows.append((float(row[11]), to_lat))
    fare, latitude = np.array(rows, dtype=np.float64).T
    span = float((max(ends) - min(ends)) / np.timedelta64(1, "s")) + 60.0  # times are whole minutes
    return Trips(
        tuple(zones),
        np.array(durations),
        {"fare": fare, "latitude": latitude},
        span,
    )


def histogram(values: Array) -> dict[str, list[float]]:
    """Bins that hold about the same number of values each, and their weights."""
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, BINS + 1)).round(4))
    weights, _ = np.histogram(values, edges)
    return {"edges": edges.tolist(), "weights": [float(weight) for weight in weights]}


def filters_of(trips: Trips, chosen: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """The attributes of some trips as a scenario describes them."""
    found = []
    for name, values in trips.attributes.items():
        share, edges, weights = INTERVALS[name]
        measured = histogram(values[chosen])
        interval = {"centre": measured, "width": {"edges": edges, "weights": weights}}
        found.append({"name": name, "value": measured, "interval": interval, "constrained": share})
    return found


def taxi_scenario(
    trips: Trips, network: Path, *, subscriptions: float, interval_s: float, locality: float, own: int
) -> dict[str, Any]:
    """The scenario as plain values: one class for each busy zone, and one for all others."""
    counts = Counter(trips.zone)
    busy = [zone for zone, count in counts.most_common() if count >= ZONE_TRIPS_MIN]
    zones = np.array([busy.index(zone) if zone in busy[:own] else -1 for zone in trips.zone])
    classes: list[dict[str, Any]] = []
    for i, zone in enumerate(busy):
        each: dict[str, Any] = {"name": f"zone-{zone[0]}-{zone[1]}", "weight": float(counts[zone])}
        each |= {"hot_spot": "random", "locality": locality}
        if i < own:
            each["filters"] = filters_of(trips, zones == i)
        classes.append(each)
    rest = sum(counts.values()) - sum(counts[zone] for zone in busy)
    if rest:
        classes.append({"name": "elsewhere", "weight": float(rest), "hot_spot": "random", "locality": locality})
    rate = float(trips.duration_s.sum()) / interval_s / trips.span_s
    return {
        "surecast": 1,
        "name": "taxi",
        "description": "New York taxi trips on a network of 16 routers; content-based routing.",
        "seed": 1,
        "network": {
            "kind": "file",
            "path": str(network.resolve()),
            "domains": 3,
            "link_latency": "100us",
            "link_capacity": "20000/s",
            "router_capacity": "100000/s",
        },
        "overlay": {
            "candidates": {"count": 8},
            "brokers": [{"name": "site", "at": "candidates", "capacity": "400/s"}],
            "links": {"build": "spanning-tree"},
            "root": "central",
        },
        "workload": {
            "filters": filters_of(trips, zones < 0),
            "classes": classes,
            "clients": [{"name": "user", "count": 200, "at": "random", "home": "nearest"}],
            "subscriptions": {"active": subscriptions, "lifetime": "10min"},
            "publications": f"{rate:.2f}/s",
        },
    }


def answer(scenario: Scenario, system: System) -> None:
    """Prints the prediction with all sites, the plan, and how it scales."""
    workload = system.class_workload
    assert workload is not None
    print(
        f"{len(workload.classes)} classes, {workload.publication_rate_per_s.sum():.0f} notifications per second, "
        f"{workload.active_subscriptions:,.0f} subscriptions, {len(system.overlay.candidates)} sites"
    )
    report = predict_capacity(system)
    worst = {figure.variant: figure.value for figure in report.figures(metric="notification_delay_worst_s")}
    print("All sites, by algorithm: messages per second, headroom, delay on the worst path")
    for algorithm in report.variants:
        rate = report.value("message_rate_per_s", variant=algorithm)
        room = report.value("headroom_factor", variant=algorithm)
        delay = f"{1000 * worst[algorithm]:.2f} ms" if algorithm in worst else "overloaded"
        print(f"  {algorithm:22} {rate:9.1f}/s {room:8.3f}   {delay}")
    problem = placement_problem(system, scenario)
    plan = plan_placement(problem)
    print(f"Of {plan.evaluations} placements, the best under each algorithm:")
    for algorithm, case in plan.best_by_algorithm.items():
        if case is not None and case.notification_delay_worst_s is not None:
            delay = f"{1000 * case.notification_delay_worst_s:.2f} ms"
            print(f"  {algorithm:22} {delay:>9}  headroom {case.headroom_factor:.2f}  {short_names(case.brokers)}")
    sweep = sweep_load(problem, [problem.active_subscriptions])
    for curve in sweep.curves[:3]:
        one = curve.configuration
        delay = "overloaded" if one.delay_s is None else f"{1000 * one.delay_s:.2f} ms"
        end = f"up to {one.saturates_at:,.0f} subscriptions, then {one.saturates}"
        words = end if np.isfinite(one.saturates_at) else "at ten times the subscriptions, too"
        print(f"  {curve.role:24} {delay:>10}  {one.algorithm}, {words}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("SURECAST_DATA"), help="folder with the data")
    parser.add_argument("--subscriptions", type=float, default=500.0, help="active subscriptions (assumed)")
    parser.add_argument("--interval", type=float, default=3.0, help="seconds between messages of a taxi (assumed)")
    parser.add_argument("--locality", type=float, default=0.6, help="share of a zone's clients in one domain (assumed)")
    parser.add_argument("--own", type=int, default=2, help="busiest zones with histograms of their own")
    parser.add_argument("--save", type=Path, default=Path("taxi.yaml"), help="the scenario file to write")
    options = parser.parse_args()
    if options.data is None or not (Path(options.data) / TRIPS).exists():
        parser.exit(2, f"no {TRIPS}: give the folder of the data by --data or SURECAST_DATA\n")
    trips = read_trips(Path(options.data) / TRIPS)
    described = taxi_scenario(
        trips,
        Path(options.data) / NETWORK,
        subscriptions=options.subscriptions,
        interval_s=options.interval,
        locality=options.locality,
        own=options.own,
    )
    options.save.write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
    print(f"wrote {options.save}: {len(trips.zone)} trips in {trips.span_s / 60:.0f} min")
    related = np.corrcoef(trips.attributes["fare"], trips.attributes["latitude"])[0, 1]
    print(f"correlation of fare and latitude: {related:.2f}")
    answer(*load_system(options.save))


if __name__ == "__main__":
    main()
