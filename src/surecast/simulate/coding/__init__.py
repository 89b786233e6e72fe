"""Coded delivery and its alternatives in virtual time."""

from surecast.simulate.coding.network import Channel
from surecast.simulate.coding.outcomes import Outcomes
from surecast.simulate.coding.run import Alternative, Caster, alternatives, settings_for

__all__ = ["Alternative", "Caster", "Channel", "Outcomes", "alternatives", "settings_for"]
