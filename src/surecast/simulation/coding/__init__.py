"""Coded delivery and its alternatives in virtual time."""

from surecast.simulation.coding.coding_runs import (
    Caster,
    SimulatedAlternative,
    alternatives,
    needs_compiling,
    settings_for,
)
from surecast.simulation.coding.coding_simulation import simulate_alternative, simulate_coding
from surecast.simulation.coding.loss_sweep import LossPoint, LossSweep, sweep_loss
from surecast.simulation.coding.outcomes import Outcomes
from surecast.simulation.coding.packet_network import LossyChannel, SimulatedAudience, audiences_of

__all__ = [
    "Caster",
    "LossPoint",
    "LossSweep",
    "LossyChannel",
    "Outcomes",
    "SimulatedAlternative",
    "SimulatedAudience",
    "alternatives",
    "audiences_of",
    "needs_compiling",
    "settings_for",
    "simulate_alternative",
    "simulate_coding",
    "sweep_loss",
]
