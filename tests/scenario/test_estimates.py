"""Values that are written as estimates with an interval: the system has the estimate, and draws have the interval."""

from __future__ import annotations

import math

import pytest

from surecast import Scenario
from surecast.errors import ScenarioError
from surecast.scenario import parse_text, scenario_schema

TEXT = """
surecast: 1
name: known badly
overlay: {brokers: [{name: a, capacity: 40/s}, {name: b}], links: [{between: [a, b], loss: 0.1}]}
availability: {each: {a: {mtbf: MTBF, mttr: 1h}}}
workload:
  topics: [t]
  publishers: [{name: p, home: a, topics: [t], rate: 10/s}]
  subscribers: [{name: s, home: b, topics: [t]}]
"""
MTBF = "{estimate: 30h, low: 20h, high: 45h}"


def scenario(mtbf: str = MTBF) -> Scenario:
    return parse_text(TEXT.replace("MTBF", mtbf))


def mtbf_of(system: object) -> float:
    return float(system.overlay.brokers[0].failures.mtbf_s)  # type: ignore[attr-defined]


def test_a_system_has_the_estimate_and_a_draw_the_interval() -> None:
    found = scenario()
    assert mtbf_of(found.system) == mtbf_of(scenario("30h").system) == 30 * 3600
    assert mtbf_of(found.drawn([1.959963984540054])) == pytest.approx(45 * 3600)
    assert mtbf_of(found.drawn([-1.959963984540054])) == pytest.approx(20 * 3600)
    assert mtbf_of(found.drawn([0.0])) == pytest.approx(30 * 3600)


def test_an_estimate_survives_a_file_and_a_change() -> None:
    found = scenario()
    again = parse_text(found.to_yaml())
    assert again == found
    assert again.estimates == found.estimates
    assert found != scenario("30h")
    changed = found.change({"workload.publishers[0].rate": "{estimate: 10/s, low: 9/s, high: 12/s}"})
    assert [each.field for each in changed.estimates] == ["availability.each.a.mtbf", "workload.publishers[0].rate"]
    assert found.change({"availability.each.a.mtbf": "9h"}).estimates == ()


def test_the_odds_of_a_share_are_drawn() -> None:
    found = scenario("9h").change({"overlay.links[0].loss": "{estimate: 0.1, low: 5%, high: 0.2}"})
    for deviation, share in ((-1.959963984540054, 0.05), (0.0, 0.1), (1.959963984540054, 0.2)):
        assert found.drawn([deviation]).overlay.links[0].loss == pytest.approx(share)
    assert 0.2 < found.drawn([30.0]).overlay.links[0].loss <= 1.0


@pytest.mark.parametrize(
    ("written", "field", "words"),
    [
        ("{estimate: 30h, low: 20h}", "mtbf.high", "is missing"),
        ("{estimate: 30h, low: 20h, high: 45h, mean: 3h}", "mtbf.mean", "is no part of it"),
        ("{estimate: 30h, low: 40h, high: 45h}", "mtbf", "outside its interval"),
        ("{estimate: 30h, low: 20/s, high: 45h}", "mtbf", "different units"),
        ("{estimate: 30h, low: 0h, high: 45h}", "mtbf.low", "no number above 0"),
        ("{estimate: 30h, low: 20h, high: many}", "mtbf.high", "no number above 0"),
        ("{estimate: 3/h, low: 2/h, high: 4/h}", "mtbf", "is not a duration"),
    ],
)
def test_a_wrong_estimate_is_refused_with_its_field_and_line(written: str, field: str, words: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        scenario(written)
    (problem,) = refusal.value.problems
    assert problem.field == f"availability.each.a.{field}"
    assert problem.line == 5
    assert words in problem.message


def test_the_schema_allows_an_estimate_for_each_quantity() -> None:
    definitions = scenario_schema()["$defs"]
    rate = definitions["PublisherSpec"]["properties"]["rate"]
    assert {"$ref": "#/$defs/Estimate"} in rate["anyOf"][0].get("anyOf", rate["anyOf"])
    assert set(definitions["Estimate"]["required"]) == {"estimate", "low", "high"}


def test_an_interval_that_is_wide_above_is_wide_above_in_draws() -> None:
    (estimate,) = scenario("{estimate: 30h, low: 29h, high: 300h}").estimates
    hours = [float(str(estimate.at(deviation)).removesuffix("s")) / 3600 for deviation in (-1.0, 1.0)]
    assert math.log(30 / hours[0]) < 0.05
    assert math.log(hours[1] / 30) > 1.0
