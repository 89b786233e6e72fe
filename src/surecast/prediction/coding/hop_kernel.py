"""Compiled sending again over one hop: packets, acknowledgements and the timer, one draw after the other."""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from surecast.kernels import njit
from surecast.prediction.coding.gossip_kernel_parts import GOOD, UNMET, moved

__all__ = ["HopLaw", "cross_hop"]

_SENT, _ACKNOWLEDGED = 0, 1
_DATA_HEAD, _DATA_END, _ACK_HEAD, _ACK_END, _ORDER, _ARRIVED, _WAITING, _SILENCES, _FORTH, _BACK = range(10)
"""Indices of numbers: of packets and acknowledgements under way the first and the end, packets that were sent, arrived
and wait, silences in a row, and the state of the link in both directions."""


class HopLaw(NamedTuple):
    """A link whose packets are acknowledged. It is good or bad, for packets and for acknowledgements on its own, and
    moves on with each; without bursts the next state does not depend on this one. `silence_s` is waited for an
    acknowledgement, and twice that from the second time in a row on."""

    loss: float
    to_bad: float
    to_good: float
    latency_s: float
    busy_s: float
    silence_s: float
    tries_max: int
    deadline_s: float


@njit(cache=True)
def cross_hop(words, law, came_s, over_s, sent):
    """Writes when packets (columns) that come to a link at these times get over it, in each draw (rows); infinite if
    not in time. `sent` gets the packets and the acknowledgements of all draws.

    An acknowledgement says which transmission it answers and all that has come: what was sent before and has not come
    is sent again at once. In silence the oldest packet is sent again.
    """
    draws, packets = came_s.shape
    room = packets * law.tries_max + 1
    n = np.empty(10, np.int64)
    data_s, data = np.empty(room), np.empty((room, 2), np.int64)
    ack_s, ack = np.empty(room), np.empty((room, 3), np.int64)
    attempt, order, arrival_rank = np.empty(packets, np.int64), np.empty(packets, np.int64), np.empty(packets, np.int64)
    busy_s = np.empty(1)
    for draw in range(draws):
        coming = np.argsort(came_s[draw], kind="mergesort")
        over_s[draw] = np.inf
        attempt[:] = 0
        arrival_rank[:] = room
        n[:] = 0
        n[_FORTH], n[_BACK] = UNMET, UNMET
        busy_s[0] = 0.0
        fresh = 0
        timer_s = np.inf
        while True:
            fresh_s = came_s[draw, coming[fresh]] if fresh < packets else np.inf
            next_s = data_s[n[_DATA_HEAD]] if n[_DATA_HEAD] < n[_DATA_END] else np.inf
            heard_s = ack_s[n[_ACK_HEAD]] if n[_ACK_HEAD] < n[_ACK_END] else np.inf
            now = min(fresh_s, next_s, heard_s, timer_s)
            if now >= law.deadline_s:
                break
            if now == next_s:
                _arrive(words, law, n, data, ack_s, ack, arrival_rank, over_s[draw], now, sent)
                continue
            if now == heard_s:
                _hear(words, law, n, data_s, data, ack, attempt, order, arrival_rank, busy_s, now, sent)
            elif now == fresh_s:
                n[_WAITING] += 1
                _send(words, law, n, data_s, data, attempt, order, busy_s, coming[fresh], now, sent)
                fresh += 1
            else:
                n[_SILENCES] += 1
                _send(words, law, n, data_s, data, attempt, order, busy_s, _oldest(attempt, order), now, sent)
            timer_s = now + law.silence_s * 2.0 ** min(n[_SILENCES], 1) if n[_WAITING] > 0 else np.inf


@njit(cache=True)
def _send(words, law, n, data_s, data, attempt, order, busy_s, number, now, sent):
    """Sends a packet, unless it was sent often enough; it takes its time on the link, and may be lost behind it."""
    if attempt[number] >= law.tries_max:
        attempt[number] = 0
        n[_WAITING] -= 1
        return
    attempt[number] += 1
    n[_ORDER] += 1
    order[number] = n[_ORDER]
    sent[_SENT] += 1
    busy_s[0] = max(now, busy_s[0]) + law.busy_s
    n[_FORTH] = moved(words, n[_FORTH], law.loss, law.to_bad, law.to_good)
    if n[_FORTH] == GOOD:
        data_s[n[_DATA_END]] = busy_s[0] + law.latency_s
        data[n[_DATA_END], 0], data[n[_DATA_END], 1] = number, attempt[number]
        n[_DATA_END] += 1


@njit(cache=True)
def _arrive(words, law, n, data, ack_s, ack, arrival_rank, over_s, now, sent):
    """Handles a packet that crossed the link: acknowledges it together with all that arrived before."""
    number, attempt = data[n[_DATA_HEAD], 0], data[n[_DATA_HEAD], 1]
    n[_DATA_HEAD] += 1
    if over_s[number] == np.inf:
        arrival_rank[number] = n[_ARRIVED]
        n[_ARRIVED] += 1
        over_s[number] = now
    sent[_ACKNOWLEDGED] += 1
    n[_BACK] = moved(words, n[_BACK], law.loss, law.to_bad, law.to_good)
    if n[_BACK] == GOOD:
        end = n[_ACK_END]
        ack_s[end] = now + law.latency_s
        ack[end, 0], ack[end, 1], ack[end, 2] = number, attempt, n[_ARRIVED]
        n[_ACK_END] += 1


@njit(cache=True)
def _hear(words, law, n, data_s, data, ack, attempt, order, arrival_rank, busy_s, now, sent):
    """Handles an acknowledgement: a packet sent before the acknowledged one that has not arrived is lost."""
    number, of_attempt, arrived = ack[n[_ACK_HEAD], 0], ack[n[_ACK_HEAD], 1], ack[n[_ACK_HEAD], 2]
    n[_ACK_HEAD] += 1
    if n[_WAITING] == 0:
        return
    before = order[number] if attempt[number] == of_attempt else 0
    for k in range(len(attempt)):
        if attempt[k] > 0 and arrival_rank[k] < arrived:
            attempt[k] = 0
            n[_WAITING] -= 1
    n[_SILENCES] = 0
    for k in range(len(attempt)):
        if attempt[k] > 0 and order[k] < before:
            _send(words, law, n, data_s, data, attempt, order, busy_s, k, now, sent)


@njit(cache=True)
def _oldest(attempt, order):
    """Returns the waiting packet that was sent first."""
    oldest = -1
    for k in range(len(attempt)):
        if attempt[k] > 0 and (oldest < 0 or order[k] < order[oldest]):
            oldest = k
    return oldest
