"""A response target in virtual time: a client that comes and goes, the core, and the policy computed for it.

The decisions are those of the process that running brokers ask, from what the core has seen; the prediction is for the
periods and rates that the client was driven with.
"""

from __future__ import annotations

import pytest
from benchmarks.response_targets import (
    SERVICE_PER_S,
    Outcome,
    Subscriber,
    exponential_periods,
    moments,
    predicted,
)

from surecast.protocol.broker import Limits

RATE_PER_S, TARGET_S, CYCLES = 2.0, 7.0, 900


def run(policy: str, seed: int) -> Outcome:
    """A client with a target of 7 s on average, over 900 connected periods of which 300 are a warm-up."""
    user = (("surecast-response-mean-ms", "7000"), ("surecast-response-policy", policy))
    return Subscriber(seed, user, RATE_PER_S, SERVICE_PER_S).run(exponential_periods(seed, CYCLES))


@pytest.mark.parametrize(("policy", "seed"), [("best", 1), ("probabilistic", 2), ("finite-buffer", 3), ("expiry", 4)])
def test_the_policy_becomes_the_computed_one_and_keeps_the_target(policy: str, seed: int) -> None:
    periods = exponential_periods(seed, CYCLES)
    on, off = (moments([period[i] for period in periods]) for i in range(2))
    answer = predicted(on, off, RATE_PER_S, policy, TARGET_S)
    outcome = run(policy, seed)
    state = outcome.session.target
    assert state is not None
    limits, defaults = outcome.session.limits, Limits()
    for name, fallback in (
        ("join_threshold", defaults.join_threshold),
        ("join_probability", defaults.join_probability),
        ("queue_messages_max", 10_000),
        ("queue_lifetime_s", defaults.queue_lifetime_s),
    ):
        assert getattr(limits, name) == pytest.approx(answer.get(name, fallback), rel=0.5), name
    share = state.results.share
    assert share is not None
    assert share.low is not None
    assert share.high is not None
    assert share.low < 1.15 * TARGET_S, "the interval has the target in it, or is below"
    assert share.high > 0.6 * TARGET_S, "no more is dropped than the target needs"
    assert outcome.success == pytest.approx(answer["success"], abs=0.06)
    if policy in ("best", "probabilistic"):
        assert outcome.dropped_connected == 0
    assert outcome.asked < 20


def test_a_broker_that_drops_while_the_client_is_connected_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: the threshold holds for connected clients too."""
    from surecast.protocol.broker import outgoing

    real = outgoing.Outgoing._enqueue

    def enqueue(self: object, session: object, *arguments: object) -> bool:
        connection, session.connection = session.connection, None  # type: ignore[attr-defined]
        is_kept = outgoing.joins(session, arguments[0])  # type: ignore[arg-type]
        session.connection = connection  # type: ignore[attr-defined]
        if not is_kept:
            self._drop(session, arguments[0], "not-joined", arguments[4])  # type: ignore[attr-defined]
            return True
        return real(self, session, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(outgoing.Outgoing, "_enqueue", enqueue)
    assert run("best", 1).dropped_connected > 0
