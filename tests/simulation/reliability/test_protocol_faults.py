"""Fault injection: random overlays, all schemes, many seeds. First safety under faults, then liveness once healed.
`tools/overlay_seeds.py` runs as many seeds of every kind of fault as one likes.

Every failure names its seed; `scenario(seed)` and the replay call in the message give the same run again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random

import numpy as np
import pytest

from surecast.protocol.overlay.node_events import NodeEvents
from surecast.scenario import System, build, parse_text
from surecast.scenario.spec.delivery import SCHEMES
from surecast.simulation.reliability.protocol import Options, SafetyError, WorldResult, simulate_world
from surecast.simulation.reliability.protocol.accounts import TargetAccount


def scenario(seed: int, deadline: str | None = None) -> System:
    """A small random overlay with short lives: everything that can go wrong does so within minutes."""
    random = Random(seed)
    links = random.choice(
        ["{build: random-tree, latency: %s}", "{build: random-graph, mean_degree: 2.8, latency: %s}"]
    ) % random.choice(["0s", "50ms", "2s"])
    lifetime = deadline or random.choice(["1s", "20s", "200s"])
    return build(
        parse_text(f"""
surecast: 1
name: faults-{seed}
seed: {seed}
overlay:
  brokers: [{{name: b, count: {random.randint(2, 7)}}}]
  links: {links}
  topic_trees: {{root: random}}
availability:
  brokers: {{mtbf: {random.choice([60, 200])}s, mttr: {random.choice([5, 40])}s}}
  links: {{mtbf: {random.choice([60, 200])}s, mttr: {random.choice([5, 40])}s}}
workload:
  topics: [{{name: t, count: 2}}]
  deadline: {lifetime}
  publishers: [{{name: p, count: 3, home: random, topics: by-popularity, rate: 0.5/s}}]
  subscribers: [{{name: s, count: 6, home: random, topics: by-popularity}}]
delivery:
  fault_tolerance:
    refresh: end-to-end
    refresh_interval: {random.choice([5, 30])}s
    retransmission_interval: {random.choice([1, 7])}s
""")
    )


def faults(seed: int, **more: float) -> Options:
    random = Random(seed + 1)
    return Options(
        refresh_s=random.choice([None, None, 0.0]),
        retransmission_s=random.choice([None, None, 0.0]),
        detection_s=random.choice([0.0, 3.0]),
        jitter_s=random.choice([0.0, 0.5, 10.0]),
        merges_subscribers=random.random() < 0.5,
        **more,  # type: ignore[arg-type]
    )


def fates(result: WorldResult) -> dict[str, int]:
    counts = {"on time": result.on_time, "late": result.late, "queued": result.queued, **result.lost}
    return {outcome: int(count.sum()) for outcome, count in counts.items() if count.any()}


def balances(result: WorldResult) -> bool:
    accounted = result.on_time + result.late + result.queued + sum(result.lost.values())
    return bool(np.array_equal(accounted, result.published))


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(20, 40))])
def test_safety_holds_in_every_scheme(seed: int) -> None:
    """A SafetyError (an event twice, accounts that do not balance) names the seed and the virtual time by itself."""
    system = scenario(seed)
    for scheme in SCHEMES:
        result = simulate_world(system, scheme, duration_s=200, seed=seed, options=faults(seed))
        assert balances(result), f"seed {seed}: scenario({seed}), {result.replay}"


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 24))])
def test_buffering_loses_nothing_it_accepted_once_all_is_healed(seed: int) -> None:
    system = scenario(seed, deadline="inf")
    assert system.publishers[0].deadline_s == inf
    options = faults(seed, heal_at_s=310.0, drain_s=600.0)
    for scheme in ("buffering", "bypass-buffering"):
        result = simulate_world(system, scheme, duration_s=300, seed=seed, options=options)
        message = f"seed {seed}: {fates(result)}; scenario({seed}, 'inf'), {result.replay}"
        assert set(fates(result)) <= {"on time", "home broker down"}, message


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 16))])
def test_every_scheme_that_refreshes_works_again_once_all_is_healed(seed: int) -> None:
    """Views, routing tables and buffers recover: what is published after the repair and a refresh all arrives."""
    system = scenario(seed, deadline="200s")
    options = faults(seed, heal_at_s=100.0)
    options = replace(options, jitter_s=min(options.jitter_s, 0.5))  # less than what time-outs allow for
    for scheme in SCHEMES[1:]:
        result = simulate_world(system, scheme, duration_s=550, warm_up_s=450, seed=seed, options=options)
        message = f"seed {seed}: {fates(result)}; scenario({seed}, '200s'), {result.replay}"
        assert result.on_time.sum() == result.published.sum() > 0 or not result.published.sum(), message


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_same_seed_replays_bit_for_bit(scheme: str) -> None:
    system = scenario(3)
    options = Options(jitter_s=1.0, keeps_fates=True)
    results = [simulate_world(system, scheme, duration_s=200, seed=seed, options=options) for seed in (5, 5, 6)]
    assert results[0].digest == results[1].digest != results[2].digest
    assert results[0].fates == results[1].fates
    assert results[0].transitions == results[1].transitions
    other_run = simulate_world(system, scheme, duration_s=200, seed=5, run=1, options=options)
    assert other_run.digest != results[0].digest


def test_a_broken_filter_is_caught_with_its_seed_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks themselves work: without the memory at the last hop an event comes twice, and the run says so."""
    monkeypatch.setattr(NodeEvents, "_deliver_best_effort", lambda self, tree, batch: self._deliver([batch]))

    def search() -> None:
        for seed in range(30):
            simulate_world(scenario(seed, "200s"), "bypass-buffering", duration_s=300, seed=seed)

    pattern = r"at virtual time \d.*not owed it.*replay: simulate_world\(.*seed=\d"
    with pytest.raises(SafetyError, match=pattern) as caught:
        search()
    assert 0 < caught.value.time_s < 600


def test_a_forgotten_copy_is_caught_by_the_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TargetAccount, "lose", lambda self, reason: None)
    with pytest.raises(SafetyError, match=r"the accounts of .* are out by"):
        simulate_world(scenario(4), "periodic-subscription", duration_s=300, seed=4)


def test_a_replay_does_not_depend_on_the_process() -> None:
    """Python orders sets of text differently in every process; nothing that happens may depend on it."""
    run = (
        "options = Options(jitter_s=1.0)\n"
        "digests = [simulate_world(scenario(3), s, duration_s=100, seed=5, options=options).digest"
        " for s in ('bypass', 'bypass-buffering')]"
    )
    here: dict[str, object] = {"Options": Options, "scenario": scenario, "simulate_world": simulate_world}
    exec(run, here)
    there = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from test_protocol_faults import Options, scenario, simulate_world\n{run}\nprint(digests)",
        ],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert there.strip() == str(here["digests"])
