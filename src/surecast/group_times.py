"""Times of a running group that its predictions and simulations have to share."""

__all__ = ["BATCHING_S", "LAZY_DELAY_S"]

BATCHING_S = 1e-3
"""How long a leader collects requests while an instance is in flight, and delays the notification of a commit."""
LAZY_DELAY_S = 5e-3
"""How long a leader holds back proposals to replicas whose votes it does not need, so that several go together."""
