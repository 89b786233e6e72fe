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
from surecast.scenario import load_system
from surecast.simulate.coding import Alternative, Caster, Channel, audiences_of, settings_for, simulate_coding
from surecast.simulate.coding.answer import messages_minimum

SCENARIO = Path(__file__).parent.parent / "examples" / "coded.yaml"
METRICS = ("all_on_time_share", "reliability", "delay_mean_s", "messages_per_event")


def done(events: int, rounds: int, access_loss: float) -> None:
    """Whether every event is at every subscriber in time, and what that costs."""
    _, system = load_system(SCENARIO, {"delivery.coding.gossip.rounds": str(rounds)})
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
        seed=system.seed,
        channel=Channel(access_loss=access_loss),
    )
    began, cpu = time.perf_counter(), time.process_time()
    found = caster.run(events)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    least = messages_minimum(system.overlay, audience, homes, settings.coding.packets)
    sent = {kind: float(counts.mean()) for kind, counts in found.messages().items()}
    volume = {kind: float(size.mean()) for kind, size in found.bytes_sent(settings.coding, 1000).items()}
    late = int((~found.on_time.all(axis=1)).sum())
    print(f"{events} events x {len(homes)} subscribers, {rounds} rounds, access loss {access_loss:g}, seed {system.seed}")
    print(f"  not at every subscriber within {audience.deadline_s:g} s: {late} events, {int((~found.on_time).sum())} pairs")
    print(f"  last delivery after {found.done_s[found.on_time].max():.3f} s, quantiles 50/99/99.9 %: ", end="")
    print(np.quantile(found.done_s[found.on_time], [0.5, 0.99, 0.999]).round(3))
    print(f"  recovered by gossip: {found.recovered.mean():.2%}")
    print(f"  messages {sent}, at least {least:.0f}; bytes {volume}")
    print(f"  {seconds:.1f} s ({cpu:.1f} s of processor), {1000 * cpu / events:.2f} ms an event")


def compare(losses: list[float], events: int, channel: Channel | None = None, predicted: bool = True) -> None:
    """A table of predicted and simulated figures."""
    for loss in losses:
        _, system = load_system(SCENARIO, {"overlay.links.loss": str(loss)})
        simulated = simulate_coding(
            system, events=events, half_width=0.01, seed=system.seed, channel=channel, quantiles=()
        )
        forecast = predict_coding(system, quantiles=()) if predicted else None
        for variant in simulated.variants:
            cells = []
            for metric in METRICS:
                figure = simulated.select(scope="system", metric=metric, detail="", variant=variant)
                try:
                    value = figure.value(metric, variant=variant, scope="system", detail="")
                except Exception:
                    continue
                said = f"{value:.4g}"
                if forecast is not None and variant in forecast.variants:
                    try:
                        said = f"{forecast.value(metric, variant=variant, scope='system', detail=''):.4g} / {said}"
                    except Exception:
                        said = f"- / {said}"
                cells.append(said)
            print(f"| {loss:g} | {variant} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("done", "compare", "bursts"))
    parser.add_argument("--events", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--access-loss", type=float, default=0.0)
    parser.add_argument("--loss", type=float, action="append")
    chosen = parser.parse_args()
    if chosen.what == "done":
        done(chosen.events or 10_000, chosen.rounds, chosen.access_loss)
        return
    bursts = Channel(burst_mean=5.0) if chosen.what == "bursts" else None
    compare(chosen.loss or [0.02, 0.1, 0.2], chosen.events or 200, bursts, chosen.what == "compare")


if __name__ == "__main__":
    main()
