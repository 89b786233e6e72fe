"""A generator of load for any MQTT broker, in processes that know their own lateness, and the check of what comes.

>>> plan = LoadPlan(BrokerAccess("localhost", 1883), publishers=10, subscribers=40, rate_per_s=1000)
>>> plan.copies(0), clients_of(plan)
(40, 52)
"""

from surecast.load.broker_access import BrokerAccess, BrokerConnection, LoadError
from surecast.load.histogram import Histogram
from surecast.load.load_outcome import LoadOutcome
from surecast.load.load_plan import HEADER_BYTES, PREFIX, Arrivals, LoadPlan
from surecast.load.load_run import clients_of, forget, run_load
from surecast.load.process_times import ProcessUse, processes_use

__all__ = [
    "HEADER_BYTES",
    "PREFIX",
    "Arrivals",
    "BrokerAccess",
    "BrokerConnection",
    "Histogram",
    "LoadError",
    "LoadOutcome",
    "LoadPlan",
    "ProcessUse",
    "clients_of",
    "forget",
    "processes_use",
    "run_load",
]
