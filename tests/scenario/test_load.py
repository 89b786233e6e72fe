"""One object from a file to an answer: `Scenario.load`, its system, and changes by the names of fields."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from surecast import Scenario
from surecast.errors import ScenarioError
from surecast.scenario import build, load_system, parse_text

TEXT = """
surecast: 1
name: pair
overlay: {brokers: [{name: b, count: 2, capacity: [5/s, 9/s]}], links: {build: chain}}
workload:
  topics: [t]
  publishers: [{name: p, topics: [t], rate: 1/s}]
  subscribers: [{name: s, topics: [t]}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pair.yaml"
    path.write_text(TEXT)
    return path


def test_a_scenario_knows_its_system(file: Path) -> None:
    scenario = Scenario.load(file)
    assert scenario.system is scenario.system
    assert scenario.system == build(scenario)
    assert load_system(file) == (scenario, scenario.system)
    assert pickle.loads(pickle.dumps(scenario)).system == scenario.system
    assert parse_text(TEXT).system == scenario.system


def test_settings_are_text_as_in_a_file_or_values(file: Path) -> None:
    settings = {
        "seed": 7,
        "overlay.brokers[0].count": "3",
        "workload.publishers[0]": {"name": "q", "topics": ["t"], "rate": "2/s"},
    }
    scenario = Scenario.load(file, settings)
    assert (scenario.seed, len(scenario.system.overlay.brokers)) == (7, 3)
    assert scenario.system.publishers[0].rate_per_s == 2.0
    assert Scenario.load(file).change(settings) == scenario
    assert Scenario.load(file) == parse_text(TEXT)
    assert Scenario.load(file) != scenario
    assert Scenario.load(file) != "pair"


def test_a_change_leaves_the_scenario_as_it_was(file: Path) -> None:
    scenario = Scenario.load(file)
    changed = scenario.change({"overlay.brokers[0].count": 5})
    assert [len(each.system.overlay.brokers) for each in (scenario, changed)] == [2, 5]
    again = changed.change({"seed": 2})
    assert (again.seed, len(again.system.overlay.brokers)) == (2, 5)


def test_a_copy_means_a_system_of_its_own(file: Path) -> None:
    scenario = Scenario.load(file)
    before = scenario.system
    copied = scenario.model_copy(update={"seed": 99})
    assert copied.system.seed == 99
    assert copied.change({"name": "other"}).seed == 99
    assert scenario.system is before


def test_a_wrong_setting_is_named(file: Path) -> None:
    for settings, said in (
        ({"overlay.brokers[0].capacity": 800}, "`settings` overlay.brokers[0].capacity: overlay.brokers[0].capacity"),
        ({"overlay.brokers[7].capacity": "1/s"}, "`settings` overlay.brokers[7].capacity: there is no such field"),
        ({"seed": {1, 2}}, "`settings` seed: {1, 2} cannot be written in a scenario"),
        ({"a..b": 1}, "`settings`: a..b: is not a field name"),
    ):
        for change in (lambda: Scenario.load(file, settings), lambda: Scenario.load(file).change(settings)):  # noqa: B023
            with pytest.raises(ScenarioError) as refusal:
                change()
            assert said in str(refusal.value)


def test_an_error_after_a_change_still_names_the_file_and_the_line(file: Path) -> None:
    with pytest.raises(ScenarioError) as refusal:
        Scenario.load(file).change({"workload.topics": ["u"]})
    assert {(problem.file, problem.line) for problem in refusal.value.problems} == {(str(file), 7), (str(file), 8)}
