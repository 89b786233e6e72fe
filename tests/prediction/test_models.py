"""Prediction models of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from surecast.cli.answers import predict_system
from surecast.errors import ConfigurationError
from surecast.prediction import MODELS, register_model, unregister_model
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario import System, load_system


def test_the_figures_of_a_registered_model_stand_beside_the_others(repository: Path) -> None:
    _, system = load_system(repository / "examples" / "dropping.yaml")

    def model(system: System) -> QoSReport:
        builder = ReportBuilder(system.name, "predicted")
        builder.add("subscriber", "subscriber", "response_mean_s", 42.0, how="exact", variant="mine")
        return builder.build()

    register_model("mine", model)
    register_model("silent", lambda system: None)
    try:
        report = predict_system(system, None)
    finally:
        unregister_model("mine")
        unregister_model("silent")
    assert report.value("response_mean_s", name="subscriber", variant="mine") == 42.0
    assert "probabilistic" in report.variants
    assert not MODELS


def test_a_model_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="needs a name"):
        register_model("", lambda system: None)
