"""Simulations whose results are kept: every kind, some scenarios, some seeds.

A seed keeps its meaning: whoever has a report can make it again with a later version. `python
tests/simulation/golden/golden_cases.py [KIND ...]` writes the files again; a commit that does says why, seed by seed.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from message_cases import MESSAGE_CASES, messages_of

from surecast.protocol.paxos import Message, encode
from surecast.report import QoSReport
from surecast.scenario import System, build, parse_text
from surecast.scenario.group import Group
from surecast.scenario.mechanism import Mechanism
from surecast.simulation import (
    best_hybrid,
    run_until,
    simulate_dropping,
    simulate_dropping_until,
    simulate_protocol,
    simulate_queue,
    simulate_reliability,
    simulate_routing,
    simulate_routing_until,
)
from surecast.simulation.coding import simulate_coding, sweep_loss
from surecast.simulation.composed import simulate_composed
from surecast.simulation.reliability.protocol import Options, simulate_world
from surecast.simulation.replication import (
    ClosedLoad,
    OpenLoad,
    measure_failovers,
    simulate_group,
    simulate_group_reliability,
    simulate_outages,
    simulate_replication,
)
from surecast.simulation.replication.faults import FaultyGroup, expand
from surecast.simulation.replication.faults.faulty_group import MODES
from surecast.simulation.replication.faults.history_checks import Violation

__all__ = ["KINDS", "FaultWorld", "read_kept", "run_case"]

FOLDER = Path(__file__).parent
Record = dict[str, Any]
Case = Callable[[], Record]
DAY_S = 86_400

RING = """
surecast: 1
name: ring
overlay:
  brokers: [{name: b, count: 5}]
  links: {build: ring, latency: 20ms}
availability:
  brokers: {mtbf: 2h, mttr: 600s}
  links: {availability: 0.97, period: 3000s}
workload:
  topics: [x, y]
  deadline: 900s
  publishers:
    - {name: p, home: b-1, topics: [x, y], rate: 2/min}
    - {name: q, home: b-3, topics: [y], rate: 1/min}
  subscribers:
    - {name: r, home: b-2, topics: [x]}
    - {name: s, home: b-4, topics: [x, y]}
    - {name: t, home: b-5, topics: [y]}
delivery: {fault_tolerance: {refresh: end-to-end, refresh_interval: 60s, retransmission_interval: 30s}}
"""
LOSSY = """
surecast: 1
name: lossy
overlay:
  brokers: [{name: a}, {name: b}, {name: c}]
  links:
    - {between: [a, b], latency: 10ms, loss: 0.1}
    - {between: [b, c], latency: 30ms, loss: 0.05}
    - {between: [a, c], latency: 50ms}
availability: {brokers: {mtbf: 900s, mttr: 60s}, links: {mtbf: 1200s, mttr: 60s}}
workload:
  topics: [t]
  deadline: 20s
  publishers: [{name: p, home: a, topics: [t], rate: 1/s}]
  subscribers: [{name: s, home: b, topics: [t]}, {name: u, home: c, topics: [t]}]
delivery: {fault_tolerance: {refresh: end-to-end, refresh_interval: 10s, retransmission_interval: 2s}}
"""
CLIENTS = """
surecast: 1
name: clients
overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}
availability: {brokers: {mtbf: 9h, mttr: 1h}, clients: {availability: 0.95, period: 1h}}
workload:
  topics: [t]
  deadline: 600s
  publishers: [{name: p, home: a, topics: [t], rate: 1/min}]
  subscribers: [{name: s, home: b, topics: [t]}, {name: u, home: b, topics: [t]}]
delivery: {fault_tolerance: {refresh: end-to-end}}
"""
ROUTED = """
surecast: 1
name: routed
overlay:
  brokers: [{name: b, count: 4, capacity: 300/s}]
  links: {build: chain, latency: 5ms}
workload:
  classes: [{name: c, count: 12}]
  clients: [{name: v, home: b-1}, {name: x, home: b-2}, {name: y, home: b-3}, {name: z, home: b-4}]
  subscriptions: {active: 60, lifetime: 20s}
  publications: 15/s
"""
MEASURED = """
surecast: 1
name: measured
overlay: {brokers: [{name: a, capacity: 400/s}, {name: b, capacity: 400/s}], links: {build: chain}}
workload:
  classes: [{name: stock, count: 4}]
  filters:
    - {name: price, value: {edges: [0, 10, 50, 200], weights: [60, 30, 10]},
       interval: {centre: {edges: [0, 10, 200], weights: [1, 1]}, width: {edges: [0, 5, 20], weights: [3, 1]}},
       constrained: 0.8}
    - {name: grade, value: [1, 1, 2, 3], interval: {ends: values}, constrained: 0.5}
  clients: [{name: x, home: a}, {name: y, home: b}]
  subscriptions: {active: 60, lifetime: 20s}
  publications: 20/s
"""
COMING = """
surecast: 1
name: coming
overlay: {brokers: [{name: b, capacity: 16/s, service: exponential}]}
workload:
  topics: [t, u]
  publishers: [{name: p, home: b, topics: [t], rate: 2/s}, {name: q, home: b, topics: [u], rate: 1/s}]
  subscribers:
    - {name: r, home: b, topics: [t], connectivity: {on: 20s, off: 20s}, service: 8/s, response_target: 7s}
    - {name: s, home: b, topics: [t, u], connectivity: {on: 60s, off: 30s}, service: 10/s}
    - {name: w, home: b, topics: [u]}
"""
COMPOSED = """
surecast: 1
name: composed
overlay:
  brokers:
    - {name: a, capacity: 25/s, service: exponential}
    - {name: b, capacity: 25/s, service: exponential}
  links: [{between: [a, b], latency: 20ms}]
availability: {brokers: {mtbf: 1200s, mttr: 120s}, links: {availability: 0.99, period: 2000s}}
workload:
  topics: [t]
  deadline: 60s
  publishers: [{name: p, home: a, topics: [t], rate: 2/s}]
  subscribers:
    - {name: r, home: b, topics: [t]}
    - {name: s, home: b, topics: [t], connectivity: {on: 60s, off: 30s}, service: 8/s}
delivery: {fault_tolerance: {refresh: end-to-end, retransmission_interval: 5s, refresh_interval: 30s}}
"""
PACKETS = """
surecast: 1
name: packets
overlay:
  brokers: [{name: b, count: 5}]
  links: {build: ring, latency: 10ms, capacity: 500/s, loss: 0.1}
workload:
  topics: [t]
  deadline: 2s
  publishers: [{name: p, home: b-1, topics: [t], rate: 1/s}]
  subscribers: [{name: s, home: b-3, topics: [t]}, {name: u, home: b-4, topics: [t]}, {name: w, home: b-4, topics: [t]}]
delivery:
  coding: {packets: 8, redundancy: 0.5, paths: maximum-flow,
           gossip: {mode: push-pull, fan_out: 2, rounds: 2, interval: 100ms}}
"""


def system_of(text: str, **changes: Any) -> System:
    """The system of a scenario, with other parts in the place of some."""
    return replace(build(parse_text(text)), **changes)


def grouped(text: str, seed: int = 0) -> System:
    """A system whose brokers are groups of three replicas."""
    delivery = "delivery: {replication: {replicas: 3}, "
    lines = text.replace("delivery: {", delivery) if "delivery: {" in text else f"{text}{delivery[:-2]}}}\n"
    return system_of(f"seed: {seed}\n{lines}")


def numbers_of(report: QoSReport) -> Record:
    """The figures of a report: value, both ends of the interval and samples; of parts of the system their digest."""
    found: Record = {}
    parts: dict[str, list[object]] = {}
    for figure in report.figures():
        numbers = [*map(_short, (figure.value, figure.low, figure.high)), figure.samples]
        if figure.scope == "system":
            found["|".join((figure.variant, figure.metric, figure.detail))] = numbers
        else:
            parts.setdefault(f"{figure.variant}|{figure.scope}", []).append([figure.name, figure.metric, *numbers])
    return found | {key: [len(rows), _digest_of(json.dumps(rows))] for key, rows in parts.items()}


def _short(number: float | None) -> float | None:
    """A number with nine digits, which no order of additions changes."""
    if number is None or math.isnan(number):
        return None
    return 0.0 if abs(number) < 1e-12 else float(f"{number:.9g}")


def _digest(*parts: object) -> str:
    arrays = [np.asarray(part, dtype=np.float64).ravel().tolist() for part in parts]
    return _digest_of(json.dumps([[_short(number) for number in array] for array in arrays]))


def _digest_of(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def walks() -> Iterator[tuple[str, Case]]:
    extent: dict[str, Any] = {"runs": 4, "duration_s": 7 * DAY_S, "warm_up_s": 3600.0}
    for seed in (1, 7):
        yield f"ring {seed}", lambda s=seed: numbers_of(simulate_reliability(system_of(RING), **extent, seed=s))
    yield "clients 3", lambda: numbers_of(simulate_reliability(system_of(CLIENTS), **extent, seed=3))
    yield (
        "lossless intervals 5",
        lambda: numbers_of(
            simulate_reliability(
                system_of(CLIENTS, client_failures=None), **extent, seed=5, refresh_interval_s=0.0,
                retransmission_interval_s=0.0, traces={"a": [(0.0, 90_000.0), (95_000.0, math.inf)]},
            )
        ),
    )  # fmt: skip
    yield (
        "until 2",
        lambda: numbers_of(
            run_until(system_of(RING), ["bypass"], half_width=0.008, max_runs=40, duration_s=7 * DAY_S, seed=2)
        ),
    )
    for seed in (1, 4):
        yield (
            f"groups {seed}",
            lambda s=seed: numbers_of(
                simulate_group_reliability(grouped(RING), ["none", "buffering"], **extent, seed=s)
            ),
        )


def protocols() -> Iterator[tuple[str, Case]]:
    odd = Options(jitter_s=0.5, detection_s=1.0, heal_at_s=500.0, keeps_fates=True)
    for seed in (1, 5):
        yield (
            f"ring {seed}",
            lambda s=seed: numbers_of(simulate_protocol(system_of(RING), runs=2, duration_s=DAY_S / 4, seed=s)),
        )
        for scheme in ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering"):
            for name, options in (("plain", Options()), ("odd", odd)):
                yield (
                    f"lossy {scheme} {name} {seed}",
                    lambda o=options, c=scheme, s=seed: _world(c, s, o),
                )


def _world(scheme: str, seed: int, options: Options) -> Record:
    result = simulate_world(system_of(LOSSY), scheme, duration_s=600, seed=seed, run=1, options=options)
    sums = [result.published, result.on_time, result.late, result.queued, result.delay_sum_s]
    return {
        "trace": result.digest,
        "steps": result.steps,
        "messages": result.messages,
        "sums": _digest(*sums, *(result.lost[reason] for reason in sorted(result.lost))),
        "fates": len(result.fates),
    }


def routes() -> Iterator[tuple[str, Case]]:
    extent: dict[str, Any] = {"runs": 3, "duration_s": 20.0, "warm_up_s": 2.0}
    some = ["flooding", "peer-to-peer covering", "hierarchical merging"]
    for seed in (1, 6):
        yield (
            f"routed {seed}",
            lambda s=seed: numbers_of(simulate_routing(system_of(ROUTED), some, **extent, seed=s, check=True)),
        )
    yield "measured 2", lambda: numbers_of(simulate_routing(system_of(MEASURED), some[1:2], **extent, seed=2))
    yield (
        "until 3",
        lambda: numbers_of(
            simulate_routing_until(
                system_of(ROUTED), some[:2], relative_half_width=0.05, delay_half_width=0.05, max_runs=30,
                duration_s=10.0, warm_up_s=1.0, seed=3,
            )
        ),
    )  # fmt: skip


def messages() -> Iterator[tuple[str, Case]]:
    for name, shape in MESSAGE_CASES.items():
        yield name, lambda shape=shape: messages_of(**shape)


def queues() -> Iterator[tuple[str, Case]]:
    extent: dict[str, Any] = {"duration_s": 4000.0, "warm_up_s": 200.0}
    chosen = {
        "probabilistic": Mechanism(join_probability=0.4),
        "finite-buffer": Mechanism(buffer_size=12),
        "expiry": Mechanism(lifetime_s=15.0),
    }
    for seed in (1, 8):
        yield (
            f"coming {seed}",
            lambda s=seed: numbers_of(
                simulate_dropping(system_of(COMING), mechanisms=chosen, runs=5, **extent, seed=s)
            ),
        )
    yield (
        "until 2",
        lambda: numbers_of(
            simulate_dropping_until(system_of(COMING), ["none"], relative_half_width=0.06, min_runs=5, **extent, seed=2)
        ),
    )
    yield "given periods 4", lambda: numbers_of(_given_periods(extent))
    for seed in (1, 9):
        yield f"queue {seed}", lambda s=seed: _queue(seed=s, runs=4, **extent)
    yield "queue until 2", lambda: _queue(seed=2, runs=8, relative_half_width=0.04, **extent)
    yield "hybrid 1", lambda: _hybrid(1)


def _given_periods(extent: dict[str, Any]) -> QoSReport:
    periods = [(100.0 * k, 100.0 * k + 60.0) for k in range(80)]
    return simulate_dropping(system_of(COMING), ["none"], runs=3, **extent, seed=4, traces={"s": periods})


def _queue(**extent: Any) -> Record:
    mechanisms = [Mechanism(join_probability=0.4), Mechanism(buffer_size=9), Mechanism(lifetime_s=10.0)]
    found = simulate_queue(2.0, 8.0, 20.0, 20.0, mechanisms, input_per_s=16.0, **extent)
    estimates = (found.success_share, found.response_mean_s, found.delay_mean_s, found.queue_length_mean)
    values = [[[_short(number) for number in part.tolist()] for part in estimate] for estimate in estimates]
    return {"runs": found.runs, "estimates": values, "counts": _digest(found.counts, found.responses, found.delays)}


def _hybrid(seed: int) -> Record:
    vary = ["join_probability", "buffer_size"]
    found = best_hybrid(2.0, 8.0, 20.0, 20.0, target_s=7.0, vary=vary, runs=2, duration_s=3000.0, seed=seed)
    chosen = found.mechanism
    return {
        "chosen": [_short(chosen.join_probability), chosen.buffer_size, found.evaluations],
        "success": _short(float(found.figures.success_share.value[0])),
    }


def composed() -> Iterator[tuple[str, Case]]:
    extent: dict[str, Any] = {"runs": 3, "duration_s": 8000.0, "warm_up_s": 300.0}
    mechanisms = {"s": Mechanism(join_probability=0.7)}
    for seed in (1, 3):
        for scheme in ("none", "periodic-subscription", "buffering"):
            yield (
                f"{scheme} {seed}",
                lambda c=scheme, s=seed: numbers_of(
                    simulate_composed(system_of(COMPOSED), c, mechanisms, **extent, seed=s)
                ),
            )
    yield (
        "groups 2",
        lambda: numbers_of(simulate_composed(grouped(COMPOSED), "buffering", mechanisms, **extent, seed=2)),
    )


def packets() -> Iterator[tuple[str, Case]]:
    schemes = ["tree", "tree-retransmission", "coding", "coding-gossip"]
    for seed in (1, 5):
        yield (
            f"compiled {seed}",
            lambda s=seed: numbers_of(simulate_coding(system_of(PACKETS), schemes, events=100, seed=s)),
        )
    yield (
        "objects 2",
        lambda: numbers_of(simulate_coding(system_of(PACKETS), schemes, events=40, seed=2, how="objects")),
    )
    yield "until 3", lambda: numbers_of(_coded_until())
    yield "sweep 4", lambda: _loss_sweep(4)


def _coded_until() -> QoSReport:
    return simulate_coding(system_of(PACKETS), ["coding"], events=200, half_width=0.01, events_max=4000, seed=3)


def _loss_sweep(seed: int) -> Record:
    found = sweep_loss(system_of(PACKETS), [0.05, 0.2], ["tree", "coding"], half_width=0.03, seed=seed)
    return {
        f"{point.alternative} {point.loss}": [
            point.events, *map(_short, (*point.on_time, *point.all_on_time, *point.delay_mean_s, *point.messages))
        ]
        for point in found.points
    }  # fmt: skip


def groups() -> Iterator[tuple[str, Case]]:
    one = "{surecast: 1, name: one, overlay: {brokers: [{name: b, capacity: 500/s}]},\n"
    one += " workload: {topics: [t], publishers: [{name: p, home: b, topics: [t], rate: 20/s}]},\n"
    one += " availability: {brokers: {mtbf: 600s, mttr: 60s}},\n delivery: {replication: {replicas: 3}}}"
    for seed in (1, 6):
        yield (
            f"report {seed}",
            lambda s=seed: numbers_of(simulate_replication(system_of(one), runs=2, duration_s=3.0, seed=s)),
        )
    failing = build(parse_text(one)).overlay.brokers[0].failures
    for name, group, load in (
        ("open", Group(3), OpenLoad(200.0, 4)),
        ("closed", Group(5), ClosedLoad(4, 8)),
        ("failing", Group(3, failures=failing), OpenLoad(50.0)),
    ):
        yield f"{name} 2", lambda g=group, x=load: _group_run(g, x, 2)
    yield "failovers 3", lambda: {"gaps": _digest(measure_failovers(Group(3), 50.0, count=5, seed=3))}
    for seed in (1, 2):
        for repair in ("single", "independent"):
            group = Group(5, failures=failing, repair=repair)
            yield f"outages {repair} {seed}", lambda g=group, s=seed: _outages(g, s)


def _group_run(group: Group, load: OpenLoad | ClosedLoad, seed: int) -> Record:
    found = simulate_group(group, load, duration_s=2.0, seed=seed)
    sums = [found.published, found.instances, found.leader_cpu_s, found.follower_cpu_s, found.throughput_per_s]
    return {"sums": [_short(float(part)) for part in sums], "times": _digest(found.acknowledged_s, found.commit_s)}


def _outages(group: Group, seed: int) -> Record:
    starts, ends = simulate_outages(group, np.array([0.3, 1.7, 0.9]), horizon_s=1e6, seed=seed, warm_up_s=1e4)
    return {"count": len(starts), "up_s": _short(float((ends - starts).sum())), "times": _digest(starts, ends)}


class FaultWorld(FaultyGroup):
    """Takes down every message, when it was sent and between whom."""

    def run(self) -> None:
        """Runs both phases."""
        self.trace = hashlib.blake2b(digest_size=12)
        super().run()

    def send(self, source: int, to: int, message: Message) -> None:
        """Takes a message down and sends it."""
        self.trace.update(f"{self.now:.9g} {source} {to} ".encode() + encode(message))
        super().send(source, to, message)


def faults() -> Iterator[tuple[str, Case]]:
    shapes: tuple[tuple[int, Any], ...] = ((3, "multi"), (5, "fast"))
    for mode in MODES:
        for replicas, variant in shapes:
            for seed in (1, 2, 11):
                yield (
                    f"{mode} {replicas} {variant} {seed}",
                    lambda m=mode, n=replicas, v=variant, s=seed: _faults(m, n, v, s),
                )


def _faults(mode: Any, replicas: int, variant: Any, seed: int) -> Record:
    world = FaultWorld(MODES[mode](expand(seed, replicas, variant)))
    violation = ""
    try:
        world.run()
    except Violation as error:
        violation = str(error)
    log = hashlib.blake2b(digest_size=12)
    for slot in sorted(world.applied_log.values):
        log.update(slot.to_bytes(8, "big") + world.applied_log.values[slot])
    return {
        "messages": world.trace.hexdigest(),
        "log": log.hexdigest(),
        "answers": _digest([one.answered_s for one in world.clients.operations if one.is_answered], world.now),
        "violation": violation,
        "counts": "/".join(str(number) for number in world.counts.values()),
    }


KINDS: dict[str, Callable[[], Iterator[tuple[str, Case]]]] = {
    "walks": walks,
    "protocols": protocols,
    "routes": routes,
    "messages": messages,
    "queues": queues,
    "composed": composed,
    "packets": packets,
    "groups": groups,
    "faults": faults,
}


def run_case(kind: str, case: str) -> Record:
    """The results of a case, as they are kept."""
    return dict(json.loads(json.dumps(dict(KINDS[kind]())[case]())))


def read_kept(kind: str) -> dict[str, Record]:
    """The kept results of a kind, by case."""
    return dict(json.loads((FOLDER / f"{kind}.json").read_text()))


def _write(kind: str) -> None:
    lines = [
        f"{json.dumps(name)}:{json.dumps(case(), separators=(',', ':')).replace('],', '],' + chr(10))}"
        for name, case in KINDS[kind]()
    ]
    (FOLDER / f"{kind}.json").write_text("{" + ",\n\n".join(lines) + "}\n")


if __name__ == "__main__":
    for chosen_kind in sys.argv[1:] or KINDS:
        _write(chosen_kind)
