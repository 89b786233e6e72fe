"""Coded delivery and its alternatives in virtual time."""

from surecast.simulation.coding.answer import simulate_alternative, simulate_coding
from surecast.simulation.coding.network import Audience, Channel, audiences_of
from surecast.simulation.coding.outcomes import Outcomes
from surecast.simulation.coding.run import Alternative, Caster, alternatives, needs_compiling, settings_for
from surecast.simulation.coding.sweep import LossPoint, LossSweep, sweep_loss

__all__ = [
    "Alternative",
    "Audience",
    "Caster",
    "Channel",
    "LossPoint",
    "LossSweep",
    "Outcomes",
    "alternatives",
    "audiences_of",
    "needs_compiling",
    "settings_for",
    "simulate_alternative",
    "simulate_coding",
    "sweep_loss",
]
