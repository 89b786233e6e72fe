"""Models of one's own in the table, beside those that come with Surecast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from surecast import QoSReport, Scenario, System, predict, simulate
from surecast.errors import ConfigurationError
from surecast.models import MODELS, SimulationPlan, register_model, unregister_model
from surecast.report import ReportBuilder


@pytest.fixture
def dropping(repository: Path) -> Iterator[Scenario]:
    """A scenario; the table is as before afterwards."""
    before = dict(MODELS)
    yield Scenario.load(repository / "examples" / "dropping.yaml")
    for name in MODELS.keys() - before.keys():
        unregister_model(name)
    assert before == MODELS


def report_of(system: System, source: str, value: float) -> QoSReport:
    builder = ReportBuilder(system.name, source)
    builder.add("subscriber", "subscriber", "response_mean_s", value, how="measured", variant="mine")
    return builder.build()


def test_the_figures_of_a_registered_model_stand_beside_the_others(dropping: Scenario) -> None:
    register_model("mine", lambda system: report_of(system, "predicted", 42.0))
    register_model("silent", lambda system: None)
    report = predict(dropping)
    assert report.value("response_mean_s", name="subscriber", variant="mine") == 42.0
    assert "composed" in report.variants
    assert "mine" not in simulate(dropping, runs=2, duration="10min").variants


def test_a_registered_model_may_simulate_too(dropping: Scenario) -> None:
    plans: list[SimulationPlan] = []

    def simulation(system: System, plan: SimulationPlan) -> QoSReport:
        plans.append(plan)
        return report_of(system, "simulated", 43.0)

    register_model("mine", lambda system: None, simulation)
    report = simulate(dropping, runs=3, duration="10min", seed=9)
    assert report.value("response_mean_s", name="subscriber", variant="mine") == 43.0
    assert (plans[0].runs, plans[0].duration_s, plans[0].seed) == (3, 600.0, 9)


def test_a_model_needs_a_name_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match="needs a name"):
        register_model("", lambda system: None)
    with pytest.raises(ConfigurationError, match="cannot be called 'reliability'; choose another name"):
        register_model("reliability", lambda system: None)
    unregister_model("reliability")
    assert "reliability" in MODELS
