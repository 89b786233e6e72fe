"""Runs of a simulation collect garbage rarely, and leave the settings of their process as they were."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from surecast.simulation.experiment.replications import replicate


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(("own", "meanwhile"), [(700, 100_000), (200_000, 200_000), (0, 0)])
def test_a_run_collects_rarely_and_as_before_when_it_is_over(own: int, meanwhile: int) -> None:
    gc.set_threshold(own, 10, 10)
    assert replicate(lambda run: gc.get_threshold(), 2) == [(meanwhile, 10, 10)] * 2
    assert gc.get_threshold() == (own, 10, 10)


def test_a_run_that_fails_leaves_the_settings_as_they_were() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(ZeroDivisionError):
        replicate(lambda run: run // run, 1)
    assert gc.get_threshold() == (700, 10, 10)
