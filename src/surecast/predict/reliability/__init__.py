"""Real-time reliability under the fault-tolerance schemes of an overlay."""

from surecast.predict.reliability.answer import predict_reliability
from surecast.predict.reliability.connection import ConnectionSolver, connection_probability
from surecast.predict.reliability.delay import PhaseTypeDelay, route_delay
from surecast.predict.reliability.disjoint import disjoint_path_bound, disjoint_paths
from surecast.predict.reliability.phase_fit import fit_phase_type
from surecast.predict.reliability.sampling import sample_connections
from surecast.predict.reliability.schemes import SCHEMES

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
]
