"""Tables and pictures of what was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.broker.run import show, table
from benchmarks.group.experiments import PUBLISHERS
from benchmarks.group.fit import calibrate
from benchmarks.group.measure import Row, medians, pick, ratios

from surecast.studio import Axis, Chart, Line, draw_chart

__all__ = ["draw", "report"]

_GROUPS = ("1", "3", "5", "7")


def report(rows: Sequence[Row]) -> None:
    """Prints all tables for which there are rows."""
    parts = (
        ("goals", _goals),
        ("goals, free", _free),
        ("paper", _paper),
        ("variants at the leader", _variants),
        ("delay", _delay),
        ("order", _order),
        ("fail-over", _fail_over),
        ("stopped follower", _stopped),
    )
    for name, part in parts:
        if found := pick(rows, experiment=name):
            loads = [row["load_average"] for row in found]
            print(f"## {name} (load average {min(loads):.1f} to {max(loads):.1f})\n")
            part(rows if name.startswith("variants") else found)
    if pick(rows, experiment="goals") and pick(rows, experiment="paper"):
        calibrate(rows)


def _names(rows: Sequence[Row], name: str) -> list[str]:
    return list(dict.fromkeys(row[name] for row in rows))


def _thousands(rows: Sequence[Row], name: str = "rate_per_s") -> str:
    return show(medians(rows, name) / 1e3, ".1f")


def _goals(rows: Sequence[Row]) -> None:
    systems, loads = _names(rows, "system"), _names(rows, "load")
    closed = [load for load in loads if not load.endswith("/s")]

    def beside(load: str, cell: Callable[[list[Row], list[Row]], str]) -> list[str]:
        alone = pick(rows, load=load, system="alone")
        each = (pick(rows, load=load, system=system) for system in systems)
        return [load, *(cell(found, alone) if found else "-" for found in each)]

    def share(name: str) -> Callable[[list[Row], list[Row]], str]:
        return lambda found, alone: f"{_thousands(found, name)} ({ratios(found, alone, name):.0%})"

    def processor(found: list[Row], alone: list[Row]) -> str:
        first = medians(found, "leader_us")
        return f"{first:.2f} + {medians(found, 'cpu_us') - first:.2f} ({ratios(found, alone, 'cpu_us'):.2f})"

    def times(found: list[Row], alone: list[Row]) -> str:
        p50, p99 = medians(found, "ack_p50_us"), medians(found, "ack_p99_us")
        return f"{p50:,.0f} / {p99:,.0f} ({ratios(found, alone, 'ack_p50_us'):.1f})"

    print("Acknowledged publications in a second, thousands; in brackets the share of what the broker does alone\n")
    table(["load", *systems], [beside(load, share("rate_per_s")) for load in closed])
    print("Processor time of one publication, us: the leader + all others; in brackets their sum as a multiple of the")
    print("broker alone; the generator's own\n")
    own = [show(medians(pick(rows, load=load, system="alone"), "own_us")) for load in loads]
    lines = [[*beside(load, processor), mine] for load, mine in zip(loads, own, strict=True)]
    table(["load", *systems, "generator"], lines)
    print("What that allows on two free cores, thousands in a second; share of what the broker does alone\n")
    table(["load", *systems], [beside(load, share("two_cores_per_s")) for load in closed])
    print("Time to the acknowledgement, us: p50 / p99; p50 as a multiple of that of the broker alone\n")
    table(["load", *systems], [beside(load, times) for load in loads])
    if streams := [system for system in systems if system.startswith("JetStream")]:
        _against(rows, streams)


def _free(rows: Sequence[Row]) -> None:
    print("The same where the scheduler puts every process where it wants: thousands in a second; p50 in us\n")
    alone = pick(rows, system="alone")
    lines = []
    for system in _names(rows, "system"):
        found = pick(rows, system=system)
        rate = f"{_thousands(found)} ({ratios(found, alone, 'rate_per_s'):.0%})"
        p50 = f"{medians(found, 'ack_p50_us'):,.0f} ({ratios(found, alone, 'ack_p50_us'):.1f})"
        lines.append([system, rate, p50])
    table(["", "acknowledged", "p50"], lines)


def _against(rows: Sequence[Row], streams: list[str]) -> None:
    print("Acknowledged publications in a second as a multiple of JetStream's; its processor time as one of ours\n")
    lines = []
    for load in ("QoS 0", "QoS 0, varying", "window 1", "window 1, varying"):
        for ours in ("3 replicas", "3 replicas, fsync"):
            mine, line = pick(rows, load=load, system=ours), [load, ours]
            if not mine:
                continue
            for other in streams:
                theirs = pick(rows, load=load, system=other)
                line.append(f"{show(ratios(mine, theirs, 'rate_per_s'))}; {show(ratios(theirs, mine, 'cpu_us'))}")
            lines.append(line)
    table(["load", "", *streams], lines)


def _paper(rows: Sequence[Row]) -> None:
    for figure, name, text in (
        ("Figure 6, Table 1", "delivery_mean_us", "Time from publisher to subscriber, mean, us"),
        ("", "delivery_p50_us", "The same, p50, us"),
        ("Figure 7, Table 2", "rate_per_s", "Acknowledged publications in a second"),
        ("", "cpu_us", "Processor time of a publication over all replicas, us"),
    ):
        print(f"{text}{f' ({figure})' if figure else ''}; in brackets as a multiple of the broker alone\n")
        lines = []
        for count in PUBLISHERS:
            alone = pick(rows, publishers=count, system="alone")
            line = [str(count), f"{medians(alone, name):,.0f}"]
            for group in _GROUPS:
                found = pick(rows, publishers=count, system=group)
                line.append(f"{medians(found, name):,.0f} ({ratios(found, alone, name):.2f})" if found else "-")
            lines.append(line)
        table(["publishers", "alone", *(f"{group} replicas" for group in _GROUPS)], lines)


def _variants(rows: Sequence[Row]) -> None:
    for place in ("at the leader", "at all replicas"):
        found = pick(rows, experiment=f"variants {place}")
        print(f"Publishers {place}: publications/s, acknowledgement p50 / p99 in us, processor us, batch\n")
        lines = []
        for load in _names(found, "load"):
            line = [load]
            for variant in ("multi", "batch", "fast"):
                some = pick(found, load=load, system=variant)
                line.append(
                    f"{medians(some, 'rate_per_s'):,.0f}, {medians(some, 'ack_p50_us'):,.0f} / "
                    f"{medians(some, 'ack_p99_us'):,.0f}, {medians(some, 'cpu_us'):.1f}, {_batch(some):.1f}"
                )
            lines.append(line)
        table(["load", "multi", "batch", "fast"], lines)


def _batch(rows: Sequence[Row]) -> float:
    """Publications in an instance; what came before and after the measurement is in both."""
    values = [row["acknowledged"] / row["instances"] for row in rows if row.get("instances")]
    return statistics.median(values) if values else math.nan


def _delay(rows: Sequence[Row]) -> None:
    _beside(rows, "window 1", "window 10", "ack")


def _order(rows: Sequence[Row]) -> None:
    _beside(rows, "total", "publisher", "delivery")


def _beside(rows: Sequence[Row], first: str, second: str, time: str) -> None:
    lines = []
    for load in _names(rows, "load"):
        one, two = (pick(rows, load=load, system=system) for system in (first, second))
        for text, name in (
            ("publications/s", "rate_per_s"),
            ("p50, us", f"{time}_p50_us"),
            ("p99, us", f"{time}_p99_us"),
            ("processor us, all replicas", "cpu_us"),
        ):
            values = [f"{medians(some, name):,.1f}" for some in (one, two)]
            lines.append([load, text, *values, show(ratios(two, one, name))])
    table(["load", "", first, second, "ratio"], lines)


def _fail_over(rows: Sequence[Row]) -> None:
    lines = []
    for system in _names(rows, "system"):
        found = pick(rows, system=system)
        gaps = sorted(row["gap_s"] for row in found)
        lines.append([
            system, str(len(gaps)), f"{statistics.median(gaps):.2f}", f"{gaps[-1]:.2f}",
            str(found[-1]["acknowledged"]), str(found[-1]["missing"]),
        ])  # fmt: skip
    table(["", "kills", "median gap, s", "longest, s", "acknowledged", "of these missing"], lines)


def _stopped(rows: Sequence[Row]) -> None:
    lines = [
        [
            f"{row['rate_per_s']:,.0f}", f"{row['published_bytes'] / 2**20:.0f}",
            f"{row['resident_first'] / 2**20:.0f} to {row['resident_last'] / 2**20:.0f}",
            f"{row['queued_bytes'] / 2**20:.1f}", f"{row['caught_up_s']:.1f}",
        ]
        for row in rows
    ]  # fmt: skip
    table(["publications/s", "MiB published", "leader's memory, MiB", "queued, MiB", "caught up after, s"], lines)


def draw(rows: Sequence[Row], folder: Path) -> None:
    """Draws the evaluation of the paper."""
    found = pick(rows, experiment="paper")
    if not found:
        return
    for name, scale, label, title in (
        ("delivery_mean_us", 1e-3, "publisher to subscriber (ms)", "End-to-end latency"),
        ("rate_per_s", 1e-3, "publications per second (thousands)", "Throughput"),
    ):
        lines = []
        for system in ("alone", *_GROUPS):
            values = [scale * medians(pick(found, system=system, publishers=count), name) for count in PUBLISHERS]
            text = "not replicated" if system == "alone" else f"{system} replica{'s' if system != '1' else ''}"
            lines.append(Line(text, list(PUBLISHERS), values, dashed=system == "alone"))
        picture = "group-latency.png" if name.startswith("delivery") else "group-throughput.png"
        draw_chart(_chart(title, label, lines), folder / picture)


def _chart(title: str, label: str, lines: list[Line]) -> Chart:
    across = Axis("publishers, each waits for its acknowledgement")
    return Chart(lines, title=title, x=across, y=Axis(label, from_zero=True))
