"""Broker deployment: which overlay links or brokers to add, and where, so that every target is met at least cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from surecast.errors import AssumptionError
from surecast.planning.reliability_advice import current_scheme
from surecast.prediction.reliability import subscriber_reliabilities
from surecast.scenario import Broker, Failures, OverlayLink, System, parse_distribution

__all__ = ["Addition", "Deployment", "plan_deployment"]

Progress = Callable[[int, int], None]
BYPASS = ("bypass", "bypass-buffering")
EXHAUSTIVE_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Addition:
    """Something to add: a link between two brokers, or a new broker linked to two."""

    kind: str
    between: tuple[str, str]
    cost: float

    def __str__(self) -> str:
        kind = "a link between" if self.kind == "link" else "a broker linked to"
        return f"{kind} {self.between[0]} and {self.between[1]}"


@dataclass(frozen=True)
class Deployment:
    """Additions in the order they were chosen, with the subscribers below target and the mean after each.

    `optimal` says that no cheaper set of additions meets all targets, by exhaustive search; False that this was not
    shown. `met` is False where no addition helps any more.
    """

    additions: tuple[Addition, ...]
    below_target: tuple[int, ...]
    mean: tuple[float, ...]
    met: bool
    optimal: bool

    @property
    def cost(self) -> float:
        return sum(addition.cost for addition in self.additions)


def plan_deployment(
    system: System,
    *,
    link_cost: float = 1.0,
    broker_cost: float | None = None,
    most: int = 5,
    progress: Progress | None = None,
) -> Deployment:
    """Adds links (and brokers, where they have a cost) until every subscriber meets its target, at least cost.

    New parts fail like the average of the existing ones. Topic trees stay as they are: new parts serve detours, so
    this helps the bypass schemes only. The choice is greedy by shortfall removed per cost; where all sets of smaller
    cost can be tried, they are, and the answer is the optimum.
    """
    scheme = current_scheme(system)
    if scheme not in BYPASS:
        raise AssumptionError(
            f"with {scheme} events keep to their tree, so new links change nothing; "
            "choose bypass or bypass-buffering (--set delivery.fault_tolerance.scheme=bypass)"
        )
    if not any(s.reliability_target is not None for s in system.subscribers):
        raise AssumptionError("no subscriber has a reliability target; set targets.reliability or reliability_target")
    options = list(_options(system, link_cost, broker_cost))
    greedy = _greedy(system, scheme, options, most, progress)
    cheaper = _cheaper_sets(options, greedy, most)
    if cheaper is None:
        return greedy
    for done, chosen in enumerate(cheaper):
        if progress is not None:
            progress(done, len(cheaper))
        changed = _with_all(system, chosen)
        if _shortfall(changed, scheme)[0] == 0:
            return replace(_record(system, scheme, list(chosen)), optimal=True)
    return replace(greedy, optimal=greedy.met)


def _options(system: System, link_cost: float, broker_cost: float | None) -> Iterable[Addition]:
    names = [broker.name for broker in system.overlay.brokers]
    for a, b in itertools.combinations(range(len(names)), 2):
        if not system.overlay.graph.has_edge(a, b):
            yield Addition("link", (names[a], names[b]), link_cost)
        if broker_cost is not None:
            yield Addition("broker", (names[a], names[b]), broker_cost)


def _greedy(system: System, scheme: str, options: list[Addition], most: int, progress: Progress | None) -> Deployment:
    chosen: list[Addition] = []
    current = system
    missing = _shortfall(current, scheme)
    while missing[0] and len(chosen) < most:
        scored = []
        for i, option in enumerate(o for o in options if o not in chosen):
            if progress is not None:
                progress(len(chosen) * len(options) + i, most * len(options))
            after = _shortfall(_with_all(current, [option]), scheme)
            scored.append(((missing[1] - after[1]) / option.cost, i, option, after))
        best = max(scored, key=lambda s: (s[0], -s[1]), default=None)
        if best is None or best[0] <= 1e-12:
            break
        chosen.append(best[2])
        current = _with_all(current, [best[2]])
        missing = best[3]
    return _record(system, scheme, chosen)


def _cheaper_sets(options: list[Addition], greedy: Deployment, most: int) -> list[tuple[Addition, ...]] | None:
    """Returns all sets of additions that cost less than the greedy answer, the cheapest first; None where they are too
    many."""
    limit = greedy.cost if greedy.met else float("inf")
    sets: list[tuple[Addition, ...]] = []
    for size in range(1, most + 1):
        if len(options) ** size > 50 * EXHAUSTIVE_LIMIT:
            cheapest_left = size * min((o.cost for o in options), default=0.0)
            if cheapest_left < limit:
                return None
            break
        sets += [s for s in itertools.combinations(options, size) if sum(o.cost for o in s) < limit - 1e-9]
        if len(sets) > EXHAUSTIVE_LIMIT:
            return None
    return sorted(sets, key=lambda s: sum(o.cost for o in s))


def _shortfall(system: System, scheme: str) -> tuple[int, float, float]:
    """Returns how many subscribers are below target, their total shortfall, and the mean reliability."""
    values = subscriber_reliabilities(system, scheme)
    gaps = [
        s.reliability_target - values[s.name]
        for s in system.subscribers
        if s.reliability_target is not None and s.name in values
    ]
    below = [gap for gap in gaps if gap > 0]
    return len(below), sum(below), sum(values.values()) / max(1, len(values))


def _record(system: System, scheme: str, chosen: list[Addition]) -> Deployment:
    states = [_shortfall(_with_all(system, chosen[:k]), scheme) for k in range(len(chosen) + 1)]
    below, mean = tuple(s[0] for s in states), tuple(s[2] for s in states)
    return Deployment(tuple(chosen), below, mean, below[-1] == 0, optimal=not chosen and below[-1] == 0)


def _with_all(system: System, additions: Iterable[Addition]) -> System:
    overlay = system.overlay
    brokers, links, trees = list(overlay.brokers), list(overlay.links), dict(overlay.trees)
    typical_link = _typical([link.failures for link in links])
    typical_broker = _typical([broker.failures for broker in brokers])
    for addition in additions:
        a, b = (overlay.index[name] for name in addition.between)
        if addition.kind == "link":
            links.append(OverlayLink("--".join(addition.between), a, b, failures=typical_link))
            continue
        new = len(brokers)
        name = f"new-{new}"
        brokers.append(Broker(name, brokers[a].router, failures=typical_broker))
        links.append(OverlayLink(f"{name}--{addition.between[0]}", new, a, failures=typical_link))
        links.append(OverlayLink(f"{name}--{addition.between[1]}", new, b, failures=typical_link))
        trees = {topic: (*tree, len(links) - 2) for topic, tree in trees.items()}
    return replace(system, overlay=replace(overlay, brokers=tuple(brokers), links=tuple(links), trees=trees))


def _typical(all_failures: list[Failures | None]) -> Failures | None:
    """Returns failures with the mean time up and the mean time down of all components that fail; None where nothing
    fails."""
    failing = [failures for failures in all_failures if failures is not None]
    if not failing:
        return None
    exponential = parse_distribution("exponential")
    up_s = sum(f.mtbf_s for f in failing) / len(failing)
    down_s = sum(f.mttr_s for f in failing) / len(failing)
    return Failures(exponential.with_mean(up_s), exponential.with_mean(down_s))
