"""Physical networks from files of eight formats, and from generators."""

from surecast.scenario.topology.domains import with_domains
from surecast.scenario.topology.generate import random_network, transit_stub, tree_network
from surecast.scenario.topology.raw import ReadOptions
from surecast.scenario.topology.read import FORMATS, read_network

__all__ = [
    "FORMATS",
    "ReadOptions",
    "random_network",
    "read_network",
    "transit_stub",
    "tree_network",
    "with_domains",
]
