"""Bursty loss against the sum over all states of all links."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.predict.coding import GilbertElliott, bursty_delivery_probability, bursty_received, on_paths_probability
from surecast.predict.coding.chains import LossyPath, binomial


def enumerated(sent: int, channels: list[GilbertElliott]) -> np.ndarray:
    """Every sequence of states of every link, with the packets that pass in each."""
    found = np.zeros(sent + 1)
    for states in itertools.product(itertools.product((0, 1), repeat=sent), repeat=len(channels)):
        chance, passing = 1.0, np.ones(sent)
        for channel, line in zip(channels, states, strict=True):
            chance *= (1 - channel.bad_share, channel.bad_share)[line[0]]
            chance *= math.prod(float(channel.steps[a, b]) for a, b in itertools.pairwise(line))
            passing *= [1 - (channel.loss_good, channel.loss_bad)[state] for state in line]
        counts = np.ones(1)
        for p in passing:
            counts = np.convolve(counts, [1 - p, p])
        found += chance * counts
    return found


@pytest.mark.parametrize(
    "channels",
    [
        [GilbertElliott(0.1, 0.4)],
        [GilbertElliott(0.2, 0.3, 0.05, 0.7)],
        [GilbertElliott(0.1, 0.4), GilbertElliott(0.3, 0.2, 0.1, 0.9)],
    ],
)
def test_every_state_of_every_link(channels: list[GilbertElliott]) -> None:
    assert np.allclose(bursty_received(4, channels), enumerated(4, channels), atol=1e-12)


def test_without_memory_it_is_independent_loss() -> None:
    channel = GilbertElliott(0.3, 0.7, 0.1, 0.1)
    assert np.allclose(bursty_received(20, [channel]), binomial(20, 0.9), atol=1e-12)
    found = bursty_delivery_probability(16, 4, [[channel]], [20], 8)
    assert found == pytest.approx(on_paths_probability(16, 4, [LossyPath((0.1,))], 8), abs=1e-12)


def test_bursts_hurt_at_equal_loss() -> None:
    bursty = bursty_delivery_probability(32, 8, [[GilbertElliott(0.02, 0.18)]], [40], 8)
    assert bursty < on_paths_probability(32, 8, [LossyPath((0.1,))], 8)


def test_what_has_no_closed_form_is_refused() -> None:
    channel = GilbertElliott(0.02, 0.18)
    with pytest.raises(AssumptionError, match="simulate it"):
        bursty_delivery_probability(4, 1, [[channel, channel]], [5], 8, recode=True)
    with pytest.raises(AssumptionError, match="simulate longer ones"):
        bursty_received(4, [channel] * 11)
    with pytest.raises(ConfigurationError, match="never changes"):
        GilbertElliott(0.0, 0.0)
