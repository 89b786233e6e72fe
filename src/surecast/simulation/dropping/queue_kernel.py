"""Compiled queues: the broker's input queue, a subscriber's ON/OFF output queue, and the counting of what they did.

Nothing here draws: every random number is an argument, one of each kind per event, so that different mechanisms work
on the same events, coins, lifetimes and service times.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from surecast.kernels import njit

__all__ = [
    "AREA",
    "BINS",
    "BUSY",
    "CONNECTED",
    "DELAY",
    "DELIVERED",
    "EXPIRED_INPUT",
    "EXPIRED_OFF",
    "EXPIRED_ON",
    "INPUT_OVERFLOW",
    "LATE",
    "LOWEST_BIN",
    "MET_OFF",
    "MET_ON",
    "NOT_MET",
    "OUTCOMES",
    "OVERFLOW",
    "QUEUED",
    "REJECTED",
    "RESPONSE",
    "STATES",
    "SUB_BITS",
    "SUMS",
    "connected_time",
    "count_outcomes",
    "get_through",
    "input_queue",
    "output_queue",
    "sweep",
]

QUEUED, DELIVERED, REJECTED, OVERFLOW, EXPIRED_OFF, EXPIRED_ON, EXPIRED_INPUT, INPUT_OVERFLOW = range(8)
"""The outcomes of an event; expiry in the subscriber's queue is by the state at that instant."""
OUTCOMES = 8

MET_OFF, MET_ON, NOT_MET = range(3)
"""The states in which an event finds its subscriber; those that never got to its queue did not find it at all."""
STATES = 3

RESPONSE, DELAY, LATE, AREA, BUSY, CONNECTED = range(6)
"""The other sums: response times and delays of delivered events, and how many of them were late; over the time
that counts, the integrals of the queue length, of the transmissions, and of the connected state."""
SUMS = 6

SUB_BITS = 6
"""Times are counted in bins of their leading bits: 2**6 bins for each power of two, at most 1.6 % wide."""
_SHIFT = 52 - SUB_BITS
LOWEST_BIN = (1023 - 24) << SUB_BITS
"""The bin of 2**-24 s; what is shorter is counted there."""
BINS = 60 << SUB_BITS
"""Up to 2**36 s."""


@njit(cache=True, nogil=True)
def input_queue(arrivals, services, size, departures):
    """A first-come-first-served queue that holds `size` events, the one in service included (0: any number).

    Writes when each event leaves, -1 for those that find the queue full.
    """
    last = 0.0
    oldest = 0
    present = 0
    for i in range(len(arrivals)):
        if size > 0:
            while present > 0 and departures[oldest] <= arrivals[i]:
                if departures[oldest] >= 0.0:
                    present -= 1
                oldest += 1
            if present >= size:
                departures[i] = -1.0
                continue
            if present == 0:
                oldest = i
            present += 1
        last = max(last, arrivals[i]) + services[i]
        departures[i] = last


@njit(cache=True, nogil=True)
def connected_time(is_on, switches, begin, stop):
    """For how long a subscriber is connected between two times."""
    total = since = 0.0
    for i in range(len(switches)):
        if is_on:
            total += max(0.0, min(switches[i], stop) - max(since, begin))
        is_on = not is_on
        since = switches[i]
        if since >= stop:
            return total
    return total + max(0.0, stop - max(since, begin)) if is_on else total


@njit(cache=True, nogil=True)
def get_through(published, arrivals, expiries, window, counts):
    """Returns which events get through the input queue before they expire; counts those that do not.

    The broker processes an event that has expired as it does one that nobody asked for: it keeps its place.
    """
    begin, stop, horizon = window
    kept = np.ones(len(published), dtype=np.bool_)
    for i in range(len(published)):
        what = QUEUED
        if arrivals[i] < 0.0:
            what = INPUT_OVERFLOW
        elif len(expiries) > 0 and expiries[i] <= min(arrivals[i], horizon):
            what = EXPIRED_INPUT
        if what != QUEUED:
            kept[i] = False
            counts[NOT_MET, what] += begin <= published[i] < stop
    return kept


@njit(cache=True, nogil=True)
def _sift_up(times, events, at):
    while at > 0:
        parent = (at - 1) // 2
        if times[parent] <= times[at]:
            break
        times[parent], times[at] = times[at], times[parent]
        events[parent], events[at] = events[at], events[parent]
        at = parent


@njit(cache=True, nogil=True)
def _pop(times, events, size):
    """Takes the earliest off a heap of `size` entries."""
    size -= 1
    times[0], events[0] = times[size], events[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            return size
        if child + 1 < size and times[child + 1] < times[child]:
            child += 1
        if times[at] <= times[child]:
            return size
        times[at], times[child] = times[child], times[at]
        events[at], events[child] = events[child], events[at]
        at = child


@njit(cache=True, nogil=True)
def _decide(count, size, row, coin):
    """Returns whether an arrival joins: first there must be room, then the coin decides."""
    if size > 0 and count >= size:
        return OVERFLOW
    probability = row[min(count, len(row) - 1)]
    return QUEUED if probability >= 1.0 or coin < probability else REJECTED


@njit(cache=True, nogil=True)
def output_queue(  # noqa: C901 - one loop over one state: split up further, it takes three times as long
    arrivals, coins, expiries, services, is_on, switches, rules, join_off, join_on, window, outcome, met_on, finish
):
    """The ON/OFF queue of one subscriber: what becomes of each event, and when.

    `expiries` says when each event expires, and is empty where none does. `is_on` is the state at time 0, `switches`
    the times at which it changes. `rules` are the buffer size (0: any), whether arrivals while ON are protected, and
    whether events expire in the order in which they arrive. `join_off` and `join_on` are join probabilities by the
    number of events present, the last for all larger ones. `window` is the time over which integrals run, and the end
    of the run.

    At equal times a transmission ends before an event expires, the state changes after both, and arrivals come last.
    Returns the integral of the queue length and the time of transmission.
    """
    size, protect, in_order = rules
    begin, stop, horizon = window
    total, expires = len(arrivals), len(expiries) > 0
    heap_times = np.empty(0 if in_order else len(expiries))
    heap_events = np.empty(len(heap_times), dtype=np.int64)
    arrived = switched = head = oldest = count = heap = 0
    area = busy = now = remaining = 0.0
    completion = expiry = math.inf
    while count > 0 or arrived < total:
        next_arrival = arrivals[arrived] if arrived < total else math.inf
        next_switch = switches[switched] if switched < len(switches) else math.inf
        time = min(min(completion, expiry), min(next_switch, next_arrival))
        span = max(0.0, min(time, stop) - max(now, begin))
        area += count * span
        busy += span if completion < math.inf else 0.0
        if time > horizon:
            break
        now = time
        if min(completion, expiry) == time:
            left = head if completion == time else oldest
            outcome[left] = DELIVERED if completion == time else EXPIRED_ON if is_on else EXPIRED_OFF
            finish[left] = time
            count -= 1
            if left == head:
                while count > 0 and outcome[head] != QUEUED:
                    head += 1
                remaining = services[head]
                completion = time + remaining if is_on and count > 0 else math.inf
            if expires and in_order:
                while oldest < arrived and (outcome[oldest] != QUEUED or (protect and met_on[oldest])):
                    oldest += 1
                expiry = expiries[oldest] if oldest < arrived else math.inf
            elif heap > 0:
                while heap > 0 and outcome[heap_events[0]] != QUEUED:
                    heap = _pop(heap_times, heap_events, heap)
                oldest, expiry = heap_events[0], (heap_times[0] if heap > 0 else math.inf)
        elif next_switch == time:
            switched += 1
            is_on = not is_on
            if not is_on and count > 0:
                remaining = completion - time
            completion = time + remaining if is_on and count > 0 else math.inf
        else:
            event = arrived
            arrived += 1
            met_on[event] = is_on
            finish[event] = time
            protected = protect and is_on
            if not protected:
                outcome[event] = _decide(count, size, join_on if is_on else join_off, coins[event])
            if outcome[event] != QUEUED:
                continue
            count += 1
            if count == 1:
                head, remaining = event, services[event]
                completion = time + remaining if is_on else math.inf
            if protected or not expires:
                continue
            if in_order:
                if expiry == math.inf:
                    oldest, expiry = event, expiries[event]
            else:
                heap_times[heap], heap_events[heap] = expiries[event], event
                _sift_up(heap_times, heap_events, heap)
                heap += 1
                oldest, expiry = heap_events[0], heap_times[0]
    return area, busy


@njit(cache=True, nogil=True)
def count_outcomes(published, deadlines, arrivals, outcome, met_on, finish, window, counts, sums, responses, delays):
    """Adds up what became of the events published within the window: counts, sums, and bins of times."""
    begin, stop, horizon = window
    value = np.empty(1)
    bits = value.view(np.int64)
    for i in range(len(published)):
        if not begin <= published[i] < stop:
            continue
        what = outcome[i]
        state = MET_ON if met_on[i] else MET_OFF
        counts[state if arrivals[i] <= horizon else NOT_MET, what] += 1
        if what == DELIVERED:
            delay = finish[i] - published[i]
            sums[RESPONSE] += finish[i] - arrivals[i]
            sums[DELAY] += delay
            if delay > deadlines[i % len(deadlines)]:
                sums[LATE] += 1.0
            value[0] = finish[i] - arrivals[i]
            responses[min(max((bits[0] >> _SHIFT) - LOWEST_BIN, 0), BINS - 1)] += 1
            value[0] = delay
            delays[min(max((bits[0] >> _SHIFT) - LOWEST_BIN, 0), BINS - 1)] += 1


@njit(cache=True, nogil=True)
def sweep(
    rates, service_s, input_s, unit_arrivals, unit_inputs, coins, unit_lifetimes, unit_services, start, switches, rules,
    lifetime_s, table_offsets, tables_off, tables_on, window, counts, sums, responses, delays
):  # fmt: skip
    """All points of a sweep on the same unit draws; `window` is begin, end and horizon in seconds.

    `rules` has, for each point, the sizes of output and input buffer (0: any), whether arrivals while ON are
    protected, and whether lifetimes are exponential. The tables of all points stand one behind the other.
    """
    end = window[1]
    no_deadline = np.full(1, math.inf)
    connected = connected_time(start, switches, window[0], end)
    for p in range(len(rates)):
        total = np.searchsorted(unit_arrivals, rates[p] * end)
        published = unit_arrivals[:total] / rates[p]
        arrivals = published
        if input_s[p] > 0.0:
            arrivals = np.empty(total)
            input_queue(published, unit_inputs[:total] * input_s[p], rules[p, 1], arrivals)
        services, drawn = unit_services[:total] * service_s[p], coins[:total]
        expiries = np.empty(0)
        if lifetime_s[p] < math.inf:
            expiries = published + (unit_lifetimes[:total] if rules[p, 3] > 0 else np.ones(total)) * lifetime_s[p]
        if input_s[p] > 0.0 and (rules[p, 1] > 0 or len(expiries) > 0):
            kept = get_through(published, arrivals, expiries, window, counts[p])
            published, arrivals, drawn, services = published[kept], arrivals[kept], drawn[kept], services[kept]
            if len(expiries) > 0:
                expiries = expiries[kept]
        outcome = np.zeros(len(published), dtype=np.int8)
        met_on = np.zeros(len(published), dtype=np.bool_)
        finish = np.empty(len(published))
        low, high = table_offsets[p], table_offsets[p + 1]
        area, busy = output_queue(
            arrivals, drawn, expiries, services, start, switches, (rules[p, 0], rules[p, 2] > 0, rules[p, 3] == 0),
            tables_off[low:high], tables_on[low:high], window, outcome, met_on, finish
        )  # fmt: skip
        sums[p, AREA] += area
        sums[p, BUSY] += busy
        sums[p, CONNECTED] += connected
        count_outcomes(
            published, no_deadline, arrivals, outcome, met_on, finish, window, counts[p], sums[p], responses[p],
            delays[p]
        )  # fmt: skip
