"""Compares predicted with simulated figures of random systems in which every part may be there, or not.

    python benchmarks/composed_validation.py --systems 100 --seed 1

Each system has two to five brokers and a utilisation of up to 0.95; failures, losses, latency, queues on links, groups,
regular or varied service, subscribers that come and go, dropping, and the scheme are drawn. A part is in both answers:
nothing counts as agreement that both leave out. The table has a line for each subscriber that is off by more than 0.02
in reliability or by more than 15 % in the mean delay, beyond the half-width of the simulation's own interval, and a
summary over all. Runs are lengthened until that half-width is below 0.01, or until the events are used up.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from surecast.errors import SurecastError
from surecast.prediction.composed import composed_mechanisms, predict_composed
from surecast.scenario import System, build, parse_text
from surecast.scenario.spec.delivery import SCHEMES
from surecast.simulation.composed import simulate_composed

RELIABILITY_ERROR, DELAY_ERROR = 0.02, 0.15
HALF_WIDTH = 0.01
RUNS = 8
EVENTS_MAX = 2_500_000


def random_system(draw: random.Random, number: int) -> tuple[System, str]:
    """Returns a system, and the parts that it has."""
    count = draw.randint(2, 5)
    parts: list[str] = []

    def maybe(name: str, text: str, share: float = 0.5) -> str:
        if draw.random() >= share:
            return ""
        parts.append(name)
        return text

    scheme = draw.choice(SCHEMES)
    shape = draw.choice(["chain", "star", "ring"]) if count > 2 else "chain"
    rate = draw.uniform(1.0, 4.0)
    busiest = draw.uniform(0.3, 0.95)
    # all events of both publishers, and an acknowledgement of each hop where they are stored
    capacity = 2.0 * rate * (2.0 if scheme.endswith("buffering") else 1.0) / busiest
    service = draw.choice(["exponential", "deterministic", "{distribution: erlang, stages: 3}"])
    brokers = maybe("queues", f", capacity: {capacity:.3f}/s, service: {service}", 0.8)
    if brokers:
        parts[-1] = f"queues {busiest:.2f}"
    links = maybe("latency", f", latency: {draw.uniform(5, 200):.0f}ms")
    links += maybe("loss", f", loss: {draw.uniform(0.01, 0.1):.3f}", 0.3)
    links += maybe("link capacity", f", capacity: {3.0 * rate / draw.uniform(0.3, 0.9):.3f}/s", 0.3)
    fails = maybe(
        "brokers fail", f"brokers: {{mtbf: {draw.uniform(300, 900):.0f}s, mttr: {draw.uniform(5, 60):.0f}s}}, "
    )
    fails += maybe("links fail", f"links: {{mtbf: {draw.uniform(300, 900):.0f}s, mttr: {draw.uniform(5, 60):.0f}s}}")
    coming = maybe("come and go", ", connectivity: {on: 30s, off: 15s}", 0.4)
    coming += f", service: {2.0 * rate * draw.uniform(2, 4):.2f}/s" if coming else ""
    policies = ["probabilistic, join_probability: 0.5", "finite-buffer, buffer_size: 20"]
    dropping = maybe("dropping", f", dropping: {{policy: {draw.choice(policies)}}}", 0.5 if coming else 0.0)
    groups = maybe("groups", ", replication: {replicas: 3}", 0.15)
    homes = [f"b-{draw.randint(1, count)}" for _ in range(4)]
    deadline = draw.choice([1, 5, 20, 60])
    interval, refresh = draw.choice([1, 2, 5]), draw.choice([10, 30])
    system = build(
        parse_text(f"""
surecast: 1
name: random-{number}
overlay: {{brokers: [{{name: b, count: {count}{brokers}}}], links: {{build: {shape}{links}}}}}
availability: {{{fails}}}
workload:
  topics: [t, u]
  deadline: {deadline}s
  publishers:
    - {{name: p, home: {homes[0]}, topics: [t], rate: {rate:.3f}/s}}
    - {{name: q, home: {homes[1]}, topics: [t, u], rate: {rate:.3f}/s}}
  subscribers: [{{name: s, home: {homes[2]}, topics: [t]}}, {{name: r, home: {homes[3]}, topics: [t, u]{coming}}}]
delivery:
  fault_tolerance: {{scheme: {scheme}, retransmission_interval: {interval}s, refresh_interval: {refresh}s}}
  {dropping[2:]}
  {groups[2:]}
""")
    )
    return system, ", ".join([scheme, f"deadline {deadline} s", *parts])


def differences(system: System, seed: int) -> list[tuple[str, float, float, float, float, float]]:
    """Returns, for each subscriber, its reliability and mean delay: predicted less simulated, relative for delays, with
    the half-width of each, and the predicted reliability."""
    predicted = predict_composed(system, factors=False)
    mechanisms = composed_mechanisms(system)
    rate = sum(publisher.rate_per_s for publisher in system.publishers)
    duration_s = 0.2 * EVENTS_MAX / RUNS / rate
    while True:
        found = simulate_composed(
            system, mechanisms=mechanisms, runs=RUNS, duration_s=duration_s, warm_up_s=0.1 * duration_s, seed=seed
        )
        rows = []
        for subscriber in system.subscribers:
            name = subscriber.name
            if not found.figures(metric="reliability", name=name) or not predicted.figures(
                metric="reliability", name=name
            ):
                continue
            row = [name]
            for metric in ("reliability", "delay_mean_s"):
                figures = found.figures(metric=metric, name=name)
                own = predicted.figures(metric=metric, name=name, variant="composed")
                if not figures or not own:
                    row += [0.0, 0.0]
                    continue
                scale = 1.0 if metric == "reliability" else max(figures[0].value, 1e-9)
                half = (figures[0].high - figures[0].low) / 2.0 / scale
                row += [(own[0].value - figures[0].value) / scale, half]
            rows.append((*row, predicted.value("reliability", name=name, variant="composed")))
        if all(row[2] <= HALF_WIDTH for row in rows) or duration_s * rate * RUNS * 2.2 > EVENTS_MAX:
            return rows
        duration_s *= 2.0


def main() -> int:
    """Prints the table; returns 1 where more than one subscriber in ten is off."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--systems", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    begin, refused, off = time.process_time(), 0, 0
    errors: list[float] = []
    delays: list[float] = []
    for number in range(chosen.systems):
        draw = random.Random(f"{chosen.seed} {number}")
        try:
            system, parts = random_system(draw, number)
            rows = differences(system, chosen.seed)
        except SurecastError as refusal:
            refused += 1
            print(f"{number:3}  refused: {str(refusal)[:110]}", flush=True)
            continue
        for name, error, half, late, late_half, value in rows:
            errors.append(abs(error))
            delays.append(abs(late))
            if abs(error) - half > RELIABILITY_ERROR or abs(late) - late_half > DELAY_ERROR:
                off += 1
                print(
                    f"{number:3} {name} reliability {value:.3f} {error:+.3f} ± {half:.3f}  mean delay {late:+.1%} ± "
                    f"{late_half:.1%}  {parts}",
                    flush=True,
                )
    errors.sort()
    delays.sort()
    count = len(errors)
    print(
        f"{chosen.systems} systems, seed {chosen.seed}: {count} subscribers, {refused} systems refused; {off} off by "
        f"more than {RELIABILITY_ERROR} or {DELAY_ERROR:.0%} beyond the interval ({off / max(count, 1):.0%})\n"
        f"|reliability|: mean {sum(errors) / count:.4f}, 90 % within {errors[int(0.9 * count)]:.4f}, largest "
        f"{errors[-1]:.4f}\n|mean delay|: mean {sum(delays) / count:.1%}, 90 % within "
        f"{delays[int(0.9 * count)]:.1%}, largest {delays[-1]:.1%}\n{time.process_time() - begin:.0f} s of processor "
        "time"
    )
    return 0 if off <= 0.1 * count else 1


if __name__ == "__main__":
    sys.exit(main())
