from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from surecast.scenario.streams import Streams

names = st.lists(st.text(max_size=8), min_size=1, max_size=20, unique=True)


@given(st.integers(0, 2**63 - 1), names, st.text(max_size=5))
def test_a_draw_depends_on_its_own_name_only(seed: int, wanted: list[str], extra: str) -> None:
    streams = Streams(seed)
    alone = [float(streams.uniforms("x", [name])[0]) for name in wanted]
    assert list(streams.uniforms("x", [extra, *wanted])[1:]) == alone
    assert np.array_equal(
        streams.uniform_pairs("x", wanted, wanted), streams.uniform_pairs("x", [*wanted, extra], wanted)[:-1]
    )


def test_seeds_and_purposes_give_different_draws() -> None:
    draws = {float(Streams(s).uniforms(p, [n])[0]) for s in (1, 2) for p in ("a", "b") for n in ("x", "y")}
    assert len(draws) == 8


def test_uniforms_are_uniform_and_pairs_are_independent() -> None:
    streams = Streams(3)
    labels = [str(i) for i in range(300)]
    pairs = streams.uniform_pairs("p", labels, labels)
    assert stats.kstest(streams.uniforms("u", [str(i) for i in range(20_000)]), "uniform").pvalue > 0.001
    assert stats.kstest(pairs.ravel(), "uniform").pvalue > 0.001
    assert abs(np.corrcoef(pairs[0], pairs[1])[0, 1]) < 0.2
    assert abs(np.corrcoef(pairs[:, 0], pairs[:, 1])[0, 1]) < 0.2


def test_a_further_option_moves_only_those_who_choose_it() -> None:
    streams = Streams(5)
    clients = [f"c{i}" for i in range(2000)]
    before = streams.choose("home", clients, ["b0", "b1", "b2"])
    after = streams.choose("home", clients, ["b0", "b1", "b2", "b3"])
    moved = before != after
    assert set(after[moved]) == {3}
    assert 0.2 < moved.mean() < 0.3
    assert np.bincount(before).min() > 550


def test_generators_are_reproducible_and_distinct() -> None:
    first = Streams(1).generator("failures", "b0").random(5)
    assert np.array_equal(first, Streams(1).generator("failures", "b0").random(5))
    assert not np.array_equal(first, Streams(1).generator("failures", "b1").random(5))


def test_between_draws_only_where_there_is_a_range() -> None:
    streams = Streams(1)
    assert streams.between("x", "n", 4.0, 4.0) == 4.0
    assert 1 <= streams.between("x", "n", 1, 2) < 2
