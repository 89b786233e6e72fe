"""Speed of the compiled simulation of reliability, beside an equivalent model in SimPy.

Run it without arguments; it takes about a minute. Both simulate the same process on the same failures and events (ideal
refresh and retransmission), so both must count the same; the SimPy model is an ordinary one: a process per component,
a process per publisher, and one for every event that has to wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from surecast.scenario import Streams, System, load_system
from surecast.simulation import simulate_reliability
from surecast.simulation.reliability.compiled import SCHEMES
from surecast.simulation.reliability.compiled.compiled_plan import CompiledPlan, EventSource, make_plan
from surecast.simulation.reliability.compiled.traces import draw_trace

try:
    import simpy
except ImportError:
    simpy = None

SCENARIO = Path(__file__).parents[1] / "examples" / "reliability-graph.yaml"
DAY = 86400.0
SEED = 1
SIMPY_DAYS = 3


class Model:
    """The process as a SimPy model; `delivered` counts events on time, over all targets."""

    def __init__(self, plan: CompiledPlan, scheme: str, duration_s: float):
        self.plan, self.scheme = plan, scheme
        self.env = simpy.Environment()
        self.change = self.env.event()
        self.labels: dict[int, int] | None = None
        self.published = self.delivered = self.offered = 0
        system = plan.system
        lifetime = max(p.deadline_s for p in system.publishers)
        self.end_s, horizon_s = duration_s, duration_s + lifetime
        traces = [draw_trace(c.failures, Streams(SEED), f"run 0/{c.kind}", c.name, horizon_s) for c in plan.components]
        self.up = [bool(starts[0] <= 0) for starts, _ in traces]
        for i, (starts, ends) in enumerate(traces):
            self.env.process(self.component(i, starts.tolist(), ends.tolist()))
        for source in plan.sources:
            self.env.process(self.publisher(source))
        self.env.run(until=horizon_s)

    def component(self, index: int, starts: list[float], ends: list[float]) -> Iterator[Any]:
        for start, end in zip(starts, ends, strict=True):
            for when, state in ((start, True), (end, False)):
                if when == math.inf:
                    return
                if when > 0:
                    yield self.env.timeout(when - self.env.now)
                    self.up[index] = state
                    self.labels = None
                    change, self.change = self.change, self.env.event()
                    change.succeed()

    def publisher(self, source: EventSource) -> Iterator[Any]:
        publisher = self.plan.system.publishers[source.publisher]
        period = 1.0 / publisher.rate_per_s
        yield self.env.timeout(period * float(Streams(SEED).generator("run 0/phase", publisher.name).random()))
        while self.env.now < self.end_s:
            self.published += 1
            self.offered += len(source.targets)
            if self.up[source.broker[0]]:
                self.publish(source, self.env.now + source.lifetime_s)
            yield self.env.timeout(period)

    def publish(self, source: EventSource, deadline: float) -> None:
        if self.scheme == "bypass":
            labels = self.components()
            self.delivered += sum(labels[source.broker[0]] == labels.get(t.home, -1) for t in source.targets)
            return
        open_targets = set(range(len(source.targets)))
        self.arrive(source, 0, open_targets, deadline)

    def arrive(self, source: EventSource, node: int, waiting: set[int], deadline: float) -> None:
        """The event is at a node: delivers it where it can, and sends it on to all children."""
        for j in list(waiting):
            target = source.targets[j]
            here = target.node == node
            if self.scheme == "bypass-buffering" and not here and node in target.path:
                labels = self.components()
                here = labels[source.broker[node]] == labels.get(target.home, -1)
            if here:
                waiting.remove(j)
                self.delivered += 1
        for child in (n for n, parent in enumerate(source.parent) if parent == node):
            if not any(child in source.targets[j].path for j in waiting):
                continue
            if self.hop_up(source, child):
                self.arrive(source, child, waiting, deadline)
            elif self.scheme != "periodic-subscription":
                self.env.process(self.wait(source, child, waiting, deadline))

    def wait(self, source: EventSource, child: int, waiting: set[int], deadline: float) -> Iterator[Any]:
        expiry = self.env.timeout(deadline - self.env.now)
        while not self.hop_up(source, child):
            yield self.change | expiry
            if expiry.processed:
                return
        self.arrive(source, child, waiting, deadline)

    def hop_up(self, source: EventSource, child: int) -> bool:
        return all(self.up[component] for component in self.plan.hops[source.hop[child]])

    def components(self) -> dict[int, int]:
        """Connected components of the up graph, found again after each change."""
        if self.labels is None:
            brokers = self.plan.brokers
            self.labels = {b: b for b in range(brokers) if self.up[b]}
            links = [
                (link.a, link.b)
                for i, link in enumerate(self.plan.system.overlay.links)
                if self.up[brokers + i] and self.up[link.a] and self.up[link.b]
            ]
            for a, b in links:
                old, new = self.labels[a], self.labels[b]
                if old != new:
                    self.labels = {broker: new if label == old else label for broker, label in self.labels.items()}
        return self.labels


def ours(system: System, scheme: str, runs: int, duration_s: float) -> tuple[float, float]:
    """Share of events on time over all targets, and seconds taken."""
    start = time.perf_counter()
    report = simulate_reliability(
        system,
        [scheme],
        runs=runs,
        duration_s=duration_s,
        seed=SEED,
        refresh_interval_s=0.0,
        retransmission_interval_s=0.0,
    )
    seconds = time.perf_counter() - start
    plan = make_plan(system)
    shares = report.values("share_on_time", scope="subscriber")
    by_interest = {i: shares[s.name] for i, s in zip(plan.interest_of.tolist(), system.subscribers, strict=True)}
    targets = [by_interest[target.interest] for source in plan.sources for target in source.targets]
    return sum(targets) / len(targets), seconds


def main() -> None:
    _, system = load_system(SCENARIO)
    plan = make_plan(system)
    per_day = sum(p.rate_per_s for p in system.publishers) * DAY
    start = time.perf_counter()
    ours(system, "bypass-buffering", 1, DAY)
    print(f"compiled, or loaded from the cache, in {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    simulate_reliability(system, SCHEMES, runs=10, duration_s=14 * DAY, seed=SEED)
    seconds = time.perf_counter() - start
    print(f"the paper's experiment, 10 runs of 14 days under all {len(SCHEMES)} schemes: {seconds:.2f} s\n")
    if simpy is None:
        print("SimPy is not installed: `pip install simpy` to compare with it\n")
    print(f"{'scheme':24}{'ours, events/s':>16}{'SimPy, events/s':>18}{'ratio':>9}   share on time, ours and SimPy")
    for scheme in SCHEMES[1:]:
        _, seconds = ours(system, scheme, 10, 14 * DAY)
        speed = 10 * 14 * per_day / seconds
        line = f"{scheme:24}{speed:16,.0f}"
        if simpy is not None:
            start = time.perf_counter()
            model = Model(plan, scheme, SIMPY_DAYS * DAY)
            other = model.published / (time.perf_counter() - start)
            share, _ = ours(system, scheme, 1, SIMPY_DAYS * DAY)
            line += f"{other:18,.0f}{speed / other:9,.0f}   {share:.5f} {model.delivered / model.offered:.5f}"
        print(line)


if __name__ == "__main__":
    main()
