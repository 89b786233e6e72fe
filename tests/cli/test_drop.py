"""Dropping on the command line: the question of one subscriber, and scenarios with subscribers that come and go."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from surecast.cli import main
from surecast.report import load

Run = Callable[..., subprocess.CompletedProcess[str]]
QUEUE = ["--service", "8/s", "--on", "20s", "--off", "20s"]
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_paper_at_two_events_per_second(surecast: Run, tmp_path: Path) -> None:
    """dropping section IV.B; the shares are those of the formulas' own tests."""
    files = ["--page", "a.html", "--picture", "a.svg"]
    done = surecast("drop", "--arrival", "2/s", *QUEUE, "--target", "7s", "--input", "16/s", "--json", *files)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    found = {row["mechanism"]: row for row in answer["mechanisms"]}
    shares = {name: round(row["success_share"], 4) for name, row in found.items()}
    expected = {"none": 1.0, "probabilistic": 0.6749, "finite-buffer": 0.6925, "expiry": 0.8514, "optimal": 0.6965}
    assert expected.items() <= shares.items()
    assert found["finite-buffer"]["buffer_size"] == 22
    assert not found["none"]["meets_target"]
    for name, row in found.items():
        assert row["success_share"] + sum(row["dropped"].values()) == pytest.approx(1.0, abs=1e-9)
        assert row["delay_p50_s"] < row["delay_mean_s"] < row["delay_p95_s"] < row["delay_p99_s"]
        assert row["meets_target"] == (name != "none")
    assert "Events delivered within a time" in (tmp_path / "a.svg").read_text()
    assert "best policy, connected protected" in (tmp_path / "a.html").read_text()


def test_rare_events_have_an_optimal_policy(surecast: Run) -> None:
    done = surecast("drop", "--arrival", "1/day", *QUEUE, "--target", "7s", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["mechanism"]: row for row in json.loads(done.stdout)["mechanisms"]}
    assert rows["optimal"]["success_share"] == pytest.approx(rows["probabilistic"]["success_share"], abs=1e-5)
    assert rows["optimal"]["meets_target"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--arrival", "3.9999/s", *QUEUE, "--target", "100000s"],
        ["--arrival", "100000/s", "--service", "800000/s", "--on", "1h", "--off", "1h", "--target", "7s"],
    ],
)
def test_endless_queues_leave_a_row_without_an_optimal_policy(surecast: Run, arguments: list[str]) -> None:
    done = surecast("drop", *arguments, "--mechanism", "probabilistic", "--mechanism", "optimal", "--json")
    assert done.returncode == 0, done.stderr
    join, best = json.loads(done.stdout)["mechanisms"]
    assert join["meets_target"]
    assert not best["possible"]
    assert "queues of up to 1024 events" in best["reason"]


def test_the_best_policy_that_turns_events_away_while_connected(surecast: Run) -> None:
    def rows(rate: str, *arguments: str) -> dict[str, dict[str, object]]:
        done = surecast("drop", "--arrival", rate, *QUEUE, "--target", "7s", "--unprotected", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return {row["mechanism"]: row for row in json.loads(done.stdout)["mechanisms"]}

    # the last column of the table in docs/background/dropping.md
    found = rows("7.7/s", "--input", "16/s", "--mechanism", "optimal")
    assert [round(found[name]["success_share"], 4) for name in found] == [0.5024, 0.5110]  # type: ignore[call-overload]
    beyond = rows("9/s", "--simulate", "--runs", "4")
    assert not beyond["optimal"]["possible"]
    assert beyond["unprotected"]["meets_target"]
    simulated = beyond["unprotected"]["simulated"]["delay_mean_s"]  # type: ignore[index]
    assert abs(simulated["value"] - 7.0) <= 2 * simulated["half_width"]
    buffer, best = (beyond[name]["success_share"] for name in ("finite-buffer", "unprotected"))
    assert best >= buffer  # type: ignore[operator]
    for wrong in (["--buffer", "3", "--arrival", "2/s", "--target", "7s"], ["--arrival", "2/s"], ["--target", "7s"]):
        refused = surecast("drop", *QUEUE, "--unprotected", *wrong)
        assert refused.returncode != 0
        assert "--unprotected" in refused.stderr


def test_simulation_checks_every_row(surecast: Run) -> None:
    arguments = ["--target", "7s", "--simulate", "--runs", "10", "--duration", "20000s"]
    done = surecast("drop", "--arrival", "2/s", *QUEUE, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    for row in json.loads(done.stdout)["mechanisms"]:
        for name in ("success_share", "delay_mean_s"):
            simulated = row["simulated"][name]
            # 12 comparisons at 95 %, so twice the half-width
            assert abs(simulated["value"] - row[name]) <= 2 * simulated["half_width"] + 1e-9, (row["mechanism"], name)
    table = surecast("drop", "--arrival", "2/s", *QUEUE, *arguments, "--mechanism", "finite-buffer").stdout
    assert "buffer 22" in table
    assert "±" in table


def test_the_inverse_questions(surecast: Run) -> None:
    rates = json.loads(surecast("drop", *QUEUE, "--target", "7s", "--join-probability", "0.35", "--json").stdout)
    assert rates["arrival_rates"]["with join probability 0.35"]["high_per_s"] == pytest.approx(2.05909229)
    at = json.loads(
        surecast("drop", "--arrival", "2.05909229/s", *QUEUE, "--join-probability", "0.35", "--json").stdout
    )
    assert at["mechanisms"][0]["delay_mean_s"] == pytest.approx(7.0)
    both = surecast("drop", *QUEUE, "--target", "1min").stdout
    assert "is met up to 3.317/s without dropping" in both


def test_a_quantile_target(surecast: Run) -> None:
    aim = ["--target", "7s", "--quantile", "0.95", "--input", "16/s"]
    done = surecast("drop", "--arrival", "2/s", *QUEUE, *aim, "--json")
    rows = {row["mechanism"]: row for row in json.loads(done.stdout)["mechanisms"]}
    assert "threshold" in rows
    for name in ("probabilistic", "expiry", "exponential-expiry", "threshold"):
        assert rows[name]["delay_p95_s"] == pytest.approx(7.0, rel=1e-6), name
    assert rows["finite-buffer"]["delay_p95_s"] <= 7.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arrival", "5/s", *QUEUE, "--mechanism", "none"], "unstable without dropping: 5 events/s arrive, and 4/s"),
        (["--arrival", "9/s", *QUEUE, "--target", "7s", "--mechanism", "probabilistic"], "unstable even if everything"),
        (["--arrival", "2/s", *QUEUE, "--target", "100ms", "--mechanism", "probabilistic"], "below the 0.333333 s"),
        (["--arrival", "2/s", *QUEUE, "--target", "10ms", "--input", "3/s"], "below the 1 s that events take"),
        (["--arrival", "20/s", *QUEUE, "--target", "7s", "--input", "16/s"], "input queue is unstable"),
        (["--arrival", "0/s", *QUEUE, "--target", "7s"], "--arrival 0/s"),
        (["--arrival", "-2/s", *QUEUE, "--target", "7s"], "negative"),
        (["--arrival", "nan/s", *QUEUE, "--target", "7s"], "not a rate"),
        (["--arrival", "2/s", *QUEUE, "--target", "inf"], "--target inf"),
        (["--arrival", "2/s", *QUEUE, "--target", "7s", "--quantile", "95"], "--quantile 95"),
        (["--arrival", "2/s", *QUEUE, "--quantile", "0.9"], "give --target, too"),
        (["--arrival", "2/s", *QUEUE, "--buffer", "3", "--mechanism", "expiry"], "use one or the other"),
        (["--arrival", "2/s", *QUEUE, "--buffer", "0"], "--buffer 0"),
        (["--arrival", "2/s", *QUEUE, "--join-probability", "1.5"], "--join-probability 1.5"),
        (["--arrival", "2/s", *QUEUE, "--exponential"], "give --lifetime, too"),
        (["--arrival", "2/s", *QUEUE, "--lifetime", "9s", "--buffer", "3"], "no exact formula"),
        (["--arrival", "2/s", *QUEUE], "depends on --target"),
        (["--arrival", "2/s", "--target", "7s"], "--service is missing"),
        (["--arrival", "2/s", *QUEUE, "--target", "7s", "--mechanism", "hope"], "there is no mechanism 'hope'"),
        ([*QUEUE], "give --arrival, or --target"),
        ([*QUEUE, "--target", "7s", "--simulate"], "need an --arrival rate"),
        (["--arrival", "2/s", *QUEUE, "--target", "7s", "--page", "a.png"], "end its name in .html"),
    ],
)
def test_refusals_are_explained(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["surecast", "drop", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == (3 if "unstable" in message and "even if" not in message else 1)
    assert message in capsys.readouterr().err


def test_the_figures_of_the_paper(surecast: Run, tmp_path: Path) -> None:
    arguments = ["--out", "f.html", "--data", "f.json", "--pictures", "pictures", "--quick", "--runs", "2"]
    done = surecast("drop", "figures", *arguments)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "f.html").read_text()
    assert all(f"Figure {n}" in page for n in (4, 5, 6, 7))
    assert "made with --quick" in page
    assert "Errors and the widest 95 % half-width are absolute" in page
    rows = json.loads((tmp_path / "f.json").read_text())
    assert {row["how"] for row in rows} == {"formula", "simulated"}
    assert len(list((tmp_path / "pictures").glob("*.svg"))) == 7


@pytest.mark.parametrize("arguments", [["--out", "f.png"], ["--out", "f.html", "--data", "f.csv"]])
def test_figures_need_right_files(surecast: Run, arguments: list[str]) -> None:
    done = surecast("drop", "figures", *arguments)
    assert done.returncode == 1
    assert "end its name in" in done.stderr


def test_prediction_and_simulation_of_a_scenario_pair(surecast: Run, tmp_path: Path) -> None:
    file = EXAMPLES / "dropping.yaml"
    done = surecast("compare", file, "--policy", "all", "--save", "c.json", "--picture", "c.svg", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)["summary"]
    paired = {(row["variant"], row["metric"], row["detail"]) for row in summary}
    for policy in ("none", "probabilistic", "expiry", "finite-buffer", "optimal"):
        assert {(policy, "success_share", ""), (policy, "response_quantile_s", "p95")} <= paired
    for key in (
        ("none", "share_dropped", ""),
        ("none", "targets_met_share", ""),
        ("none", "rate_in_per_s", ""),
        ("finite-buffer", "buffer_size", ""),
        ("finite-buffer", "failed_connected_share", ""),
        ("expiry", "event_lifetime_s", ""),
        ("probabilistic", "share_dropped", "rejected while disconnected"),
        ("finite-buffer", "share_dropped", "buffer full while connected"),
        ("finite-buffer", "share_dropped", "buffer full while disconnected"),
        ("expiry", "share_dropped", "expired while disconnected"),
        ("optimal", "share_dropped", "rejected while disconnected"),
    ):
        assert key in paired
    assert "success rate" in (tmp_path / "c.svg").read_text()


def test_subscribers_that_stay_have_reliability_and_others_dropping(surecast: Run, tmp_path: Path) -> None:
    file = EXAMPLES / "dropping-mechanisms.yaml"
    done = surecast("predict", file, "--policy", "none", "--scheme", "none", "--out", "p.json")
    assert done.returncode == 0, done.stderr
    report = load(tmp_path / "p.json")
    assert set(report.variants) == {"none", "no dropping"}
    reliable = {figure.name for figure in report.figures(metric="reliability", scope="subscriber")}
    delivered = {figure.name for figure in report.figures(metric="success_share", scope="subscriber")}
    assert reliable == {"wall"}
    assert delivered == {"phone", "guard", "recorder", "office"}
    assert not any("delivery.dropping" in text for text in report.info.warnings)
    short = ["--duration", "1h", "--runs", "2", "--out", "s.json"]
    assert surecast("simulate", file, "--policy", "none", "--scheme", "none", *short).returncode == 0
    assert set(load(tmp_path / "s.json").variants) == {"none", "no dropping"}


def test_schemes_alone_take_everybody_as_connected(surecast: Run) -> None:
    done = surecast("predict", EXAMPLES / "dropping.yaml", "--scheme", "bypass", "--json")
    report = json.loads(done.stdout)
    assert {figure["variant"] for figure in report["figures"]} == {"bypass"}
    assert any("dropping on purpose (delivery.dropping)" in text for text in report["warnings"])


def test_a_policy_that_serves_some_subscribers_only(surecast: Run) -> None:
    """The phone's target is out of reach for a join probability; the others are served all the same."""
    change = ["--set", "workload.subscribers[0].response_target=200ms"]
    file = EXAMPLES / "dropping-mechanisms.yaml"
    short = ["--duration", "1h", "--runs", "2"]
    for command in (["predict"], ["simulate", *short]):
        done = surecast(command[0], file, *command[1:], *change, "--policy", "probabilistic", "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        names = {f["name"] for f in report["figures"] if f["metric"] == "success_share" and f["scope"] == "subscriber"}
        assert names == {"guard", "recorder", "office"}
        assert any("subscriber phone" in text for text in report["warnings"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", EXAMPLES / "dropping.yaml", "--policy", "hope"], "there is no policy 'hope'"),
        (["predict", EXAMPLES / "reliability-tree.yaml", "--policy", "all"], "no subscriber both disconnects"),
        (
            ["simulate", EXAMPLES / "dropping.yaml", "--policy", "all", "--scheme", "bypass"],
            "every subscriber comes and",
        ),
        (["predict", EXAMPLES / "company.yaml", "--policy", "all"], "no subscribers with topics"),
    ],
)
def test_policies_that_make_no_sense(surecast: Run, arguments: list[str | Path], message: str) -> None:
    done = surecast(*arguments)
    assert done.returncode == 1
    assert message in done.stderr


FAR = """
surecast: 1
name: far
overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}
availability: {brokers: {mtbf: 2h, mttr: 5min}}
workload:
  topics: [t]
  publishers: [{name: p, home: a, topics: [t], rate: 1/min}]
  subscribers:
    - {name: phone, home: b, topics: [t], connectivity: {on: 20s, off: 20s}, service: 8/s}
    - {name: wall, home: b, topics: [t]}
experiment: {duration: 1h, runs: 2}
"""


def test_over_several_brokers_what_remains_is_simulated(surecast: Run, tmp_path: Path) -> None:
    (tmp_path / "far.yaml").write_text(FAR)
    report = json.loads(surecast("simulate", "far.yaml", "--scheme", "buffering", "--json").stdout)
    assert {f["name"] for f in report["figures"] if f["metric"] == "reliability"} >= {"phone", "wall"}
    around = json.loads(
        surecast("simulate", "far.yaml", "--set", "delivery.fault_tolerance.scheme=bypass", "--json").stdout
    )
    assert {f["name"] for f in around["figures"] if f["metric"] == "reliability"} >= {"phone", "wall"}
    apart = ["--alone"]
    done = surecast("simulate", "far.yaml", *apart, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {f["name"] for f in report["figures"] if f["scope"] == "subscriber"} == {"wall"}
    assert any("come and go are not simulated: subscriber phone at broker b" in text for text in report["warnings"])
    compared = surecast("compare", "far.yaml", *apart, "--json")
    assert compared.returncode == 0, compared.stderr
    everybody = ["--set", "workload.subscribers[1].connectivity={on: 20s, off: 20s}"]
    for arguments, hint in ((["--policy", "none"], "same home"), (everybody, "or name schemes (--scheme)")):
        refused = surecast("simulate", "far.yaml", *apart, *arguments)
        assert refused.returncode == 1
        assert "the simulation of dropping has one broker between the two" in refused.stderr
        assert hint in refused.stderr


CLASSES = """
surecast: 1
name: pair
overlay: {brokers: [{name: a, capacity: 100/s}, {name: b, capacity: 100/s}], links: [[a, b]]}
workload:
  classes: [{name: c, count: 50}]
  clients: [{name: x, home: a}, {name: y, home: b}]
  subscriptions: {active: 100, lifetime: 100s}
  publications: 20/s
"""


def test_filter_classes_are_simulated(surecast: Run, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CLASSES)
    arguments = ["--algorithm", "peer-to-peer covering", "--runs", "3", "--duration", "20s"]
    done = surecast("compare", "c.yaml", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    metrics = {row["metric"] for row in json.loads(done.stdout)["summary"]}
    assert {"message_rate_per_s", "utilisation", "table_entries"} <= metrics
    shown = surecast("simulate", "c.yaml", "--algorithm", "flooding", "--runs", "2")
    assert "2 runs of 1min" in shown.stdout.replace("60s", "1min")
