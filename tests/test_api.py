"""The front door: `from surecast import ...` repeats the commands, whichever models a scenario needs."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import surecast
from surecast import Scenario, compare, plan, predict, run, simulate
from surecast.errors import AssumptionError, ConfigurationError
from surecast.report import as_dict

IMPORTS = """
import importlib, sys
import surecast
assert "numpy" not in sys.modules, "import surecast loads nothing heavy"
functions = ("predict", "simulate", "run", "plan", "compare")
packages = ["api", "measurement", "models", "planning", "prediction", "report", "scenario", "simulation"]
packages = [f"surecast.{name}" for name in packages]

def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] == "surecast"]:
        del sys.modules[name]

def check(when):
    import surecast
    for name in functions:
        value = getattr(surecast, name)
        assert type(value).__name__ == "function" and value.__module__ == "surecast.api", (when, name, value)

check("names first")
for name in packages:
    importlib.import_module(name)
check("packages after names")
forget()
for name in reversed(packages):
    importlib.import_module(name)
check("packages first")
forget()
from surecast import predict
import surecast.prediction
from surecast import predict as again
assert predict is again
check("one package between")
"""


Run = Callable[[Sequence[str]], subprocess.CompletedProcess[str]]


@pytest.fixture
def dropping(repository: Path) -> Scenario:
    return Scenario.load(repository / "examples" / "dropping.yaml")


def test_names_are_functions_in_every_order_of_imports() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_module_has_the_name_of_something_public() -> None:
    modules = {each.name for each in pkgutil.iter_modules(surecast.__path__)}
    assert not modules.intersection(surecast.__all__)
    assert set(surecast.__all__) <= set(dir(surecast))
    with pytest.raises(AttributeError, match="has no attribute 'predictions'"):
        surecast.predictions  # noqa: B018


def test_functions_repeat_the_commands(run_here: Run, repository: Path, dropping: Scenario) -> None:
    file = repository / "examples" / "dropping.yaml"
    said = json.loads(run_here(["predict", str(file), "--policy", "all", "--set", "seed=3", "--json"]).stdout)
    assert said == as_dict(predict(dropping.change({"seed": 3}), policies=["all"]))
    extent = ["--runs", "3", "--duration", "10min", "--seed", "5"]
    said = json.loads(run_here(["simulate", str(file), *extent, "--json"]).stdout)
    assert said == as_dict(simulate(dropping, runs=3, duration=600, seed=5))
    vary = ["--vary", "busy:workload.publishers[0].rate=4/s", "--vary", "calm:workload.publishers[0].rate=1/s"]
    said = json.loads(run_here(["compare", str(file), *extent, *vary, "--json"]).stdout)
    settings = {"busy": {"workload.publishers[0].rate": "4/s"}, "calm": {"workload.publishers[0].rate": "1/s"}}
    comparison = compare(dropping, runs=3, duration="10min", seed=5, vary=settings)
    assert said == json.loads(json.dumps(comparison.as_dict(20)))


def test_a_plan_is_that_of_the_command(run_here: Run, repository: Path) -> None:
    file = repository / "examples" / "company.yaml"
    said = json.loads(
        run_here(["plan", str(file), "--max-brokers", "2", "--max-delay", "300ms", "--search", "--json"]).stdout
    )
    found = plan(Scenario.load(file), max_brokers=2, max_delay="300ms", search=True)
    assert found.best is not None
    assert said["best"]["brokers"] == list(found.best.brokers)
    assert found.optimum is not None
    assert found.optimum.best is not None
    assert found.optimum.best.brokers == found.best.brokers
    assert said["search"]["gap_to_optimum"] == 0.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"schemes": ["hope"]}, "there is no scheme 'hope'; there are: none, periodic-subscription"),
        ({"schemes": "coding"}, "`schemes` coding: dropping has no delivery.coding"),
        ({"algorithms": "best"}, "there is no algorithm 'best'; there are: flooding"),
        ({"policies": ["hope"]}, "there is no policy 'hope'; there are: none"),
        ({"schemes": ["bypass"], "policies": ["all"]}, "`schemes` and `policies`: every subscriber comes and goes"),
        ({"runs": 1}, "use `runs` 2 or more"),
        ({"runs": 2.5}, "`runs` is 2.5; give a whole number of 1 or more"),
        ({"duration": "long"}, "`duration`: 'long' is not a duration"),
        ({"duration": 0}, "`duration` must be above 0"),
        ({"duration": float("nan")}, "`duration` nan"),
        ({"seed": -1}, "`seed` is -1; give a whole number of 0 or more"),
        ({"workers": 65}, "`workers` is 65; give a whole number from 1 to 64"),
        ({"method": "guess"}, "there is no method 'guess'; there are: compiled, protocol"),
    ],
)
def test_a_wrong_argument_is_named(dropping: Scenario, wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        simulate(dropping, **wrong)  # type: ignore[arg-type]
    assert said in str(refusal.value)


def test_other_functions_name_their_arguments(dropping: Scenario, repository: Path) -> None:
    company = Scenario.load(repository / "examples" / "company.yaml")
    report = predict(dropping)
    for call, said in (
        (lambda: predict(company, policies=["all"]), "`policies`: company has no subscribers with topics"),
        (lambda: run(dropping), "give a `time_scale`, a `duration`, or both"),
        (lambda: run(dropping, warm_up="soon"), "`warm_up`: 'soon'"),
        (lambda: plan(company, max_delay=0), "`max_delay` 0: give a time above 0"),
        (lambda: plan(company, max_cost=0.5), "`max_cost` 0.5: the cheapest broker costs 1"),
        (lambda: plan(company, broker_cost=-1), "`broker_cost` -1: give a number of 0 or more"),
        (lambda: plan(company, algorithms=["best"]), "there is no algorithm 'best'"),
        (lambda: compare(dropping, answers=["predicted"]), "`answers` predicted: write two or all of"),
        (lambda: compare(dropping, time_scale=2), "`time_scale`: only a run has one"),
        (lambda: compare(dropping, answers="predicted,measured", policies="all"), "a run has what the scenario says"),
        (lambda: compare(dropping, report), "a scenario is compared with its own answers"),
        (lambda: compare(report), "a report needs a second report to compare with"),
    ):
        with pytest.raises(ConfigurationError) as refusal:
            call()
        assert said in str(refusal.value)


@pytest.mark.parametrize("function", [predict, simulate, run, plan, compare])
def test_a_file_name_is_told_from_a_scenario(function: Callable[[object], object]) -> None:
    with pytest.raises(ConfigurationError, match=r"'shop.yaml' is .*load one.*Scenario.load"):
        function("shop.yaml")


def test_a_scenario_without_anything_to_answer_is_refused() -> None:
    empty = Scenario.model_validate({"surecast": 1, "name": "empty", "overlay": {"brokers": [{"name": "b"}]}})
    for answer in (predict, simulate):
        with pytest.raises(AssumptionError, match="nothing to predict or simulate"):
            answer(empty)
