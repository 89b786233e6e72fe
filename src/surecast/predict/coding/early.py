"""Gossip that comes before its time: subscribers that are told of an event whose packets are still on their way ask
for what they miss at that moment, which costs answers and completes some events sooner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.predict.coding.gossip import GossipLaw, Success, answer_matrix, mean_of

__all__ = ["Early", "early_exchange"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Early:
    """Requests and answers that packets under way would have made needless, for one event, and the part of the events
    of each home broker's subscribers that they complete before relays have made up for losses."""

    requests: float
    replies: float
    completed: Array


def early_exchange(
    law: GossipLaw,
    weights: Array,
    at_once: Array,
    missing: Array,
    times_s: Array,
    latency_s: Array,
    success: Success,
    interval_s: float,
    patience_s: float = 0.0,
) -> Early:
    """Estimates what is asked for too early.

    Of the subscribers of home broker h, `weights[h]`, a part `at_once[h]` is complete at `times_s[0, h]` and announces
    the event; the others miss d packets with probability `missing[h, d]` until `times_s[1, h]`, when relays have made
    up for losses. Before `times_s[0, h]` they miss all. Who hears of the event asks after `patience_s`.

    >>> law = GossipLaw("push-pull", members=2, packets=4, fan_out=1, rounds=1)
    >>> away = np.array([[0.0, 0.1], [0.1, 0.0]])
    >>> empty = np.zeros((2, 5))
    >>> times = np.array([[0.0, 0.5], [0.0, 0.5]])
    >>> round(early_exchange(law, np.ones(2), np.ones(2), empty, times, away, 1.0, 0.1).replies, 2)
    2.53
    """
    if law.mode == "push" or law.rounds == 0:
        return Early(0.0, 0.0, np.zeros(len(weights)))
    delay_s = patience_s + (0.5 * interval_s if law.mode == "pull" else 0.0)
    heard = times_s[0][:, None] + latency_s + delay_s  # row: who announces, column: who hears
    before = _rounds(times_s[0][None, :] - heard, interval_s, law.rounds)
    within = _rounds(times_s[1][None, :] - heard, interval_s, law.rounds) - before
    mean = mean_of(success)
    reach = weights * at_once * law.meets(mean)
    met_before, met_within = -np.expm1(-(reach @ before)), -np.expm1(-(reach @ within))
    # Who has asked before goes on asking while packets are made up for.
    met = met_before + (1.0 - met_before) * met_within
    tries = np.minimum(law.rounds, np.floor((times_s[1] - times_s[0]) / interval_s) + (times_s[1] > times_s[0]))
    answer = answer_matrix(law, success)
    count = np.arange(law.packets + 1)
    requests = float(weights @ met_before)
    replies = float(weights @ met_before) * law.packets * mean
    completed = np.zeros(len(weights))
    for h, most in enumerate(tries):
        left = missing[h].copy()
        for _ in range(int(most)):
            asking = left[1:].sum() * met[h]
            requests += float(weights[h] * asking)
            replies += float(weights[h] * met[h] * (left[1:] @ count[1:])) * mean
            after = left @ answer
            completed[h] += met[h] * after[0]
            after[0] = 0.0
            left = after
    return Early(requests, replies, completed)


def _rounds(left_s: Array, interval_s: float, most: int) -> Array:
    """Rounds that begin in a time; none if it is negative."""
    return np.clip(np.where(left_s > 0.0, np.floor(left_s / interval_s) + 1.0, 0.0), 0.0, most)
