"""Coded delivery of examples/coded.yaml: every event to every subscriber, schemes side by side, and prediction against
simulation.

    python benchmarks/coded_delivery.py done          10,000 events to 100 subscribers (about a minute)
    python benchmarks/coded_delivery.py compare       prediction and simulation, all schemes at three losses
    python benchmarks/coded_delivery.py bursts        the same losses in bursts
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from surecast.predict.coding.answer import predict_coding
from surecast.protocol.dissemination import SCHEMES
from surecast.report import QoSReport
from surecast.scenario import load_system
from surecast.simulate.coding import Alternative, Caster, Channel, audiences_of, settings_for, simulate_coding
from surecast.simulate.coding.answer import messages_minimum

SCENARIO = Path(__file__).parent.parent / "examples" / "coded.yaml"
METRICS = ("all_on_time_share", "reliability", "delay_mean_s", "messages_per_event")


def done(events: int, rounds: int, access_loss: float, seed: int | None) -> None:
    """Whether every event is at every subscriber in time, and what that costs."""
    _, system = load_system(SCENARIO, {"delivery.coding.gossip.rounds": str(rounds)})
    seed = system.seed if seed is None else seed
    (audience,) = audiences_of(system)
    homes = [system.subscribers[i].home for i in audience.members]
    assert system.delivery.coding is not None
    settings = settings_for(system.delivery.coding, Alternative("coding-gossip"))
    caster = Caster(
        system.overlay,
        audience.source,
        homes,
        settings,
        deadline_s=audience.deadline_s,
        seed=seed,
        channel=Channel(access_loss=access_loss),
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


def compare(losses: list[float], half_width: float, channel: Channel | None = None, predicted: bool = True) -> None:
    """A table of predicted and simulated figures; the latter with their half-widths."""
    print("| loss | scheme | " + " | ".join(METRICS) + " |")
    for loss in losses:
        _, system = load_system(SCENARIO, {"overlay.links.loss": str(loss)})
        forecast = predict_coding(system, quantiles=()) if predicted else None
        for scheme in SCHEMES:
            simulated = simulate_coding(
                system, [scheme], events=200, half_width=half_width, seed=system.seed, channel=channel, quantiles=()
            )
            for variant in simulated.variants:
                cells = [_cell(forecast, simulated, metric, variant) for metric in METRICS]
                print(f"| {loss:g} | {variant} | " + " | ".join(cells) + " |", flush=True)


def _cell(forecast: QoSReport | None, simulated: QoSReport, metric: str, variant: str) -> str:
    """Predicted / simulated; a figure that is not there is a dash."""
    said = []
    for report in (forecast, simulated) if forecast is not None else (simulated,):
        found = report.select(scope="system", metric=metric, detail="", variant=variant)
        figures = list(found)
        ends = [] if not figures else [end for end in (figures[0].low, figures[0].high) if end is not None]
        half = f" ± {max(abs(figures[0].value - end) for end in ends):.2g}" if ends else ""
        said.append(f"{figures[0].value:.4g}{half}" if figures else "-")
    return " / ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("done", "compare", "bursts"))
    parser.add_argument("--events", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--access-loss", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=None, help="of losses and choices; the overlay is the scenario's")
    parser.add_argument("--half-width", type=float, default=0.01)
    parser.add_argument("--loss", type=float, action="append")
    chosen = parser.parse_args()
    if chosen.what == "done":
        done(chosen.events or 10_000, chosen.rounds, chosen.access_loss, chosen.seed)
        return
    bursts = Channel(burst_mean=5.0) if chosen.what == "bursts" else None
    compare(chosen.loss or [0.02, 0.1, 0.2], chosen.half_width, bursts, chosen.what == "compare")


if __name__ == "__main__":
    main()
