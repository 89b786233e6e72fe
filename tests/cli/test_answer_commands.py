"""Predict, simulate and compare on the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from surecast.report import check_accounts, load

Run = Callable[..., subprocess.CompletedProcess[str]]
SCENARIO = """
surecast: 1
name: small
overlay: {brokers: [{name: b, count: 3}], links: {build: ring}}
availability: {brokers: {mtbf: 2h, mttr: 5min}, links: {mtbf: 1h, mttr: 1min}}
workload:
  topics: [t]
  deadline: 2min
  publishers: [{name: p, home: b-1, topics: [t], rate: 1/min}]
  subscribers: [{name: s, count: 4, home: b-3, topics: [t]}]
delivery: {fault_tolerance: {scheme: buffering, retransmission_interval: 5s}}
experiment: {duration: 1d, runs: 3}
"""


@pytest.fixture(autouse=True)
def scenario(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)


def test_predict(surecast: Run, tmp_path: Path) -> None:
    done = surecast("predict", "s.yaml", "--out", "p.parquet")
    assert done.returncode == 0, done.stderr
    assert "bypass-buffering" in done.stdout
    report = load(tmp_path / "p.parquet")
    assert report.info.source == "predicted"
    assert check_accounts(report) == []
    only = json.loads(surecast("predict", "s.yaml", "--scheme", "bypass", "--json").stdout)
    assert {figure["variant"] for figure in only["figures"]} == {"bypass"}


@pytest.mark.parametrize("method", ["compiled", "protocol"])
def test_simulate_is_reproducible(surecast: Run, tmp_path: Path, method: str) -> None:
    arguments = ["simulate", "s.yaml", "--method", method, "--scheme", "buffering", "--duration", "6h", "--runs", "2"]
    first = surecast(*arguments, "--json")
    assert first.returncode == 0, first.stderr
    assert first.stdout == surecast(*arguments, "--json").stdout
    assert first.stdout != surecast(*arguments, "--json", "--seed", "77").stdout
    done = surecast(*arguments, "--out", "r.json")
    assert "the same seed gives the same result" in done.stdout
    assert check_accounts(load(tmp_path / "r.json")) == []


@pytest.mark.long  # test_processes has workers every time
def test_workers_change_nothing(surecast: Run) -> None:
    one, two = (surecast("simulate", "s.yaml", "--json", "--workers", n).stdout for n in ("1", "2"))
    assert one == two


def test_compare_a_scenario_under_two_settings(surecast: Run, tmp_path: Path) -> None:
    vary = ["--vary", "calm:availability.brokers.mttr=1min", "--vary", "rough:availability.brokers.mttr=30min"]
    done = surecast("compare", "s.yaml", "--scheme", "bypass", *vary, "--picture", "c.svg", "--json")
    assert done.returncode == 0, done.stderr
    variants = {row["variant"] for row in json.loads(done.stdout)["rows"]}
    assert variants == {"bypass, calm", "bypass, rough"}
    assert "bypass, rough" in (tmp_path / "c.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "s.yaml", "--scheme", "hope"], "there is no scheme 'hope'"),
        (["simulate", "s.yaml", "--duration", "soon"], "--duration"),
        (["compare", "s.yaml", "s.yaml"], "leave out the second file"),
        (["compare", "s.yaml", "--vary", "x"], "--vary LABEL:FIELD=VALUE"),
        (["predict", "s.yaml", "--set", "workload.subscribers=[]"], "there is nothing to predict"),
        (["predict", "absent.yaml"], "no such file"),
        (["predict", "s.yaml", "--out", "p.csv"], ".parquet"),
    ],
)
def test_mistakes_are_explained(surecast: Run, arguments: list[str], message: str) -> None:
    done = surecast(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["predict"], ["simulate", "--runs", "2", "--duration", "2min"]])
def test_what_a_model_leaves_out_is_said(surecast: Run, command: list[str]) -> None:
    change = ["--set", "delivery.replication.replicas=3", "--set", "delivery.coding={}"]
    done = surecast(command[0], "s.yaml", *command[1:], *change, "--scheme", "bypass", "--json")
    warnings = " ".join(json.loads(done.stdout)["warnings"])
    assert "the replication of brokers" not in warnings
    assert "network coding and gossip: events travel whole (delivery.coding)" in warnings
    plain = surecast(command[0], "s.yaml", *command[1:], "--scheme", "bypass", "--json")
    assert "not modelled" not in " ".join(json.loads(plain.stdout)["warnings"])
