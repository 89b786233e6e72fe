"""Event dropping for subscribers that come and go: on/off queues, mechanisms, targets and the optimal policy."""

from surecast.prediction.dropping.choose import (
    POLICIES,
    PolicyRule,
    best_admission,
    find_mechanisms,
    register_policy,
    unregister_policy,
)
from surecast.prediction.dropping.connection_phases import (
    Phases,
    alternating,
    exponential_phases,
    fitted_phases,
    infinite_queue,
    measured_phases,
    phases_of_moments,
)
from surecast.prediction.dropping.dropping_report import predict_dropping
from surecast.prediction.dropping.onoff import (
    ArrivalAnswer,
    JoinAnswer,
    TargetVerdict,
    accepted_rate_per_s,
    arrival_limit_per_s,
    arrival_rate_for,
    join_probability_for,
    mean_number,
    rate_matrix,
    response_mean_s,
    stationary,
    success_share,
)
from surecast.prediction.dropping.onoff_response_time import (
    join_probability_for_quantile,
    probability_within,
    response_quantile_s,
    tail_terms,
)
from surecast.prediction.dropping.optimal import OptimalPolicy, optimal_policy, program_bound, threshold_policy
from surecast.prediction.dropping.queue import OnOffQueue, QueueAnswer, evaluate
from surecast.prediction.dropping.search import ParameterAnswer, ResponseTarget, largest_parameter

__all__ = [
    "POLICIES",
    "ArrivalAnswer",
    "JoinAnswer",
    "OnOffQueue",
    "OptimalPolicy",
    "ParameterAnswer",
    "Phases",
    "PolicyRule",
    "QueueAnswer",
    "ResponseTarget",
    "TargetVerdict",
    "accepted_rate_per_s",
    "alternating",
    "arrival_limit_per_s",
    "arrival_rate_for",
    "best_admission",
    "evaluate",
    "exponential_phases",
    "find_mechanisms",
    "fitted_phases",
    "infinite_queue",
    "join_probability_for",
    "join_probability_for_quantile",
    "largest_parameter",
    "mean_number",
    "measured_phases",
    "optimal_policy",
    "phases_of_moments",
    "predict_dropping",
    "probability_within",
    "program_bound",
    "rate_matrix",
    "register_policy",
    "response_mean_s",
    "response_quantile_s",
    "stationary",
    "success_share",
    "tail_terms",
    "threshold_policy",
    "unregister_policy",
]
