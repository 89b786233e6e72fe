"""Coded delivery of examples/coded.yaml: every event to every subscriber, schemes side by side, and prediction against
simulation.

    python benchmarks/coded_delivery.py done          10,000 events to 100 subscribers (about a minute)
    python benchmarks/coded_delivery.py compare       prediction and simulation, all schemes at four losses
    python benchmarks/coded_delivery.py bursts        the same losses, five packets in a row on average
    python benchmarks/coded_delivery.py large         100 brokers, 2,000 subscribers, 14 rounds of gossip
    python benchmarks/coded_delivery.py gossip        gossip alone over loss, fan-out, rounds and seeds of the views
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import numpy as np

from surecast.prediction.coding import Forecaster, predict_coding
from surecast.prediction.coding import SimulatedAlternative as PredictAlternative
from surecast.prediction.coding import audiences_of as predicted_audiences
from surecast.prediction.coding.packet_delivery import mean_delay
from surecast.protocol.dissemination import SCHEMES
from surecast.report import QoSReport
from surecast.scenario import load_system
from surecast.simulation.coding import (
    Caster,
    LossyChannel,
    SimulatedAlternative,
    audiences_of,
    settings_for,
    simulate_coding,
)
from surecast.simulation.coding.coding_simulation import messages_minimum

SCENARIO = Path(__file__).parent.parent / "examples" / "coded.yaml"
METRICS = ("all_on_time_share", "reliability", "delay_mean_s", "messages_per_event", "bytes_per_event")
BURSTS = {"overlay.links.burst": "5"}
LARGE = {
    "overlay.brokers[0].count": "100",
    "workload.subscribers[0].count": "2000",
    "delivery.coding.gossip.rounds": "14",
}


def done(events: int, rounds: int, access_loss: float, seed: int | None) -> None:
    """Coded delivery: whether every event is at every subscriber in time, and the cost of that."""
    _, system = load_system(SCENARIO, {"delivery.coding.gossip.rounds": str(rounds)})
    seed = system.seed if seed is None else seed
    (audience,) = audiences_of(system)
    homes = [system.subscribers[i].home for i in audience.members]
    assert system.delivery.coding is not None
    settings = settings_for(system.delivery.coding, SimulatedAlternative("coding-gossip"))
    caster = Caster(
        system.overlay,
        audience.source,
        homes,
        settings,
        deadline_s=audience.deadline_s,
        seed=seed,
        channel=LossyChannel(access_loss=access_loss),
    )
    began, cpu = time.perf_counter(), time.process_time()
    found = caster.run(events)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    least = messages_minimum(system.overlay, audience, homes, settings.coding.packets)
    sent = {kind: float(counts.mean()) for kind, counts in found.messages().items()}
    volume = {kind: float(size.mean()) for kind, size in found.bytes_sent(settings.coding, 1000).items()}
    late = int((~found.on_time.all(axis=1)).sum())
    where = f"{rounds} rounds, access loss {access_loss:g}, seed {seed}"
    pairs = int((~found.on_time).sum())
    print(f"{events} events x {len(homes)} subscribers, {where}")
    print(f"  not at every subscriber within {audience.deadline_s:g} s: {late} events, {pairs} pairs")
    print(f"  last delivery after {found.done_s[found.on_time].max():.3f} s, quantiles 50/99/99.9 %: ", end="")
    print(np.quantile(found.done_s[found.on_time], [0.5, 0.99, 0.999]).round(3))
    print(f"  recovered by gossip: {found.recovered.mean():.2%}")
    print(f"  messages {sent}, at least {least:.0f}; bytes {volume}")
    print(f"  {seconds:.1f} s ({cpu:.1f} s of processor), {1000 * cpu / events:.2f} ms an event")


def compare(losses: list[float], half_width: float, changes: dict[str, str], schemes: list[str]) -> None:
    """A table of predicted and simulated figures; the latter with their half-widths."""
    print("| loss | scheme | events | " + " | ".join(METRICS) + " | delay p99 | CPU s |")
    for loss in losses:
        _, system = load_system(SCENARIO, {"overlay.links.loss": str(loss), **changes})
        forecast = predict_coding(system, quantiles=(0.99,))
        for scheme in schemes:
            cpu = time.process_time()
            simulated = simulate_coding(
                system, [scheme], events=200, half_width=half_width, seed=system.seed, quantiles=(0.99,)
            )
            cpu = time.process_time() - cpu
            for variant in simulated.variants:
                cells = [_cell(forecast, simulated, metric, variant) for metric in METRICS]
                cells.append(_cell(forecast, simulated, "delay_quantile_s", variant, "p99"))
                events = simulated.figure("all_on_time_share", scope="system", variant=variant).samples
                print(f"| {loss:g} | {variant} | {events} | " + " | ".join(cells) + f" | {cpu:.0f} |", flush=True)


def gossip(losses: list[float], events: int, seeds: int, changes: dict[str, str]) -> None:
    """Predicted and simulated gossip alone. Peers' views are a choice of the seed, so that several seeds are simulated;
    what they differ by is beside each mean."""
    for loss, fan_out, rounds in itertools.product(losses, (2, 3, 5), (3, 4, 8)):
        own = {"delivery.coding.gossip.fan_out": str(fan_out), "delivery.coding.gossip.rounds": str(rounds)}
        _, system = load_system(SCENARIO, {"overlay.links.loss": str(loss), **own, **changes})
        assert system.delivery.coding is not None
        (audience,) = audiences_of(system)
        (home,) = predicted_audiences(system)
        said = Forecaster(system).outcome(home, PredictAlternative("gossip"))
        homes = [system.subscribers[i].home for i in audience.members]
        settings = settings_for(system.delivery.coding, SimulatedAlternative("gossip"))
        found = []
        for seed in range(seeds):
            deadline_s = audience.deadline_s
            caster = Caster(system.overlay, audience.source, homes, settings, deadline_s=deadline_s, seed=seed)
            outcomes = caster.run(events)
            sent = sum(outcomes.messages().values(), np.zeros(events)).mean()
            on_time = outcomes.on_time
            found.append((on_time.all(axis=1).mean(), on_time.mean(), outcomes.done_s[on_time].mean(), sent))
        mean_s = mean_delay(said.delays, home.weights)
        forecast = (said.all_on_time, said.on_time @ home.weights / home.size, mean_s, sum(said.messages.values()))
        cells = [
            f"{one:.4g} / {simulated.mean():.4g} ({simulated.min():.4g} to {simulated.max():.4g})"
            for one, simulated in zip(forecast, np.array(found).T, strict=True)
        ]
        print(f"| {loss:g} | {fan_out} | {rounds} | " + " | ".join(cells) + " |", flush=True)


def _cell(forecast: QoSReport, simulated: QoSReport, metric: str, variant: str, detail: str = "") -> str:
    """Predicted / simulated; a figure that is not there is a dash."""
    said = []
    for report in (forecast, simulated):
        found = report.select(scope="system", metric=metric, detail=detail, variant=variant)
        figures = list(found)
        ends = [] if not figures else [end for end in (figures[0].low, figures[0].high) if end is not None]
        half = f" ± {max(abs(figures[0].value - end) for end in ends):.2g}" if ends else ""
        said.append(f"{figures[0].value:.4g}{half}" if figures else "-")
    return " / ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("done", "compare", "bursts", "large", "gossip"))
    parser.add_argument("--events", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--access-loss", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=None, help="of losses and choices; the overlay is the scenario's")
    parser.add_argument("--seeds", type=int, default=5, help="of gossip: so many seeds are simulated")
    parser.add_argument("--burst", action="store_true", help="gossip with losses in bursts")
    parser.add_argument("--half-width", type=float, default=0.01)
    parser.add_argument("--loss", type=float, action="append")
    parser.add_argument("--scheme", choices=SCHEMES, action="append")
    chosen = parser.parse_args()
    if chosen.what == "done":
        done(chosen.events or 10_000, chosen.rounds, chosen.access_loss, chosen.seed)
        return
    if chosen.what == "gossip":
        bursts = BURSTS if chosen.burst else {}
        gossip(chosen.loss or [0.05, 0.1, 0.2], chosen.events or 400, chosen.seeds, bursts)
        return
    losses = [0.1] if chosen.what == "large" else [0.05, 0.1, 0.2, 0.3]
    changes = {"bursts": BURSTS, "large": LARGE}.get(chosen.what, {})
    compare(chosen.loss or losses, chosen.half_width, changes, chosen.scheme or list(SCHEMES))


if __name__ == "__main__":
    main()
