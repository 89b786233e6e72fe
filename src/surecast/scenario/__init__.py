"""Describes a publish/subscribe system: typed models, YAML, topology generators and readers.

>>> scenario = parse_text('''
... surecast: 1
... name: two brokers
... overlay:
...   brokers: [{name: east}, {name: west}]
...   links: [[east, west]]
... ''')
>>> system = build(scenario)
>>> [broker.name for broker in system.overlay.brokers]
['east', 'west']
"""

from surecast.scenario.build import build
from surecast.scenario.distributions import Distribution, parse_distribution
from surecast.scenario.load import load_system, parse_text, scenario_schema
from surecast.scenario.network import Network, PhysicalLink, Router
from surecast.scenario.spec.scenario import Scenario
from surecast.scenario.streams import Streams
from surecast.scenario.system import (
    Broker,
    ClassWorkload,
    Connectivity,
    Failures,
    FilterClass,
    Overlay,
    OverlayLink,
    Publisher,
    Subscriber,
    System,
    Topic,
)
from surecast.scenario.templates import TEMPLATES, template_text

__all__ = [
    "TEMPLATES",
    "Broker",
    "ClassWorkload",
    "Connectivity",
    "Distribution",
    "Failures",
    "FilterClass",
    "Network",
    "Overlay",
    "OverlayLink",
    "PhysicalLink",
    "Publisher",
    "Router",
    "Scenario",
    "Streams",
    "Subscriber",
    "System",
    "Topic",
    "build",
    "load_system",
    "parse_distribution",
    "parse_text",
    "scenario_schema",
    "template_text",
]
