"""Times of a running group that its predictions and simulations have to share."""

__all__ = ["BATCHING_S", "LAZY_DELAY_S"]

BATCHING_S = 1e-3
"""The time for which a leader collects requests while an instance is in flight, or delays a commit notification."""
LAZY_DELAY_S = 5e-3
"""The time for which a leader holds back proposals to lazy replicas, so that several go together."""
