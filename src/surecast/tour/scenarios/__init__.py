"""The scenarios of the tour. All but `check` are also among the examples of the source tree."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Final

from surecast.scenario import Scenario

__all__ = ["SCENARIOS", "load_scenario"]

SCENARIOS: Final = ("company", "reliability-graph", "dropping", "diamond", "check")


def load_scenario(name: str) -> Scenario:
    """Returns one of the scenarios.

    >>> load_scenario("check").name
    'check'
    """
    with as_file(files(__name__) / f"{name}.yaml") as path:
        return Scenario.load(path)
