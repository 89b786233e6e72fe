"""How many random draws a test has: some each time, the others with `make test-long`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def seeds(quick: int, every: Iterable[int]) -> list[Any]:
    """Returns seeds as parameters of a test: the first ones for every run, the rest marked `long`."""
    numbers = list(every)
    return [*numbers[:quick], *(pytest.param(number, marks=pytest.mark.long) for number in numbers[quick:])]
