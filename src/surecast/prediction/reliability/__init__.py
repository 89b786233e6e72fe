"""Real-time reliability under the fault-tolerance schemes of an overlay."""

from surecast.prediction.reliability.delay import PhaseTypeDelay, route_delay
from surecast.prediction.reliability.disjoint import disjoint_path_bound, disjoint_paths
from surecast.prediction.reliability.phase_fit import fit_phase_type
from surecast.prediction.reliability.reliability_report import predict_reliability, subscriber_reliabilities
from surecast.prediction.reliability.sampling import sample_connections
from surecast.prediction.reliability.scheme_reliability import SCHEMES
from surecast.prediction.reliability.two_terminal import ConnectionSolver, connection_probability

__all__ = [
    "SCHEMES",
    "ConnectionSolver",
    "PhaseTypeDelay",
    "connection_probability",
    "disjoint_path_bound",
    "disjoint_paths",
    "fit_phase_type",
    "predict_reliability",
    "route_delay",
    "sample_connections",
    "subscriber_reliabilities",
]
