"""The models that come with Surecast. Each imports its formulas and its simulation only when it answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from surecast.errors import AssumptionError, SaturationError
from surecast.models.question import Question
from surecast.models.simulation_extent import SimulationPlan
from surecast.report import QoSReport, ReportBuilder

if TYPE_CHECKING:
    from surecast.scenario.mechanism import Mechanism
    from surecast.scenario.system import System

__all__ = ["BUILT_IN", "Model", "joined"]

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)
CODED_EVENTS_MIN, CODED_EVENTS_MAX, CODED_OBJECT_EVENTS = 200, 100_000, 100
"""Events as packets: at least and at most so many for a scheme, and so many where the protocol's own objects run."""


@dataclass(frozen=True)
class Model:
    """One row of the table: when a model applies to a question, how it predicts, and how it simulates.

    Both may return None where they have nothing to say; a model without `simulate` only predicts.
    """

    name: str
    applies: Callable[[Question], bool]
    predict: Callable[[Question], QoSReport | None]
    simulate: Callable[[Question, SimulationPlan], QoSReport | None] | None = None


def joined(reports: Sequence[QoSReport], name: str, source: str, seed: int, warnings: Sequence[str] = ()) -> QoSReport:
    """Returns one report with the figures of all."""
    if len(reports) == 1 and not warnings:
        return reports[0]
    parameters = {key: value for report in reports for key, value in report.info.parameters.items()}
    builder = ReportBuilder(name, source, seed=seed, parameters=parameters, warnings=warnings)
    for report in reports:
        builder.add_report(report)
    return builder.build()


def _predict_composed(question: Question) -> QoSReport:
    from surecast.prediction.composed import predict_composed

    besides = _beside_topics(question.system)
    return predict_composed(question.system, quantiles=QUANTILES, factors=False, besides=besides)


def _beside_topics(system: System) -> Mapping[str, tuple[float, float]]:
    """The load of brokers and links by filter classes, which the events of topics find there."""
    if system.class_workload is None:
        return {}
    from surecast.prediction.capacity.class_overload import class_loads

    return class_loads(system, system.class_workload)


def _simulate_composed(question: Question, plan: SimulationPlan) -> QoSReport:
    """All parts in one simulation, with the dropping mechanisms that the formulas find."""
    from surecast.prediction.composed import composed_mechanisms
    from surecast.simulation.composed import simulate_composed

    mechanisms, besides = composed_mechanisms(question.system), _beside_topics(question.system)
    return simulate_composed(
        question.system, mechanisms=mechanisms, quantiles=QUANTILES, besides=besides, **_extent(plan)
    )


def _predict_coding(question: Question) -> QoSReport:
    from surecast.prediction import predict_coding

    return predict_coding(_part(question.as_packets), question.packet_schemes)


def _simulate_coding(question: Question, plan: SimulationPlan) -> QoSReport:
    """Events as packets: as many as shares to one percent need, and no more than the experiment has."""
    from surecast.simulation.coding import simulate_coding

    system, schemes = _part(question.as_packets), question.packet_schemes
    rate_per_s = math.fsum(publisher.rate_per_s for publisher in system.publishers)
    planned = max(CODED_EVENTS_MIN, min(round(plan.runs * plan.duration_s * rate_per_s), CODED_EVENTS_MAX))
    if plan.method == "protocol":
        events = min(planned, CODED_OBJECT_EVENTS)
        return simulate_coding(system, schemes, events=events, seed=plan.seed, how="objects", progress=plan.progress)
    return simulate_coding(
        system,
        schemes,
        events=min(planned, CODED_EVENTS_MIN),
        half_width=0.01,
        events_max=planned,
        seed=plan.seed,
        progress=plan.progress,
    )


def _predict_reliability(question: Question) -> QoSReport:
    from surecast.prediction import predict_reliability

    return predict_reliability(_part(question.failing), question.schemes, load=question.system)


def _simulate_reliability(question: Question, plan: SimulationPlan) -> QoSReport:
    system, schemes = _part(question.failing), question.schemes
    if plan.method == "protocol":
        from surecast.simulation import simulate_protocol

        return simulate_protocol(system, schemes, **_extent(plan))
    if system.delivery.replication.replicas > 1:
        from surecast.simulation.replication import simulate_group_reliability

        return simulate_group_reliability(system, schemes, **_extent(plan))
    from surecast.simulation import simulate_reliability

    return simulate_reliability(system, schemes, **_extent(plan))


def _predict_dropping(question: Question) -> QoSReport:
    from surecast.prediction import predict_dropping

    report = predict_dropping(_part(question.coming), question.policies, quantiles=QUANTILES)
    return _beside_schemes(report) if _has_schemes(question) else report


def _simulate_dropping(question: Question, plan: SimulationPlan) -> QoSReport:
    """The queues of the subscribers that come and go.

    Where dropping cannot be simulated, as over several brokers, and no policy is asked for, a warning says so beside
    what remains.
    """
    try:
        report = _simulate_queues(_part(question.coming), question.policies, plan)
    except AssumptionError as refusal:
        if question.policies:
            raise
        if not _has_schemes(question):
            raise AssumptionError(
                f"{refusal}; or name schemes (`schemes`) to simulate failures, with every subscriber connected"
            ) from None
        warning = f"subscribers that come and go are not simulated: {refusal}"
        return joined([], question.system.name, "simulated", plan.seed, [warning])
    return _beside_schemes(report) if _has_schemes(question) else report


def _simulate_queues(system: System, policies: Sequence[str] | None, plan: SimulationPlan) -> QoSReport:
    """Simulates with the mechanisms that the formulas find; who cannot be served by a policy is left out of it."""
    from surecast.simulation import simulate_dropping

    coming = tuple(s for s in system.subscribers if s.connectivity is not None and system.publishers_of(s))
    alone = replace(system, subscribers=coming)
    groups: dict[tuple[str, ...], dict[str, Mapping[str, Mechanism]]] = {}
    refusals: list[AssumptionError] = []
    for policy in policies or [system.delivery.dropping.policy]:
        mechanisms, refused = _mechanisms(alone, policy)
        refusals += refused
        if mechanisms:
            groups.setdefault(tuple(mechanisms), {})[policy] = mechanisms
    if not groups:
        raise refusals[0]
    reports = [
        simulate_dropping(
            replace(alone, subscribers=tuple(s for s in coming if s.name in names)),
            mechanisms=by_policy,
            quantiles=QUANTILES,
            **_extent(plan),
        )
        for names, by_policy in groups.items()
    ]
    return joined(reports, system.name, "simulated", plan.seed, [str(refusal) for refusal in refusals])


def _mechanisms(system: System, policy: str) -> tuple[Mapping[str, Mechanism], list[AssumptionError]]:
    """The mechanisms of all subscribers, or of those that the policy can serve and the reasons why not the others."""
    from surecast.prediction import find_mechanisms

    try:
        return find_mechanisms(system, policy), []
    except AssumptionError:
        served: dict[str, Mechanism] = {}
        refused = []
        for subscriber in system.subscribers:
            try:
                served.update(find_mechanisms(replace(system, subscribers=(subscriber,)), policy))
            except AssumptionError as refusal:
                kind = SaturationError if isinstance(refusal, SaturationError) else AssumptionError
                refused.append(kind(f"{policy}: {refusal}"))
        return served, refused


def _has_schemes(question: Question) -> bool:
    """There are figures of schemes beside those of dropping policies."""
    return question.as_packets is not None or question.failing is not None


def _beside_schemes(report: QoSReport) -> QoSReport:
    """Returns the report of policies with another name for none, as one of the schemes is called so too."""
    if "none" not in report.variants:
        return report
    info = report.info
    builder = ReportBuilder(info.scenario, info.source, seed=info.seed, parameters=info.parameters)
    for variant in report.variants:
        builder.add_report(report.select(variant=variant), variant="no dropping" if variant == "none" else variant)
    return builder.build()


def _predict_capacity(question: Question) -> QoSReport:
    from surecast.prediction import predict_capacity, predict_periods

    system, algorithms = question.system, question.algorithms
    periods = system.class_workload.periods if system.class_workload is not None else ()
    return predict_periods(system, periods, algorithms) if periods else predict_capacity(system, algorithms)


def _simulate_capacity(question: Question, plan: SimulationPlan) -> QoSReport:
    from surecast.simulation.capacity import simulate_routing

    return simulate_routing(question.system, question.algorithms, **_extent(plan))


def _predict_groups(question: Question) -> QoSReport:
    from surecast.prediction.replication import predict_replication

    return predict_replication(question.system)


def _simulate_groups(question: Question, plan: SimulationPlan) -> QoSReport | None:
    """Runs the consensus code; a composed simulation has the groups in it already."""
    from surecast.simulation.replication import simulate_replication

    if question.is_composed:
        return None
    extent = {name: value for name, value in _extent(plan).items() if name != "warm_up_s"}
    return simulate_replication(question.system, **extent)


def _part(system: System | None) -> System:
    """The part of a system that a model applies to."""
    assert system is not None, "the model does not apply"
    return system


def _extent(plan: SimulationPlan) -> dict[str, Any]:
    return {
        "runs": plan.runs,
        "duration_s": plan.duration_s,
        "seed": plan.seed,
        "warm_up_s": plan.warm_up_s,
        "workers": plan.workers,
        "progress": plan.progress,
    }


BUILT_IN: Final = (
    Model("composed", lambda question: question.is_composed, _predict_composed, _simulate_composed),
    Model("coding", lambda question: question.as_packets is not None, _predict_coding, _simulate_coding),
    Model("reliability", lambda question: question.failing is not None, _predict_reliability, _simulate_reliability),
    Model("dropping", lambda question: question.coming is not None, _predict_dropping, _simulate_dropping),
    Model("capacity", lambda question: question.has_classes, _predict_capacity, _simulate_capacity),
    Model("replication", lambda question: question.has_groups, _predict_groups, _simulate_groups),
)
"""In the order of their figures in a report. Figures of several parts of a system stand side by side."""
