"""Refuses filter classes that overload a component under every routing algorithm that is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from surecast.errors import SaturationError
from surecast.prediction.capacity.capacity_figures import queue_name
from surecast.prediction.capacity.capacity_model import ALGORITHMS, capacity_model
from surecast.prediction.capacity.unpredicted import unpredicted_fields
from surecast.scenario.saturation import event_loads
from surecast.scenario.system import ClassWorkload, System

__all__ = ["class_loads", "refuse_overloaded_classes"]


def class_loads(system: System, workload: ClassWorkload) -> dict[str, tuple[float, float]]:
    """Returns the load of brokers and physical queues by filter classes alone, by name: the utilisation, and the rate
    times the second moment of the service time.

    The routing is that of the scenario, or flooding, which brings most, where it has none. Routing that has no formulas
    brings nothing.
    """
    if unpredicted_fields(system):
        return {}
    model = capacity_model(replace(system, publishers=(), class_workload=workload))
    loads = model.loads(model.flows(_own_algorithm(system) or "flooding"))
    return {
        queue_name(system, model, i): (float(loads.utilisation[i]), float(loads.squares[i]))
        for i in range(len(loads.utilisation))
        if loads.utilisation[i] > 0.0
    }


def _own_algorithm(system: System) -> str:
    own = system.delivery.routing
    if own is None:
        return ""
    return "flooding" if own.algorithm == "flooding" else f"{own.scheme} {own.algorithm}"


def refuse_overloaded_classes(system: System, workload: ClassWorkload, algorithms: Sequence[str] | None = None) -> None:
    """Refuses classes that the scenario's own routing, or each of the algorithms, cannot carry. Of routing without
    formulas the load is not known beforehand."""
    if unpredicted_fields(system):
        return
    chosen = list(ALGORITHMS if algorithms is None else algorithms)
    own = _own_algorithm(system)
    if own and algorithms is None:
        chosen = [own]
    refusals = [refusal for name in chosen if (refusal := _class_refusal(system, workload, name))]
    if len(refusals) == len(chosen):
        raise refusals[0]


def _class_refusal(system: System, workload: ClassWorkload, algorithm: str) -> SaturationError | None:
    """Returns why an algorithm cannot carry the filter classes beside the events of topics; None where it can."""
    besides = {load.component: load.utilisation for load in event_loads(system)}
    for period in workload.periods or (None,):
        rates = (workload.publication_rate_per_s, workload.subscription_rate_per_s)
        if period is not None:
            rates = (rates[0] * period.publications[:, None], rates[1] * period.subscriptions[:, None])
        during = replace(workload, publication_rate_per_s=rates[0], subscription_rate_per_s=rates[1])
        model = capacity_model(replace(system, class_workload=during))
        loads = model.loads(model.flows(algorithm))
        for i in (-loads.utilisation).argsort(kind="stable").tolist():
            name, total = queue_name(system, model, i), float(loads.utilisation[i])
            own = total - besides.get(name, 0.0)
            if total >= 1.0:
                when = "" if period is None else f" in period {period.name}"
                parts = f", {own:.4g} by filter classes and the rest by topics" if total > own + 1e-12 else ""
                return SaturationError(
                    f"{name} is overloaded{when} under {algorithm}: its utilisation would be {total:.4g}{parts}; there "
                    f"is no steady state to answer for: give it more than {total:.4g} times its capacity, or publish "
                    f"and subscribe less than {1.0 / total:.4g} of this"
                )
    return None
