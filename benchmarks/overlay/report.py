"""Tables of what was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from benchmarks.broker.run import show, table
from benchmarks.overlay.contestants import KINDS
from benchmarks.overlay.rows import Row, median, pick, ratio
from benchmarks.overlay.topology import CHAINS, TOPOLOGIES

__all__ = ["report", "unsound"]


def report(rows: Sequence[Row]) -> None:
    """Prints all tables for which there are rows."""
    for name, part in (
        ("throughput", _throughput),
        ("delay", _delay),
        ("recovery", _recovery),
        ("retained", _retained),
        ("fail-over", _fail_over),
    ):
        found = pick(rows, experiment=name)
        if found:
            loads = [row["load_average"] for row in found]
            print(f"## {name} (load average {min(loads):.1f} to {max(loads):.1f})\n")
            part(found)
    failed = [row for row in rows if "failed" in row]
    for row in failed:
        print(f"failed: {row['experiment']}, {_label(row)}: {row['failed']}")


def unsound(rows: Sequence[Row]) -> list[str]:
    """Where something was lost, came twice or came out of order although nothing failed."""
    return [
        f"{row['experiment']}, {_label(row)}: of {row['sent']} {row['lost']} lost, {row['disordered']} out of order, "
        f"{row['unacknowledged']} not acknowledged"
        for row in rows
        if row.get("sound") is False
    ]


def _label(row: Row) -> str:
    return f"{row['kind']}, {row['topology']}, {row['system']}, round {row['round'] + 1}"


def _names(rows: Sequence[Row], name: str) -> list[str]:
    return list(dict.fromkeys(row[name] for row in rows))


def _systems(rows: Sequence[Row]) -> list[str]:
    """Surecast first, the others by name."""
    return sorted(_names(rows, "system"), key=lambda name: (not name.startswith("surecast"), name))


def _throughput(rows: Sequence[Row]) -> None:
    for kind in (kind for kind in KINDS if pick(rows, kind=kind)):
        found = pick(rows, kind=kind)
        systems = _systems(found)
        ours = [name for name in systems if name.startswith("surecast")]
        others = [name for name in systems if not name.startswith("surecast")]
        for text, name, scale, form in (
            ("Events in a second, thousands", "rate_per_s", 1e-3, ".1f"),
            ("Processor time of all brokers for one event, us", "cpu_us", 1.0, ".2f"),
            ("The same for each broker that the event passes, us", "hop_us", 1.0, ".2f"),
        ):
            print(f"{kind}: {text}\n")
            lines = []
            for shape in TOPOLOGIES:
                some = pick(found, topology=shape.name)
                line = [show(scale * median(pick(some, system=system), name), form) for system in systems]
                for own in ours:
                    mine = pick(some, system=own)
                    line += [show(ratio(mine, pick(some, system=other), name)) for other in others]
                lines.append([shape.name, *line])
            table(["", *systems, *(f"{own} / {other}" for own in ours for other in others)], lines)
        busy = [row["generator_busy"] for row in found]
        usual = statistics.median(busy)
        print(f"The load generator used at most {max(busy):.0%} of its core, at the median {usual:.0%}.\n")


def _delay(rows: Sequence[Row]) -> None:
    print("Time from when an event was to be sent to when it came, us: p50 / p99; then what each broker adds\n")
    lines = []
    for kind in (kind for kind in KINDS if pick(rows, kind=kind)):
        found = pick(rows, kind=kind)
        for system in _systems(found):
            line = [kind, system]
            for shape in CHAINS:
                some = pick(found, system=system, topology=shape.name)
                line.append(f"{show(median(some, 'p50_us'), ',.0f')} / {show(median(some, 'p99_us'), ',.0f')}")
            line += [show(_added(found, system, name), ",.0f") for name in ("p50_us", "p99_us")]
            longest = pick(found, system=system, topology=CHAINS[-1].name)
            line.append(show(median(longest, "hop_us"), ".1f"))
            lines.append(line)
    table(["", "", *(shape.name for shape in CHAINS), "added p50", "added p99", "processor us each"], lines)


def _added(rows: Sequence[Row], system: str, name: str) -> float:
    """The median over the rounds of the slope over the length of the chain."""
    slopes = []
    for number in _names(rows, "round"):
        points = [
            (shape.hops, row[name])
            for shape in CHAINS
            for row in pick(rows, system=system, topology=shape.name, round=number)
        ]
        if len(points) == len(CHAINS):
            slopes.append(statistics.linear_regression(*zip(*points, strict=True)).slope)
    return statistics.median(slopes) if slopes else math.nan


def _recovery(rows: Sequence[Row]) -> None:
    print("A link was cut, 10 filters were exchanged for others, and the link was mended\n")
    lines = []
    for kind in sorted(_names(rows, "kind"), key=lambda kind: int(kind.split()[0])):
        for system in _systems(pick(rows, kind=kind)):
            some = pick(rows, kind=kind, system=system)
            figures = (
                show(1e3 * median(some, "recovered_s"), ",.0f"),
                show(median(some, "bytes") / 1e3, ",.1f"),
                show(1e3 * median(some, "cpu_s"), ",.0f"),
                show(1e3 * median(some, "connected_s"), ",.0f"),
                show(median(some, "first_s"), ".2f"),
            )
            lines.append([kind, system, *figures])
    head = ["new filters work after, ms", "kB on the link", "processor ms", "connection after, ms", "first time, s"]
    table(["", "", *head], lines)


def _retained(rows: Sequence[Row]) -> None:
    print("A partition in which topics were overwritten at both ends, until both retain the same again\n")
    lines = []
    for kind in sorted(_names(rows, "kind"), key=lambda kind: [int(each) for each in kind.split()[::2]]):
        some = pick(rows, kind=kind)
        figures = (
            show(median(some, "converged_s"), ",.2f"),
            show(median(some, "bytes") / 1e3, ",.1f"),
            show(median(some, "cpu_s"), ",.2f"),
            show(max(row["repeated"] for row in some), ",d"),
            f"{len(some)}",
        )
        lines.append([kind, *figures])
    table(["", "s after the connection", "kB on the link", "processor s", "repeated (most)", "rounds"], lines)


def _fail_over(rows: Sequence[Row]) -> None:
    print("Diamond, 1,000 events/s; the longest time without an event, ms. Undisturbed are faults in which no process")
    print(f"waited more than {1e3 * _DISTURBED_S:g} ms for a processor meanwhile\n")
    gaps, books = [], []
    for kind in _names(rows, "kind"):
        for system in _systems(pick(rows, kind=kind)):
            some = pick(rows, kind=kind, system=system)
            for when, name, waited in _GAPS:
                gaps.append([kind, system, when, "all", *_gaps(some, name, kind)])
                calm = [row for row in some if waited in row and row[waited] <= _DISTURBED_S]
                if calm:
                    gaps.append([kind, system, when, "undisturbed", *_gaps(calm, name, kind)])
            qos, sent = some[0]["qos"], sum(row["sent"] for row in some)
            books.append([
                kind, system, f"QoS {qos}" if qos else "-", f"{sent:,}",
                _sum_most(some, "lost"), _sum_most(some, "acknowledged_lost"), _sum_most(some, "doubled"),
                _sum_most(some, "disordered"), show(1e3 * max(row["generator_pause_s"] for row in some), ".1f"),
                show(1e3 * max(row.get("died_s", math.nan) for row in some), ".1f"),
            ])  # fmt: skip
    table(["", "", "", "", "faults", "within the aim", "median", "last but one", "longest"], gaps)
    head = ["events", "lost (most)", "of those taken over", "doubled (most)", "out of order (most)"]
    table(["", "", "", *head, "longest pause of the generator, ms", "longest until a killed one had ended, ms"], books)


_DISTURBED_S = 0.01
_GAPS = (("at the fault", "gap_s", "waited_s"), ("when it is back", "gap_after_s", "waited_after_s"))
_AIMS_S = {"kill": 0.05, "freeze": 0.55}
_AIM_BACK_S = 0.05


def _gaps(rows: Sequence[Row], name: str, kind: str) -> list[str]:
    gaps = sorted(row[name] for row in rows)
    aim_s = _AIMS_S[kind] if name == "gap_s" else _AIM_BACK_S
    some = (statistics.median(gaps), gaps[-2] if len(gaps) > 1 else math.nan, gaps[-1])
    within = sum(gap < aim_s for gap in gaps)
    return [
        str(len(gaps)),
        f"{within} of {len(gaps)} below {1e3 * aim_s:.0f}",
        *(show(1e3 * gap, ",.1f") for gap in some),
    ]


def _sum_most(rows: Sequence[Row], name: str) -> str:
    values = [row[name] for row in rows]
    return f"{sum(values):,} ({max(values):,})"
