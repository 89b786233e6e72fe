"""Costs of a broker: profiles that `surecast calibrate` measures and scenarios take, and what a load then uses.

>>> from surecast.profile import BrokerLoad, BrokerProfile
>>> profile = BrokerProfile.of("example", {"message": 10e-6, "delivery": 5e-6})
>>> use = profile.use_of(BrokerLoad(messages_per_s=1000.0, deliveries_per_s=40_000.0))
>>> round(use.utilisation, 3)
0.21
"""

from surecast.profile.broker_load import BrokerLoad, BrokerUse, quantities
from surecast.profile.profile_file import load_profile
from surecast.profile.profile_spec import COSTS, BrokerProfile, Costs, Interval, MachineSpec, MemoryCosts

__all__ = [
    "COSTS",
    "BrokerLoad",
    "BrokerProfile",
    "BrokerUse",
    "Costs",
    "Interval",
    "MachineSpec",
    "MemoryCosts",
    "load_profile",
    "quantities",
]
