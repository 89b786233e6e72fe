"""Compiles the kernels that models and simulations need, so that the first question does not wait for them.

First kernels are removed whose source changed (`clear_stale_kernels`). Where none was and none is missing, nothing is
compiled. Else each model answers an example, two at a time; what is compiled stays on disk.

    python tools/compile_kernels.py          where something changed
    python tools/compile_kernels.py --all    whatever there is
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

from clear_stale_kernels import SOURCE, STAMP, clear
from surecast import Scenario, plan, predict, simulate
from surecast.errors import SurecastError

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
TEMPLATES = sorted((ROOT / "src" / "surecast" / "scenario" / "templates").glob("*.yaml"))
PROCESSES = 2


def main() -> None:
    """Compiles what is missing, in processes that share the examples."""
    stale = clear(SOURCE, STAMP)
    if not stale and "--all" not in sys.argv[1:]:
        return
    workers = min(PROCESSES, os.cpu_count() or 1)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        failures = [failure for failure in pool.imap(answer, QUESTIONS, chunksize=1) if failure]
    if failures:
        STAMP.unlink(missing_ok=True)  # so that the next call tries again
        sys.exit(f"the kernels were not all compiled: {'; '.join(failures)}")


def answer(name: str) -> str:
    """Asks a question; returns the reason where it could not be answered."""
    try:
        QUESTIONS[name]()
    except SurecastError as error:
        return f"{name}: {error}"
    return ""


def _simulated(name: str, duration: str) -> Callable[[], object]:
    return lambda: simulate(Scenario.load(EXAMPLES / f"{name}.yaml"), runs=2, duration=duration)


def _predicted(*files: Path) -> Callable[[], object]:
    return lambda: [predict(Scenario.load(file)) for file in files]


def _coded() -> None:
    """Takes a file apart and puts it together again, in each field, by way of a broker that combines anew."""
    from surecast.protocol.coding import CodingSettings, EventDecoder, EventEncoder, Recoder

    data = bytes(range(256)) * 8
    for bits in (1, 4, 8):
        settings = CodingSettings(packets=8, redundancy=1.0, packet_bytes=256, field_bits=bits)
        encoder, recoder, decoder = EventEncoder(1, data, settings, seed=3), Recoder(settings), EventDecoder(settings)
        for packet in [*encoder.plain()[2:], *encoder.coded()]:
            recoder.add(packet)
        for seed in range(40):
            decoder.add(recoder.packet(seed))
        if decoder.data() != data:
            raise SurecastError(f"an event over a field of {2**bits} elements was not decoded")


QUESTIONS: dict[str, Callable[[], object]] = {
    # What takes longest comes first.
    "the simulation of coded delivery": _simulated("coded", "10s"),
    "predictions": _predicted(*TEMPLATES, *(EXAMPLES / f"{name}.yaml" for name in ("coded", "composed", "p2s"))),
    "a plan": lambda: plan(Scenario.load(EXAMPLES / "company.yaml"), max_brokers=2),
    "the composed simulation": _simulated("composed", "5min"),
    "the simulation of dropping": _simulated("dropping-mechanisms", "1h"),
    "the simulation of reliability": _simulated("reliability-graph", "1h"),
    "predictions of dropping": _predicted(EXAMPLES / "dropping.yaml", EXAMPLES / "dropping-mechanisms.yaml"),
    "predictions of reliability": _predicted(EXAMPLES / "reliability-graph.yaml", EXAMPLES / "reliability-tree.yaml"),
    "the simulation of groups": _simulated("p2s", "2s"),
    "coding": _coded,
}


if __name__ == "__main__":
    main()
