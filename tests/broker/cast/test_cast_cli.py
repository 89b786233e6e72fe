"""`surecast cast`: what it prints, saves and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from surecast.cli.cast import app
from surecast.errors import ConfigurationError

RUNNER = CliRunner()
SCENARIO = """
surecast: 1
name: pair
overlay: {brokers: [{name: a}, {name: b}], links: [{between: [a, b], loss: 0.1, latency: 20ms, capacity: 100/s}]}
workload:
  topics: [t]
  deadline: 2s
  publishers: [{name: p, home: a, topics: [t], rate: 1/s}]
  subscribers: [{name: s, count: 3, home: b, topics: [t]}]
delivery: {coding: {packets: 8, paths: tree}}
"""


def test_publish_shows_and_saves_what_arrived(tmp_path: Path) -> None:
    file, out = tmp_path / "news.bin", tmp_path / "received"
    file.write_bytes(bytes(range(256)) * 12)
    out.mkdir()
    command = ["publish", str(file), "--subscribers", "4", "--brokers", "3", "--loss", "0.05", "--packets", "8"]
    found = RUNNER.invoke(app, [*command, "--deadline", "20s", "--rate", "200", "--out", str(out), "--json"])
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    assert answer["deliveries_in_time"] == answer["deliveries"] == 4 * answer["events"]
    assert all(one["whole"] for one in answer["subscribers"])
    assert {one.read_bytes() for one in out.iterdir()} == {file.read_bytes()}
    assert len(list(out.iterdir())) == 4


def test_compare_writes_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    file, page = tmp_path / "pair.yaml", tmp_path / "loss.html"
    file.write_text(SCENARIO)
    command = ["compare", str(file), "--loss", "0", "--loss", "0.2", "--half-width", "0.05", "--page", str(page)]
    found = RUNNER.invoke(app, [*command, "--scheme", "tree", "--scheme", "coding", "--json"])
    assert found.exit_code == 0, found.output
    points = json.loads(found.stdout)["points"]
    by_scheme = {(point["scheme"], point["loss"]): point["reliability"] for point in points}
    assert by_scheme["tree", 0.0] == 1.0
    assert by_scheme["tree", 0.2] == pytest.approx(0.8**8, abs=0.06)
    assert by_scheme["coding", 0.2] > by_scheme["tree", 0.2] + 0.2
    text = page.read_text()
    assert "delivery time against loss" in text
    assert "<script src=" not in text


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["publish", "no-such-file"], "cannot be read"),
        (["publish", "x", "--deadline", "soon"], "--deadline"),
        (["compare", "x.yaml", "--page", "page.txt"], ".html"),
    ],
)
def test_what_is_wrong_is_named(command: list[str], said: str) -> None:
    found = RUNNER.invoke(app, command)
    assert isinstance(found.exception, ConfigurationError)
    assert said in str(found.exception)
