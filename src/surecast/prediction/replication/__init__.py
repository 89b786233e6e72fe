"""A broker as a group of replicas: latency, throughput, processor time and availability by formula."""

from surecast.prediction.replication.calibrate import Calibration, Measurement, fit_costs, predict_measurement
from surecast.prediction.replication.chain import GroupChain, group_chain, reversible_chain
from surecast.prediction.replication.election_time import failover_s
from surecast.prediction.replication.performance import (
    GroupPerformance,
    predict_closed,
    predict_open,
    saturation_per_s,
)
from surecast.prediction.replication.replication_report import predict_replication

__all__ = [
    "Calibration",
    "GroupChain",
    "GroupPerformance",
    "Measurement",
    "failover_s",
    "fit_costs",
    "group_chain",
    "predict_closed",
    "predict_measurement",
    "predict_open",
    "predict_replication",
    "reversible_chain",
    "saturation_per_s",
]
