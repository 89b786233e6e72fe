"""Routing algorithms of one's own in the formulas."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.capacity import RoutingLaw, predict_capacity, register_routing, unregister_routing
from surecast.prediction.capacity.filter_probabilities import (
    notification_probability,
    remote_entries,
    subscription_probability,
)
from surecast.scenario import System, build, parse_text
from surecast.simulation.capacity.routing_plan import check_algorithms


def system(filters: str = "") -> System:
    return build(
        parse_text(f"""
surecast: 1
name: row
overlay: {{brokers: [{{name: a, capacity: 400/s}}, {{name: b, capacity: 400/s}}], links: [[a, b]]}}
workload:
  classes: [{{name: k, count: 3}}]
  clients: [{{name: u, home: a}}, {{name: v, home: b}}]
  subscriptions: {{active: 30, lifetime: 60s}}
  publications: 20/s
{filters}""")
    )


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_routing(
        "twin",
        RoutingLaw(
            lambda x: notification_probability("identity", x),
            lambda x: subscription_probability("identity", x),
            lambda x: remote_entries("identity", x),
        ),
    )
    yield
    unregister_routing("twin")


@pytest.mark.parametrize("scheme", ["peer-to-peer", "hierarchical"])
def test_an_algorithm_with_the_laws_of_another_has_its_figures(scheme: str) -> None:
    report = predict_capacity(system(), [f"{scheme} identity", f"{scheme} twin"])
    for figure in report.figures(variant=f"{scheme} identity"):
        twin = report.value(
            figure.metric, scope=figure.scope, name=figure.name, detail=figure.detail, variant=f"{scheme} twin"
        )
        if "waiting" in figure.metric or figure.metric == "delay_mean_s":
            assert twin >= figure.value * (1 - 1e-9), "of a registered algorithm the variance is an upper bound"
        else:
            assert twin == pytest.approx(figure.value)


def test_measured_filters_are_refused() -> None:
    measured = "  filters: [{name: price, value: {edges: [0, 1, 5], weights: [1, 3]}, interval: {ends: values}}]\n"
    with pytest.raises(AssumptionError, match="'twin' is known for uniform filters only"):
        predict_capacity(system(measured), ["peer-to-peer twin"])


@pytest.mark.parametrize("name", ["flooding", "covering", "two words", ""])
def test_names_that_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="take another word"):
        register_routing(name, RoutingLaw(np.ones_like, np.ones_like, np.ones_like))


def test_what_is_not_registered_is_not_known() -> None:
    unregister_routing("twin")
    with pytest.raises(ConfigurationError, match="there is no algorithm 'peer-to-peer twin'"):
        predict_capacity(system(), ["peer-to-peer twin"])
    with pytest.raises(ConfigurationError, match="there is no algorithm 'peer-to-peer twin'"):
        check_algorithms(["peer-to-peer twin"])
