"""The recursion of gossip against members that are followed one by one, and against enumeration in a group of two."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.predict.coding import GossipLaw, recover, rounds_in_time
from surecast.predict.coding.early import early_exchange


class Members:
    """A group whose members are followed one by one. Every packet that comes is of use: a large field."""

    def __init__(self, law: GossipLaw, first: list[int], success: float, rng: np.random.Generator):
        self.law, self.success, self.rng = law, success, rng
        self.missing = list(first)
        self.since = {m: 0 for m, d in enumerate(first) if not d}
        self.asking: dict[int, int] = {}

    def step(self, t: int) -> None:
        told: dict[int, int] = {}
        for m, start in self.since.items():
            if t - start < self.law.rounds:
                others = [o for o in range(self.law.members) if o != m]
                for o in self.rng.choice(others, min(self.law.fan_out, len(others)), replace=False):
                    told[int(o)] = told.get(int(o), 0) + (self.law.mode == "push" or self.arrives())
        if self.law.mode == "push":
            for o, pushes in told.items():
                came = self.rng.binomial(self.law.packets * pushes, self.success)
                self.missing[o] = max(0, self.missing[o] - came)
        else:
            self.ask(told)
        for m, d in enumerate(self.missing):
            if not d:
                self.since.setdefault(m, t + 1)

    def ask(self, told: dict[int, int]) -> None:
        for o, times in told.items():
            if times and self.missing[o]:
                self.asking.setdefault(o, self.law.rounds)
        for o in list(self.asking):
            self.asking[o] -= 1
            if self.arrives():
                self.missing[o] -= self.rng.binomial(self.missing[o], self.success)
            if not self.missing[o] or not self.asking[o]:
                del self.asking[o]

    def arrives(self) -> bool:
        return bool(self.rng.random() < self.success)


def followed(law: GossipLaw, first: list[int], success: float, steps: int, seed: int, runs: int) -> np.ndarray:
    """Share of runs in which each member is complete at the end."""
    rng = np.random.default_rng(seed)
    ends = np.zeros(law.members)
    for _ in range(runs):
        group = Members(law, first, success, rng)
        for t in range(steps):
            group.step(t)
        ends += [not d for d in group.missing]
    return ends / runs


@pytest.mark.parametrize(
    ("mode", "success", "steps", "rounds"),
    [("push-pull", 0.8, 4, 3), ("push-pull", 0.6, 7, 2), ("pull", 0.9, 3, 2), ("push", 0.5, 2, 2)],
)
def test_a_group_of_forty(mode: str, success: float, steps: int, rounds: int) -> None:
    """Epidemic recursion (coded delivery section IV): the mean over members is right to two percent."""
    law = GossipLaw(mode, members=40, packets=6, fan_out=2, rounds=rounds)
    first = [0] * 16 + [1] * 12 + [3] * 8 + [6] * 4
    counts = np.bincount(first, minlength=7).astype(np.float64)
    found = recover(law, counts, success, steps)
    ends = followed(law, first, success, steps, seed=4, runs=150)
    for d in (1, 3, 6):
        mine = float(ends[[i for i, m in enumerate(first) if m == d]].mean())
        error = 2.5 * math.sqrt(mine * (1 - mine) / (150 * first.count(d)))
        assert found.complete[d] == pytest.approx(mine, abs=0.02 + error)


def test_a_group_of_two_is_exact() -> None:
    """One has the event and the other misses two packets: every digest, request and answer is summed over."""
    success, rounds = 0.7, 2

    def ask(missing: int, tries: int, t: int, steps: int) -> float:
        """It asks now, and goes on until its tries are over."""
        if missing == 0:
            return 1.0
        if t == steps:
            return 0.0
        if not tries:
            return idle(missing, t, steps)
        kept = 1.0 - success
        still = kept * ask(missing, tries - 1, t + 1, steps)
        for got in range(missing + 1):
            chance = math.comb(missing, got) * success**got * kept ** (missing - got)
            still += success * chance * ask(missing - got, tries - 1, t + 1, steps)
        return still

    def idle(missing: int, t: int, steps: int) -> float:
        if t >= steps:
            return 0.0
        met = success if t < rounds else 0.0
        return met * ask(missing, rounds, t, steps) + (1.0 - met) * idle(missing, t + 1, steps)

    law = GossipLaw("push-pull", members=2, packets=2, fan_out=1, rounds=rounds, coded=False)
    for steps in (1, 2, 3, 4):
        found = recover(law, np.array([1.0, 0.0, 1.0]), success, steps)
        assert found.complete[2] == pytest.approx(idle(2, 0, steps), abs=1e-12)


def test_forward_and_backward_agree() -> None:
    law = GossipLaw("push-pull", members=100, packets=8, fan_out=3, rounds=4, field_bits=1, overlap=2)
    counts = np.array([50.0, 10, 10, 10, 5, 5, 5, 3, 2])
    found = recover(law, counts, 0.75, 6)
    assert float(counts @ found.complete) == pytest.approx(float(found.spread.complete[-1]), rel=1e-9)


def test_nobody_can_help_where_nobody_has_the_event() -> None:
    law = GossipLaw("push", members=4, packets=3, fan_out=2, rounds=3)
    found = recover(law, np.array([0.0, 1.0, 2.0, 1.0]), 0.9, 5)
    assert found.complete[1:].tolist() == [0.0, 0.0, 0.0]
    assert sum(found.spread.messages.values()) == 0.0


def test_messages_of_one_round_by_hand() -> None:
    """Two of three have the event; each tells one of two others, and the third asks once for its two packets."""
    law = GossipLaw("push-pull", members=3, packets=2, fan_out=1, rounds=1)
    sent = recover(law, np.array([2.0, 0.0, 1.0]), 1.0, 1).spread.messages
    assert sent["digest"] == pytest.approx(2.0)
    assert sent["request"] == pytest.approx(0.75)
    assert sent["reply"] == pytest.approx(1.5)


def test_rounds_before_a_deadline() -> None:
    assert rounds_in_time(1.0, 0.5, 0.1, 0.6, "push") == 0
    assert rounds_in_time(1.0, 0.5, 0.1, 0.5, "push") == 1
    assert rounds_in_time(1.0, 0.5, 0.1, 0.3, "push-pull") == 3
    assert rounds_in_time(1.0, 0.5, 0.1, 0.3, "pull") == 2


def test_nothing_is_early_where_all_are_served_together() -> None:
    law = GossipLaw("push-pull", members=10, packets=4, fan_out=2, rounds=3)
    times = np.full((2, 2), 0.2)
    early = early_exchange(
        law, np.array([5.0, 5.0]), np.ones(2), np.zeros((2, 5)), times, np.full((2, 2), 0.1), 1.0, 0.1
    )
    assert (early.requests, early.replies, early.completed.tolist()) == (0.0, 0.0, [0.0, 0.0])


def test_refusals_name_the_field() -> None:
    with pytest.raises(ConfigurationError, match="gossip mode 'shout'"):
        GossipLaw("shout", 2, 2, 1, 1)
    law = GossipLaw("push", 3, 2, 1, 1)
    with pytest.raises(AssumptionError, match="the group has 3"):
        recover(law, np.array([1.0, 0.0, 1.0]), 0.9, 1)
