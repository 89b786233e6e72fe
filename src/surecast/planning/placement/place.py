"""A placement as a scenario of its own, to predict, simulate, draw or save."""

from __future__ import annotations

from collections.abc import Iterable

from surecast.errors import ConfigurationError
from surecast.scenario import Scenario, System
from surecast.scenario.build.collect import expand

__all__ = ["placed_scenario"]


def placed_scenario(scenario: Scenario, system: System, brokers: Iterable[str]) -> Scenario:
    """Returns the scenario with only the named brokers, each written out at its router; all else is as before.

    >>> from surecast.scenario import build, load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> placed = build(placed_scenario(scenario, system, ["office-2", "office-7"]))
    >>> [broker.name for broker in placed.overlay.brokers], len(placed.overlay.links)
    (['office-2', 'office-7'], 1)
    """
    wanted = set(brokers)
    index = system.overlay.index
    for name in sorted(wanted):
        if name not in index:
            raise ConfigurationError(f"there is no broker {name!r} to place; there are: {', '.join(list(index)[:10])}")
    if not wanted or system.network is None:
        raise ConfigurationError("a placement needs at least one broker, in a physical network")
    entries = []
    for entry in scenario.overlay.brokers:
        count = entry.count
        if entry.at == "candidates" and count is None:
            count = len(system.overlay.candidates)
        for name in expand(entry.name, count):
            router = system.overlay.brokers[index[name]].router
            if name in wanted and router is not None:
                router_name = system.network.routers[router].name
                entries.append(entry.model_copy(update={"name": name, "count": None, "at": router_name}))
    overlay = scenario.overlay.model_copy(update={"brokers": entries, "candidates": []})
    return scenario.model_copy(update={"overlay": overlay})
