"""A hundred worlds in which everything goes wrong; `tools/paxos_seeds.py` runs as many as one likes."""

from __future__ import annotations

import pytest

from surecast.protocol.paxos import VARIANTS, Variant
from surecast.simulation.replication.faults import FaultyGroup, expand, run_seed

SEEDS = {3: 30, 5: 8, 7: 3}


@pytest.mark.parametrize("replicas", SEEDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_all_properties_hold(variant: Variant, replicas: int) -> None:
    for seed in range(SEEDS[replicas]):
        outcome = run_seed(seed, replicas, variant)
        assert outcome.held, f"{outcome.violation}; {outcome.options}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_busy_machines_on_which_nothing_fails_keep_their_leader(variant: Variant) -> None:
    for seed in range(3):
        outcome = run_seed(seed, 3, variant, "stalled")
        assert outcome.held, f"{outcome.violation}; {outcome.options}"
        assert outcome.counts["stalls"] > 3


def test_a_machine_that_started_again_has_time_to_hear_more_clocks_than_a_bare_majority() -> None:
    outcome = run_seed(6_000_018, 7, "fast")
    assert outcome.held, f"{outcome.violation}; {outcome.options}"


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = run_seed(5, 3, "fast"), run_seed(5, 3, "fast")
    assert first == second
    assert first.counts["messages"] > 100


def test_the_options_reach_every_kind_of_trouble() -> None:
    options = [expand(seed, 3, "multi") for seed in range(100)]
    trouble = ("loss", "duplication", "straggling", "crash", "torn", "drift", "disk_s", "slow_disk", "replacements")
    for name in (
        *trouble,
        "lazy_delay",
        "urgent_every_s",
        "apply_early",
        "selective",
        "to_leader",
        "split",
        "stall_s",
        "wrong_clocks_s",
    ):
        values = {getattr(one, name) for one in options}
        assert len(values) > 1, name
        assert f" {name}=" in str(options[0])
    assert {one.wire for one in options} == {True, False}
    world = FaultyGroup(options[0])
    world.run()
    assert all(host.replica is not None for host in world.members())
