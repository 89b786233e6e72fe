"""What simulators run of the protocol is what brokers and clients run: the README says so."""

from __future__ import annotations

import re
from pathlib import Path

import surecast

SOURCE = Path(surecast.__file__).parent
NOT_RUN = {
    "surecast.protocol.overlay.plan_of_system": "makes the plan of a scenario, which brokers read from their file",
    "surecast.protocol.paxos.example_store": "a service for tests of consensus; the groups of brokers run theirs",
}
"""Modules of the protocol that simulators import and no broker or client does, each with the reason. None of them
routes, forwards, stores or agrees."""

_FROM = re.compile(r"^[ \t]*from (surecast[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import (surecast[\w.]*)", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?: as (\w+))?[ ]*(?:#[^\n]*)?(?:,|\)|$|\n)")


class ImportGraph:
    """The modules of a source folder, with their imports. A name that a package only passes on leads to the module that
    has it, so that one name of a package does not reach all of it."""

    def __init__(self, source: Path):
        self.texts: dict[str, str] = {}
        self.packages: set[str] = set()
        for path in source.rglob("*.py"):
            parts = path.relative_to(source.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.texts[name] = path.read_text("utf-8")
            if parts[-1] == "__init__":
                self.packages.add(name)

    def names(self, module: str) -> list[tuple[str, str, str]]:
        """Returns what a module imports by name: the module, the name there, and the name here."""
        return [
            (source, name, other or name)
            for source, names in _FROM.findall(self.texts[module])
            for name, other in _NAME.findall(names.strip("("))
        ]

    def imports(self, module: str) -> set[str]:
        """Returns the modules that a module imports."""
        found = {self.resolve(source, name) for source, name, _ in self.names(module)}
        return (found | set(_IMPORT.findall(self.texts[module]))) & self.texts.keys()

    def resolve(self, module: str, name: str) -> str:
        """Returns the module where a name is that is imported from another one."""
        if f"{module}.{name}" in self.texts:
            return f"{module}.{name}"
        for source, there, here in self.names(module) if module in self.packages else ():
            if here == name:
                return self.resolve(source, there)
        return module

    def reached(self, *packages: str) -> set[str]:
        """Returns the modules of some packages and all that they import, directly or not."""
        waiting = [name for name in self.texts if any(f"{name}.".startswith(f"{package}.") for package in packages)]
        reached = set(waiting)
        for module in waiting:
            new = self.imports(module) - reached if module not in self.packages else set()
            reached |= new
            waiting += new
        return reached


def only_simulated(graph: ImportGraph) -> set[str]:
    """Returns the modules of the protocol that simulators reach, and brokers and clients do not."""
    simulated, run = graph.reached("surecast.simulation"), graph.reached("surecast.broker", "surecast.client")
    return {name for name in simulated - run - graph.packages if name.startswith("surecast.protocol.")}


def test_all_that_simulators_run_of_the_protocol_brokers_run_too() -> None:
    graph = ImportGraph(SOURCE)
    assert only_simulated(graph) == set(NOT_RUN)
    simulated = graph.reached("surecast.simulation")
    for part in ("overlay.overlay_node", "overlay.custody", "demand.tree_demand", "link.link_session", "paxos.replica"):
        assert f"surecast.protocol.{part}" in simulated


def test_a_part_of_the_protocol_that_simulators_alone_import_is_noticed() -> None:
    graph = ImportGraph(SOURCE)
    graph.texts["surecast.protocol.overlay.special"] = ""
    graph.texts["surecast.simulation.capacity.routed_brokers"] += (
        "\nfrom surecast.protocol.overlay.special import thing\n"
    )
    assert "surecast.protocol.overlay.special" in only_simulated(graph)
