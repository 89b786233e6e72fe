"""`surecast run` and `surecast compare` as commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
import yaml
from tests.patience import PATIENCE_S
from typer.testing import CliRunner

from surecast import predict
from surecast.api import beside_run
from surecast.cli.compare import compare
from surecast.cli.output import name_options
from surecast.cli.run import INTERRUPTED, run
from surecast.errors import ConfigurationError
from surecast.report import QoSReport, ReportBuilder
from surecast.report import compare as compare_reports
from surecast.scenario import build, load_system, parse_text

SCENARIO = """
surecast: 1
name: steady
overlay: {brokers: [{name: b}]}
workload:
  topics: [t]
  deadline: 5s
  publishers: [{name: p, home: b, topics: [t], rate: 20/s}]
  subscribers: [{name: s, home: b, topics: [t]}]
"""
PAIR = SCENARIO.replace("[{name: b}]", "[{name: b}, {name: c}], links: [[b, c]]")
START = "import typer; from surecast.cli.run import run; typer.run(run)"

app = typer.Typer()
app.command("run")(run)
app.command("compare")(compare)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "steady.yaml"
    path.write_text(SCENARIO)
    return path


def refused(*arguments: str) -> BaseException | None:
    return CliRunner().invoke(app, arguments).exception


def test_an_overlay_is_run_and_compared_with_its_prediction_and_simulation(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR)
    arguments = ["compare", str(path), "--answers", "predicted,simulated,measured", "--duration", "2s", "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None, done.output
    rows = [row for row in json.loads(done.stdout)["summary"] if row["metric"] == "reliability"]
    assert rows


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--time-scale", "0"], "the time scale is 0"),
        (["run"], "give a --time-scale, a --duration, or both"),
        (["run", "--duration", "soon"], "--duration: "),
        (["run", "--patience", "long"], "--patience: "),
        (["compare", "--answers", "predicted,guessed"], "write two or all of predicted, simulated, measured"),
        (["compare", "--answers", "measured,measured"], "write two or all of"),
        (["compare", "--time-scale", "5"], "only a run has one"),
        (["compare", "--answers", "measured,predicted", "--scheme", "bypass"], "a run has what the scenario says"),
    ],
)
def test_mistakes_are_explained(scenario: Path, arguments: list[str], says: str) -> None:
    error = refused(arguments[0], str(scenario), *arguments[1:])
    assert isinstance(error, ConfigurationError)
    assert says in name_options(str(error))


def test_logs_need_a_folder_of_their_own(scenario: Path) -> None:
    error = refused("run", str(scenario), "--duration", "1s", "--logs", str(scenario.parent))
    assert "need a new folder" in str(error)


def test_predicted_and_simulated_beside_measured(scenario: Path, tmp_path: Path) -> None:
    saved = tmp_path / "differences.json"
    done = CliRunner().invoke(
        app,
        [
            "compare",
            str(scenario),
            "--answers",
            "predicted,simulated,measured",
            "--duration",
            "2s",
            "--json",
            "--save",
            str(saved),
        ],
    )
    assert done.exception is None
    answer = json.loads(done.stdout)
    rows = [row for row in answer["summary"] if row["metric"] == "reliability"]
    assert rows
    assert set(rows[0]["means"]) == {"predicted", "simulated", "measured"}
    assert answer["verdict"]
    assert {row["variant"] for row in answer["summary"]} == {"buffering"}
    assert saved.exists()


def test_an_interrupted_run_reports_what_it_measured_and_leaves_nothing(scenario: Path, tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    logs = tmp_path / "logs"
    command = [sys.executable, "-c", START, str(scenario), "--duration", "10min", "--json", "--logs", str(logs)]
    process = subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(place)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        port = _wait_for_publications(place)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, err) == (INTERRUPTED, "")
    report = json.loads(out)
    assert report["source"] == "measured"
    assert any(warning.startswith("interrupted: ") for warning in report["warnings"])
    assert list(place.glob("surecast-run-*")) == []
    assert list(logs.glob("events-*.jsonl"))
    with socket.socket() as free:
        assert free.connect_ex(("127.0.0.1", port)) != 0


def _wait_for_publications(place: Path) -> int:
    """Waits until a run is well under way; the port of its broker."""
    until = time.monotonic() + PATIENCE_S  # a first run may have kernels to compile
    while time.monotonic() < until:
        for log in place.glob("surecast-run-*/0/events/events-*.jsonl"):
            if log.read_text().count('"publication_time"') > 20:
                config = yaml.safe_load(next(place.glob("surecast-run-*/0/broker.yaml")).read_text())
                return int(config["listeners"][0]["port"])
        time.sleep(0.1)
    raise AssertionError("the run did not begin")


REPLICATED = """
surecast: 1
name: replicated
overlay: {brokers: [{name: b}]}
availability: {brokers: {mtbf: 600s, mttr: 60s}}
workload:
  topics: [t]
  publishers: [{name: p, home: b, topics: [t], rate: 2/s, deadline: 5s}]
  subscribers:
    - {name: wall, home: b, topics: [t]}
    - {name: phone, home: b, topics: [t], connectivity: {on: 20s, off: 10s}, service: 8/s}
delivery: {replication: {replicas: 3}, dropping: {policy: probabilistic, join_probability: 0.5}}
"""


def test_a_run_stands_beside_a_composed_prediction_and_its_parts() -> None:
    """The run is made up of predictions, under the names that a run has: all of it has to be found again."""
    system = build(parse_text(REPLICATED))
    whole, parts = predict(system), predict(system, schemes=["buffering"], policies=["probabilistic"])
    builder = ReportBuilder("replicated", "measured", seed=1)
    builder.add_report(parts)
    measured = builder.build()
    before = compare_reports(whole, measured)
    both = beside_run(system, measured, whole, lambda names: predict(system, **names))
    after = compare_reports(both["predicted"], both["measured"])
    rows = {(row.variant, row.metric): row.count for row in after.summary}
    assert {variant for variant, _ in rows} == {"composed", "buffering", "probabilistic", "multi, 3 replicas"}
    assert {("composed", "reliability"), ("composed", "success_share")} <= rows.keys()
    matched = [sum(row.count for row in each.summary) for each in (before, after)]
    assert matched[0] == len(parts.select(variant="multi, 3 replicas").figures())
    assert matched[1] >= len(parts.figures()) + 2
    for variant in parts.variants:
        same = compare_reports(parts.select(variant=variant), both["predicted"].select(variant=variant))
        assert all(row.largest == 0 for row in same.summary)


def test_a_run_beside_one_model_keeps_its_names(scenario: Path) -> None:
    system = load_system(scenario)[1]
    whole = predict(system)

    def asked(*_: object) -> QoSReport:
        raise AssertionError("nothing more is asked for")

    assert beside_run(system, whole, whole, asked) == {"measured": whole, "predicted": whole}
