"""The cheapest way to a target against trying everything, and the commands that show forecasts."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.coding import Forecaster, audiences_of, choose_coding
from surecast.scenario import System, load_system

SCENARIO = """
surecast: 1
name: square
seed: 3
overlay:
  brokers: [{name: b, count: 4}]
  links:
    - {between: [b-1, b-2], loss: 0.1, latency: 10ms, capacity: 500/s}
    - {between: [b-2, b-4], loss: 0.2, latency: 10ms, capacity: 500/s}
    - {between: [b-1, b-3], loss: 0.1, latency: 10ms, capacity: 500/s}
    - {between: [b-3, b-4], loss: 0.2, latency: 10ms, capacity: 500/s}
workload:
  topics: [t]
  deadline: 2s
  publishers: [{name: p, home: b-1, topics: [t], rate: 1/s}]
  subscribers: [{name: s, count: 6, home: b-4, topics: [t]}, {name: u, count: 6, home: b-2, topics: [t]}]
delivery:
  coding: {packets: 8, redundancy: 0.5, gossip: {fan_out: 2, rounds: 2}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "square.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


@pytest.fixture
def square(file: Path) -> System:
    return load_system(file)[1]


def test_the_cheapest_is_the_cheapest_of_all_on_a_tree(square: System) -> None:
    """Every redundancy of up to twice the packets, with and without gossip; paths without draws."""
    budget = choose_coding(square, 0.99, kinds=["tree"], rounds_max=1, samples=500)
    best = budget.best
    assert best is not None
    forecaster = Forecaster(square, samples=500)
    [audience] = audiences_of(square)
    gossip = forecaster.coding.gossip
    assert gossip is not None
    costs = []
    for coded in range(17):
        for chosen in (None, gossip.model_copy(update={"rounds": 1})):
            outcome = forecaster.coded(audience, "tree", coded, chosen)
            if outcome.on_time.min() >= 0.99:
                costs.append(sum(outcome.messages.values()))
    assert best.packets_per_event == pytest.approx(min(costs))
    assert best.worst >= 0.99


def test_choices_stand_in_order_and_what_misses_comes_last(square: System) -> None:
    budget = choose_coding(square, 0.999999, rounds_max=2, samples=300, by="bytes")
    met = [choice.met for choice in budget.choices]
    assert met == sorted(met, reverse=True)
    costs = [choice.bytes_per_event for choice in budget.choices if choice.met]
    assert costs == sorted(costs)
    assert {choice.paths for choice in budget.choices} == {"tree", "single-path", "maximum-flow"}


def test_bad_wishes_are_refused(square: System) -> None:
    with pytest.raises(ConfigurationError, match="target: 2"):
        choose_coding(square, 2.0)
    with pytest.raises(ConfigurationError, match="packets or bytes"):
        choose_coding(square, 0.9, by="gold")  # type: ignore[arg-type]
    with pytest.raises(AssumptionError, match="no paths"):
        choose_coding(square, 0.9, kinds=[])


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    from surecast.cli import main

    monkeypatch.setattr(sys, "argv", ["surecast", *arguments])
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(out):
        try:
            main()
        except SystemExit as stop:
            assert stop.code in (0, None)
    out.seek(0)
    return out.read()


def test_advise_coding_says_what_to_choose(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(monkeypatch, "advise", "coding", str(file), "--target", "0.99", "--rounds", "1", "--json"))
    assert found["target"] == 0.99
    assert found["choices"][0]["met"] is True
    assert "cheapest for 0.99" in run(monkeypatch, "advise", "coding", str(file), "--target", "0.99", "--rounds", "0")


def test_predict_answers_for_packets(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fails here, so that there is nothing to say about failures."""
    report = json.loads(run(monkeypatch, "predict", str(file), "--json"))
    variants = {figure["variant"] for figure in report["figures"]}
    assert {"tree", "coding", "coding-gossip", "coding-gossip single-path"} <= variants
    assert "buffering" not in variants
    named = json.loads(run(monkeypatch, "predict", str(file), "--scheme", "buffering", "--json"))
    assert {figure["variant"] for figure in named["figures"]} == {"buffering"}
