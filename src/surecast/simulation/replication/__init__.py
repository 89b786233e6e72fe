"""A broker as a group of replicas in virtual time: the real replica code under load and under failures."""

from surecast.simulation.replication.group_load import ClosedLoad, Load, OpenLoad
from surecast.simulation.replication.group_load_run import GroupRun, measure_failovers, simulate_group
from surecast.simulation.replication.outages import draw_replica_traces, simulate_outages
from surecast.simulation.replication.replication_simulation import simulate_group_reliability, simulate_replication

__all__ = [
    "ClosedLoad",
    "GroupRun",
    "Load",
    "OpenLoad",
    "draw_replica_traces",
    "measure_failovers",
    "simulate_group",
    "simulate_group_reliability",
    "simulate_outages",
    "simulate_replication",
]
