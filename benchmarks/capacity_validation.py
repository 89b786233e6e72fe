"""Predicted against simulated capacity: nine routing algorithms on a generated and two real networks.

Part 1 sets every figure of the prediction beside the simulation of the routing code, at moderate load: service times
are scaled, for each algorithm, so that the busiest broker is busy 0.6 of the time, the busiest link 0.4 and the busiest
router 0.2. Runs are added until the 95 % half-width of rates, tables and utilisation of the whole system is at most 1 %
and that of delays 2 %. Part 2 raises the arrival rates, and with them the number of subscriptions, until the predicted
waiting times are off by more than 5 %. Part 3 has few filter classes, where the traffic follows the subscriptions.

The real networks come from a folder with topologies/zoo and topologies/rocketfuel: --data, or SURECAST_DATA.

Run: python benchmarks/capacity_validation.py --minutes 20 --workers 2
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from surecast.prediction.capacity import ALGORITHMS, predict_capacity
from surecast.report import Figure, QoSReport
from surecast.scenario import System, build, parse_text
from surecast.scenario.distributions import Distribution
from surecast.simulation.capacity import simulate_routing_until
from surecast.simulation.capacity.routing_plan import make_plan

ROOT = Path(__file__).resolve().parent.parent
BUSIEST = {"broker": 0.6, "physical_link": 0.4, "router": 0.2}
SHARES = {"moderate": 0.6, "load": 0.3, "classes": 0.1}
"""The shares of the minutes for the parts."""

SCENARIO = """
surecast: 1
name: {name}
seed: 1
network: {network}
overlay:
  candidates: {{per_domain: 2}}
  brokers: [{{name: b, at: candidates, capacity: 1000/s}}]
  links: {{build: spanning-tree, by: latency}}
  root: central
  paths: latency
workload:
  classes: [{{name: k, count: {classes}, hot_spot: random, locality: 0.6}}]
  clients: [{{name: c, count: 40, at: random, home: nearest}}]
  subscriptions: {{active: {active}, lifetime: {{distribution: {lifetime}, mean: 20s}}}}
  publications: {publications}/s
"""

METRICS = (
    ("message_rate_per_s", "system", ("notification", "control")),
    ("rate_in_per_s", "broker", ("",)),
    ("traffic_per_s", "overlay_link", ("",)),
    ("table_entries", "broker", ("local",)),
    ("table_entries", "broker", ("remote",)),
    ("utilisation", "broker", ("",)),
    ("utilisation", "physical_link", ("",)),
    ("waiting_mean_s", "broker", ("",)),
    ("waiting_mean_s", "physical_link", ("",)),
    ("waiting_mean_s", "router", ("",)),
    ("delay_mean_s", "overlay_link", ("",)),
    ("delay_mean_s", "subscriber", ("",)),
    ("delay_quantile_s", "subscriber", ("p95",)),
    ("delay_mean_s", "system", ("",)),
    ("notification_delay_latest_s", "system", ("",)),
    ("notification_delay_worst_s", "system", ("",)),
    ("subscription_delay_worst_s", "system", ("",)),
)


@dataclass(frozen=True)
class Errors:
    """Relative errors (predicted over simulated, less 1) of one metric over components that are known to 10 %."""

    error: np.ndarray
    half: np.ndarray

    @property
    def text(self) -> str:
        if not len(self.error):
            return f"{'-':>8}"
        inside = float((np.abs(self.error) <= self.half).mean())
        return (
            f"{np.abs(self.error).mean():8.2%} {np.abs(self.error).max():8.2%} {self.error.mean():+8.2%} "
            f"{self.half.mean():10.2%} {inside:7.0%} {len(self.error):5d}"
        )

    @property
    def significant(self) -> bool:
        """Returns whether the prediction is off by more than chance explains, and by more than 1 %."""
        if not len(self.error):
            return False
        outside = np.abs(self.error) > self.half
        return bool(outside.mean() > 0.2 and abs(self.error.mean()) > 0.01)


class Budget:
    """Time, shared out evenly among the jobs that are left."""

    def __init__(self, minutes: float, jobs: int):
        self.end = time.monotonic() + 60 * minutes
        self.jobs = jobs

    def job(self) -> Callable[[], bool]:
        """A function that says whether the time of the next job is over."""
        now = time.monotonic()
        until = now + max(0.0, self.end - now) / max(1, self.jobs)
        self.jobs -= 1
        return lambda: time.monotonic() > until


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="time for everything, roughly")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--part", choices=tuple(SHARES), action="append", help="only this part; may be repeated")
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("SURECAST_DATA") or ROOT.parent / "shared/data")
    )
    parser.add_argument("--network", action="append", help="only this network; may be repeated")
    parser.add_argument("--algorithm", action="append", choices=ALGORITHMS, help="only this one; may be repeated")
    options = parser.parse_args()
    parts = options.part or list(SHARES)
    whole = sum(SHARES[part] for part in parts)
    networks = known_networks(options.data)
    if options.network:
        networks = {name: network for name, network in networks.items() if name in options.network}
    for part in parts:
        minutes = options.minutes * SHARES[part] / whole
        if part == "moderate":
            moderate(networks, options.algorithm or list(ALGORITHMS), minutes, options.workers)
        elif part == "load":
            raise_load(networks, minutes, options.workers)
        else:
            few_classes(networks, minutes, options.workers)


def known_networks(data: Path) -> dict[str, str]:
    """The networks, each as a scenario says it; real ones only where their files are."""
    capacities = "link_capacity: 2000/s, router_capacity: 20000/s"
    networks = {"transit-stub": f"{{kind: transit-stub, domains: 3, routers: 120, {capacities}}}"}
    for name, file in (("geant", "zoo/Geant2012.graphml"), ("ebone", "rocketfuel/1755.latencies.intra")):
        path = data / "topologies" / file
        if path.is_file():
            networks[name] = f"{{kind: file, path: '{path}', domains: 3, link_capacity: 2000/s}}"
        else:
            print(f"{path} is not there, so {name} is left out: name the folder of real networks with --data")
    return networks


def scenario(name: str, network: str, **changes: object) -> System:
    values = {"classes": 100, "active": 2000, "publications": 60, "lifetime": "exponential", **changes}
    return build(parse_text(SCENARIO.format(name=name, network=network, **values)))


def with_services(system: System, factor: dict[str, float]) -> System:
    """The same system with service times that are longer by a factor for each kind of component."""

    def longer(service: Distribution | None, scope: str) -> Distribution | None:
        return None if service is None else service.with_mean(service.mean_s * factor.get(scope, 1.0))

    brokers = tuple(
        replace(
            broker,
            notification_service=longer(broker.notification_service, "broker"),
            control_service=longer(broker.control_service, "broker"),
        )
        for broker in system.overlay.brokers
    )
    network = system.network
    assert network is not None
    routers = tuple(replace(router, service=longer(router.service, "router")) for router in network.routers)
    links = tuple(replace(link, service=longer(link.service, "physical_link")) for link in network.links)
    return replace(
        system,
        overlay=replace(system.overlay, brokers=brokers),
        network=replace(network, routers=routers, links=links),
    )


def busy(report: QoSReport) -> dict[str, float]:
    """The utilisation of the busiest broker, link and router."""
    most: dict[str, float] = {}
    for figure in report.figures(metric="utilisation"):
        most[figure.scope] = max(most.get(figure.scope, 0.0), figure.value)
    return most


def tuned(system: System, algorithm: str, busiest: dict[str, float]) -> System:
    """The same system, the busiest component of each kind busy as asked. Rates do not depend on service times."""
    now = busy(predict_capacity(system, [algorithm]))
    return with_services(system, {scope: wanted / now[scope] for scope, wanted in busiest.items() if scope in now})


def with_load(system: System, factor: float) -> System:
    workload = system.class_workload
    assert workload is not None
    return replace(
        system,
        class_workload=replace(
            workload,
            publication_rate_per_s=factor * workload.publication_rate_per_s,
            subscription_rate_per_s=factor * workload.subscription_rate_per_s,
        ),
    )


def errors(
    predicted: QoSReport,
    simulated: QoSReport,
    metric: str,
    scope: str,
    details: tuple[str, ...],
    names: set[str] | None = None,
) -> Errors:
    """The errors of a metric over all components of a scope, or over some by name."""

    def keyed(report: QoSReport) -> dict[tuple[str, str], Figure]:
        found = [figure for figure in report.figures(metric=metric, scope=scope) if figure.detail in details]
        return {(figure.name, figure.detail): figure for figure in found if names is None or figure.name in names}

    ours, theirs = keyed(predicted), keyed(simulated)
    error, half = [], []
    for key, figure in theirs.items():
        if key in ours and figure.value > 0 and figure.low is not None and figure.high is not None:
            width = (figure.high - figure.low) / 2 / figure.value
            if width <= 0.1:
                error.append(ours[key].value / figure.value - 1)
                half.append(width)
    return Errors(np.array(error), np.array(half))


def simulated(system: System, algorithm: str, stop: Callable[[], bool], workers: int, run_s: float = 40.0) -> QoSReport:
    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r  {system.name}, {algorithm}: run {done} ", end="", file=sys.stderr, flush=True)

    report = simulate_routing_until(
        system,
        [algorithm],
        max_runs=400,
        duration_s=run_s,
        warm_up_s=3.0,
        seed=7,
        min_runs=4,
        workers=workers,
        progress=show,
        stop=stop,
    )
    if sys.stderr.isatty():
        print("\r" + 60 * " " + "\r", end="", file=sys.stderr, flush=True)
    return report


def moderate(networks: dict[str, str], algorithms: list[str], minutes: float, workers: int) -> None:
    """Part 1: every figure at moderate load."""
    budget = Budget(minutes, len(networks) * len(algorithms))
    pooled: dict[tuple[str, str, str], list[Errors]] = {}
    fed: dict[str, list[Errors]] = {}
    for name, network in networks.items():
        system = scenario(name, network)
        for algorithm in algorithms:
            start = time.monotonic()
            chosen = tuned(system, algorithm, BUSIEST)
            predicted = predict_capacity(chosen, [algorithm])
            found = simulated(chosen, algorithm, budget.job(), workers)
            seconds, runs = time.monotonic() - start, found.info.parameters["runs"]
            print(f"\n{name}, {algorithm}: {runs} runs of 40 s, {seconds:.0f} s")
            for warning in found.info.warnings:
                print(f"  {warning}")
            print_head()
            for metric, scope, details in METRICS:
                result = errors(predicted, found, metric, scope, details)
                if len(result.error):
                    pooled.setdefault((metric, scope, details[0]), []).append(result)
                    mark = " *" if result.significant else ""
                    print(f"  {label(metric, scope, details):42} {result.text}{mark}", flush=True)
            for kind, result in by_feed(chosen, predicted, found).items():
                fed.setdefault(kind, []).append(result)
    print("\nAll networks and algorithms")
    print_head()
    for (metric, scope, detail), results in pooled.items():
        both = joined(results)
        print(f"  {label(metric, scope, (detail,)):42} {both.text}{' *' if both.significant else ''}")
    print("  * off by more than chance explains")
    print("\nWaiting times in the network, by what feeds the queue")
    print_head()
    for kind, results in fed.items():
        print(f"  {kind:42} {joined(results).text}")


def joined(results: list[Errors]) -> Errors:
    return Errors(np.concatenate([r.error for r in results]), np.concatenate([r.half for r in results]))


def by_feed(system: System, predicted: QoSReport, found: QoSReport) -> dict[str, Errors]:
    """Errors of waiting times of links and routers, by where their messages come from.

    A broker sends the copies of a message at one moment: where they share a queue, they come in batches. A queue behind
    another one gets a stream that the first one has smoothed. Neither is a Poisson stream.
    """
    plan = make_plan(system)
    kinds: dict[tuple[str, str], str] = {}
    for at, queue in enumerate(plan.queues):
        using = [link for link, stages in enumerate(plan.stages) if any(passed == at for passed, _ in stages)]
        senders = [plan.tail[link] for link in using]
        if len(set(senders)) < len(senders):
            kind = "several copies from one broker"
        elif all(plan.stages[link][0][0] != at for link in using):
            kind = "only behind other queues"
        else:
            kind = "straight from a broker, single"
        if queue.part is not None:
            kinds[queue.scope, queue.name] = kind
    result = {}
    for kind in sorted(set(kinds.values())):
        parts = []
        for scope in ("physical_link", "router"):
            names = {name for (where, name), own in kinds.items() if where == scope and own == kind}
            parts.append(errors(predicted, found, "waiting_mean_s", scope, ("",), names))
        result[kind] = joined(parts)
    return result


def print_head() -> None:
    print(f"  {'':42} {'mean |e|':>8} {'max |e|':>8} {'bias':>8} {'half-width':>10} {'inside':>7} {'n':>5}")


def label(metric: str, scope: str, details: tuple[str, ...]) -> str:
    detail = f" {details[0]}" if len(details) == 1 and details[0] else ""
    return f"{metric}{detail}, {scope}"


def raised(system: System, algorithm: str) -> Iterator[tuple[float, System]]:
    """The system under more and more load, up to a busiest broker of 0.95."""
    for wanted in (0.5, 0.7, 0.8, 0.9, 0.95):
        low, high = 0.01, 100.0
        for _ in range(16):
            factor = (low * high) ** 0.5
            more = max(busy(predict_capacity(with_load(system, factor), [algorithm])).values())
            low, high = (factor, high) if more < wanted else (low, factor)
        yield wanted, with_load(system, low)


def raise_load(networks: dict[str, str], minutes: float, workers: int) -> None:
    """Part 2: more load. The links are fast, so that the brokers are what is busy."""
    chosen = ("flooding", "peer-to-peer covering", "hierarchical merging")
    name, network = list(networks.items())[-1]
    budget = Budget(minutes, 5 * len(chosen))
    print(f"\nMore load, {name}: error of the mean waiting time over messages, and of delays")
    for algorithm in chosen:
        system = tuned(scenario(name, network, active=800), algorithm, {"broker": 0.5, "physical_link": 0.1})
        drift = None
        for wanted, loaded in raised(system, algorithm):
            predicted = predict_capacity(loaded, [algorithm])
            found = simulated(loaded, algorithm, budget.job(), workers)
            waiting = errors(predicted, found, "waiting_mean_s", "broker", ("",))
            busiest = busiest_broker(predicted, found)
            delay = errors(predicted, found, "delay_mean_s", "system", ("",))
            print(
                f"  {algorithm:24} busiest {wanted:.2f}: its waiting {busiest}; all brokers {waiting.text.strip()}; "
                f"delay {delay.text.strip()}",
                flush=True,
            )
            beyond_chance = len(waiting.error) and abs(waiting.error.mean()) > max(0.05, waiting.half.mean())
            if drift is None and beyond_chance:
                drift = wanted
        print(f"  {algorithm:24} waiting times drift by more than 5 %: {'from ' + str(drift) if drift else 'nowhere'}")


def busiest_broker(predicted: QoSReport, found: QoSReport) -> str:
    """The error of the waiting time at the busiest broker, with its half-width."""
    name = max(predicted.figures(metric="utilisation", scope="broker"), key=lambda figure: figure.value).name
    figures = found.figures(metric="waiting_mean_s", scope="broker", name=name)
    if not figures or figures[0].low is None or figures[0].high is None:
        return "-"
    figure = figures[0]
    ours = predicted.value("waiting_mean_s", scope="broker", name=name)
    return f"{ours / figure.value - 1:+.1%} (half-width {(figures[0].high - figures[0].low) / 2 / figure.value:.1%})"


def few_classes(networks: dict[str, str], minutes: float, workers: int) -> None:
    """Part 3: the fewer classes, the more the traffic follows the set of active subscriptions (models, item 18)."""
    name, network = list(networks.items())[-1]
    algorithm = "peer-to-peer covering"
    counts = (2, 5, 20, 100)
    budget = Budget(minutes, len(counts))
    print(f"\nFew classes, {name}, {algorithm}: 2 active subscriptions per class, busiest broker 0.6")
    for classes in counts:
        system = scenario(name, network, classes=classes, active=2 * classes, publications=200)
        system = tuned(system, algorithm, {"broker": 0.6, "physical_link": 0.1})
        predicted = predict_capacity(system, [algorithm])
        found = simulated(system, algorithm, budget.job(), workers, run_s=20.0)
        waiting = errors(predicted, found, "waiting_mean_s", "broker", ("",))
        averaged = ""
        if predicted.figures(metric="waiting_averaged_s"):
            ours = {figure.name: figure for figure in predicted.figures(metric="waiting_averaged_s")}
            error = [
                ours[figure.name].value / figure.value - 1
                for figure in found.figures(metric="waiting_mean_s", scope="broker")
                if figure.name in ours
            ]
            averaged = f"; averaged over subscriptions {np.mean(error):+.1%}"
        warned = any("underestimated" in warning for warning in predicted.info.warnings)
        print(
            f"  {classes:4d} classes: busiest {busiest_broker(predicted, found)}; all brokers {waiting.text.strip()}"
            f"{averaged}; {'the report warns' if warned else 'no warning'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
