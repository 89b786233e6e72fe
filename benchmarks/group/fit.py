"""The constants of the prediction from what was measured, and both side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks.broker.run import table
from benchmarks.group.measure import Row, medians, pick

from surecast.prediction.replication import Measurement, fit_costs, predict_measurement

__all__ = ["calibrate", "measurements"]


def measurements(rows: Sequence[Row]) -> list[tuple[str, Measurement]]:
    """What can be compared: groups without fsync, publishers at the leader with one publication under way each.

    Where publishers send several at once, a publication costs a broker a tenth: that is another constant.
    The time that a publisher takes between an acknowledgement and its next publication is what the generator takes: a
    turn over all its connections.
    """
    found = []
    for replicas in (1, 3, 5, 7):
        for publishers in (1, 8, 24):
            some = pick(rows, experiment="paper", system=str(replicas), publishers=publishers)
            if some:
                found.append((f"{replicas} replicas, {publishers} x 1", _row(some, replicas, publishers)))
    some = pick(rows, experiment="goals", system="3 replicas", load="window 1")
    if some:
        found.append(("3 replicas, 50 x 1", _row(some, 3, 50)))
    return found


def _row(rows: Sequence[Row], replicas: int, publishers: int) -> Measurement:
    rate = medians(rows, "rate_per_s")
    waiting_s = medians(rows, "ack_mean_us") / 1e6
    return Measurement(
        replicas,
        publishers,
        think_s=max(0.0, publishers / rate - waiting_s),
        acknowledged_per_s=rate,
        cpu_s=medians(rows, "cpu_us") / 1e6,
        leader_cpu_s=medians(rows, "leader_us") / 1e6,
        batch=median(row["acknowledged"] / row["instances"] for row in rows),
    )


def calibrate(rows: Sequence[Row]) -> None:
    """Prints the constants, and prediction / measurement for every figure."""
    named = measurements(rows)
    # Throughput on a machine that others use too says how much they left; processor time says what replicas took.
    found = fit_costs([replace(row, acknowledged_per_s=None) for _, row in named])
    print(f"## Prediction; typical error {found.error:.0%}\n")
    names = ("instance_s", "peer_s", "publication_s", "follower_instance_s", "follower_publication_s")
    table(list(names), [[f"{1e6 * getattr(found.costs, name):.2f} us" for name in names]])
    ratio = {(at, name): value for at, name, value in found.ratios}
    lines = []
    for at, (text, row) in enumerate(named):
        line = [text]
        for name in ("leader_cpu_s", "cpu_s"):
            measured = 1e6 * getattr(row, name)
            line.append(f"{measured * ratio[at, name]:,.1f} / {measured:,.1f}")
        model = predict_measurement(row, found.costs)
        line.append(f"{model.batch_mean:.1f} / {row.batch:.1f}")
        lines.append([*line, f"{model.throughput_per_s:,.0f} / {row.acknowledged_per_s:,.0f}"])
    table(["predicted / measured", "leader, us", "all replicas, us", "in an instance", "publications/s"], lines)
