"""Response targets as an administrator sees them: asked for, decided, and kept so far."""

from __future__ import annotations

import math
from typing import Any

from surecast.protocol.broker import Session
from surecast.protocol.broker.target_results import BUCKETS, bucket_end_s
from surecast.protocol.broker.target_state import TargetState
from surecast.protocol.broker.targets import prior_of

__all__ = ["target_counts", "target_view"]


def target_view(session: Session, state: TargetState, now: float) -> dict[str, Any]:
    """Returns the target of a session, how it is kept, and what was seen of the client."""
    target, decision, results, share = state.target, state.decision, state.results, state.results.share
    is_decided = state.decided > 0
    monitor = session.monitor
    assert monitor is not None, "a session with a target is watched"
    seen = monitor.estimates(now, prior_of(session.limits), session.accounts.matched)
    return {
        "client": session.client,
        "user": session.user or None,
        "connected": session.connection is not None,
        "target": target.text,
        "asked_by": "client" if state.is_own else "rule",
        "policy": decision.policy if is_decided else None,
        "parameter": decision.parameter if is_decided else None,
        "can_be_met": decision.is_met if is_decided else None,
        "reason": decision.reason or None,
        "expected_s": _finite(decision.response_s),
        "expected_high_s": _finite(decision.response_high_s),
        "expected_success": decision.success if is_decided else None,
        "expected_success_low": decision.success_low if is_decided else None,
        "verdict": results.verdict(target.time_s, target.quantile),
        "measured": None if share is None else share.value,
        "measured_low": None if share is None else share.low,
        "measured_high": None if share is None else share.high,
        "measured_is": "share in time" if target.quantile else "mean response time in s",
        "delivered": results.delivered_count,
        "response_times": [
            {"up_to_s": bucket_end_s(number), "count": results.histogram[number]}
            for number in range(BUCKETS)
            if results.histogram[number]
        ],
        "accounts": session.accounts.as_dict(),
        "seen": {
            "connected_periods": round(seen.on.seen, 1),
            "connected_mean_s": seen.on.mean_s,
            "connected_variation": seen.on.variation,
            "disconnected_periods": round(seen.off.seen, 1),
            "disconnected_mean_s": seen.off.mean_s,
            "disconnected_variation": seen.off.variation,
            "arrival_per_s": seen.arrival_per_s,
            "service_per_s": seen.service_per_s,
        },
    }


def target_counts(sessions: list[Session]) -> dict[str, int]:
    """Returns how many targets are met, missed or not known yet, and how many cannot be met."""
    counts = {"met": 0, "missed": 0, "undecided": 0, "unmeetable": 0}
    for session in sessions:
        state = session.target
        if state is not None:
            counts[state.results.verdict(state.target.time_s, state.target.quantile)] += 1
            counts["unmeetable"] += state.decided > 0 and not state.decision.is_met
    return counts


def _finite(value: float) -> float | None:
    return value if value < math.inf else None
