"""Compiled traffic, load and headroom of one placement.

A placement's tree hangs from its root; broker b stands for the link to its parent, direction `UP` leads to the parent
and `DOWN` away from it. Rates come in threes: messages, and weighted by service factor and by its square.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit
from surecast.prediction.capacity.kernel_lookup import value_at, values_at
from surecast.prediction.capacity.kernel_overlay import both_sides

__all__ = ["DOWN", "UP", "QueueLoads", "Sides", "Sums", "headroom_of", "load_of", "new_load", "sides_of", "sums_of"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

UP, DOWN = 0, 1
_FARTHEST = math.log(1e15)
_STEP = math.log(10.0) / 40.0
_NARROW = 1e-12


class Sides(NamedTuple):
    """The rates of each class at each broker of a placement, and on both sides of each link.

    A broker is its position in `members`. Below a link are the broker and all that hang from it; above, all others.
    """

    members: Index
    """[broker] The candidate position that it stands at."""
    order: Index
    """[i] The brokers from the root downwards, parents before children."""
    parent: Index
    """[broker] The broker above it."""
    own_publications: Array
    """[broker, class] Publications per second of its own clients."""
    own_subscriptions: Array
    """[broker, class] Subscriptions per second of its own clients."""
    publications_below: Array
    publications_above: Array
    """[broker, class] Publications per second on each side of the link to its parent."""
    subscriptions_below: Array
    subscriptions_above: Array
    """[broker, class] Subscriptions per second on each side of that link."""
    own_notifications: Array
    """[broker, weight] What its own clients publish, over all classes."""
    own_controls: Array
    """[broker, weight] Subscriptions and unsubscriptions of its own clients, over all classes."""
    flood: Array
    """[direction, broker, weight] What crosses the link under flooding."""


class Sums(NamedTuple):
    """Traffic and table entries of each link, over all classes, by routing, direction and broker."""

    notifications: Array
    """[routing, direction, broker, weight] Publications per second that cross the link."""
    controls: Array
    """[routing, direction, broker, weight] Control messages per second that cross it."""
    entries: Array
    """[routing, direction, broker] Routing entries for the far side of it."""


class QueueLoads(NamedTuple):
    """The load of each queue under one algorithm: at the brokers, and in the physical network."""

    links: Array
    """[kind, direction, broker, weight] Messages per second on overlay links; kind 0 notifications, 1 control."""
    broker_rates: Array
    """[kind, broker, weight] Messages per second that arrive at a broker."""
    entries: Array
    """[broker] Routing entries."""
    services: Array
    """[broker, kind, moment] First and second moment of the service time."""
    broker: Array
    """[broker, moment] Utilisation, and rate times second moment."""
    queue: Array
    """[queue, moment] The same of physical queues."""
    touched: Index
    """The queues in use, after their number."""


@njit(cache=True)
def sides_of(problem, members, order, parent, home):
    """Returns rates of the brokers' own clients, and on both sides of each link."""
    brokers, classes = len(members), len(problem.copies)
    publications, subscriptions = np.zeros((brokers, classes)), np.zeros((brokers, classes))
    for client in range(len(home)):
        b = home[client]
        for c in range(classes):
            publications[b, c] += problem.publications[client, c]
            subscriptions[b, c] += problem.subscriptions[client, c]
    below, above = np.empty((2, brokers, classes)), np.empty((2, brokers, classes))
    both_sides(publications, order, parent, below[0], above[0])
    both_sides(subscriptions, order, parent, below[1], above[1])
    own, flood = np.zeros((2, brokers, 3)), np.zeros((2, brokers, 3))
    for b in range(brokers):
        for c in range(classes):
            weight = problem.copies[c]
            for k in range(3):
                own[0, b, k] += weight * publications[b, c]
                own[1, b, k] += 2.0 * weight * subscriptions[b, c]
                flood[UP, b, k] += weight * below[0, b, c]
                flood[DOWN, b, k] += weight * above[0, b, c]
                weight *= problem.factor[c]
    return Sides(
        members, order, parent, publications, subscriptions, below[0], above[0], below[1], above[1],
        own[0], own[1], flood,
    )  # fmt: skip


@njit(cache=True)
def sums_of(problem, tables, sides):
    """Returns the sums of all routings but flooding, which each need the same x of each link and class."""
    brokers, classes = len(sides.members), len(problem.copies)
    routings = len(tables.slots)
    notifications, controls = np.zeros((routings, 2, brokers, 3)), np.zeros((routings, 2, brokers, 3))
    entries = np.zeros((routings, 2, brokers))
    values = np.empty((2, tables.coefficients.shape[2]))
    plain = True
    for c in range(classes):
        plain = plain and problem.factor[c] == 1.0
    for i in range(1, brokers):
        b = sides.order[i]
        for c in range(classes):
            count, factor = problem.copies[c], problem.factor[c]
            below, above = sides.subscriptions_below[b, c], sides.subscriptions_above[b, c]
            # capacity Eqs. 1, 2: upwards x counts what is above, downwards what is below
            values_at(tables, problem.statistics[c], problem.lifetime_s * above, values[UP])
            values_at(tables, problem.statistics[c], problem.lifetime_s * below, values[DOWN])
            for r in range(routings):
                notify, subscribe, remote = tables.slots[r, 0], tables.slots[r, 1], tables.slots[r, 2]
                entries[r, UP, b] += count * values[UP, remote]
                entries[r, DOWN, b] += count * values[DOWN, remote]
                # capacity Eqs. 22, 25: a control message joins those that come the same way
                up = count * values[UP, notify] * sides.publications_below[b, c]
                down = count * values[DOWN, notify] * sides.publications_above[b, c]
                control_up = 2.0 * count * values[DOWN, subscribe] * below
                control_down = 2.0 * count * values[UP, subscribe] * above
                for k in range(1 if plain else 3):
                    notifications[r, UP, b, k] += up
                    notifications[r, DOWN, b, k] += down
                    controls[r, UP, b, k] += control_up
                    controls[r, DOWN, b, k] += control_down
                    up, down = up * factor, down * factor
                    control_up, control_down = control_up * factor, control_down * factor
        if plain:
            for r in range(routings):
                for way in range(2):
                    for k in range(1, 3):
                        notifications[r, way, b, k] = notifications[r, way, b, 0]
                        controls[r, way, b, k] = controls[r, way, b, 0]
    return Sums(notifications, controls, entries)


@njit(cache=True)
def _control_between(x, rate, first, last):
    """Returns a rate times the maximum of s exp(-s x) for s from `first` up to `last`, or times the minimum down to
    `last`.

    It rises up to s = 1/x and falls from there on.
    """
    at_first, at_last = first * math.exp(-first * x), last * math.exp(-last * x)
    if last < first:
        return rate * min(at_first, at_last)
    if x > 0.0 and first < 1.0 / x < last:
        return rate / x * math.exp(-1.0)
    return rate * max(at_first, at_last)


@njit(cache=True)
def _scaled_sums(problem, tables, sides, routing, first, last, sums):
    """Computes the sums of one routing with all arrivals `last` times as frequent.

    With another `first`, bounds over all factors in between, which is for identity routing only, where control messages
    may become fewer: upper bounds if the factor grows, lower bounds if it shrinks.
    """
    notify, subscribe, remote = tables.slots[routing, 0], tables.slots[routing, 1], tables.slots[routing, 2]
    notifications, controls, entries = sums.notifications[routing], sums.controls[routing], sums.entries[routing]
    for way in range(2):
        for b in range(len(sides.order)):
            entries[way, b] = 0.0
            for k in range(3):
                notifications[way, b, k] = 0.0
                controls[way, b, k] = 0.0
    grows = False
    for candidate in range(len(problem.entry_services)):
        grows = grows or problem.entry_services[candidate, 0] > 0.0 or problem.entry_services[candidate, 1] > 0.0
    for i in range(1, len(sides.order)):
        b = sides.order[i]
        for c in range(len(problem.copies)):
            group = problem.statistics[c]
            for way in range(2):
                # `far` is where the link of this direction leads to, `near` what lies behind it
                far = sides.subscriptions_above[b, c] if way == UP else sides.subscriptions_below[b, c]
                near = sides.publications_below[b, c] if way == UP else sides.publications_above[b, c]
                x = problem.lifetime_s * far
                passing = problem.copies[c] * last * value_at(tables, group, notify, last * x) * near
                if first != last:
                    back = 2.0 * problem.copies[c] * _control_between(x, far, first, last)
                else:
                    back = 2.0 * problem.copies[c] * last * value_at(tables, group, subscribe, last * x) * far
                if grows:
                    entries[way, b] += problem.copies[c] * value_at(tables, group, remote, last * x)
                for k in range(3):
                    notifications[way, b, k] += passing
                    controls[1 - way, b, k] += back
                    passing *= problem.factor[c]
                    back *= problem.factor[c]


@njit(cache=True)
def new_load(problem, brokers):
    queues = len(problem.queue_moments)
    return QueueLoads(
        np.zeros((2, 2, brokers, 3)),
        np.zeros((2, brokers, 3)),
        np.zeros(brokers),
        np.zeros((brokers, 2, 2)),
        np.zeros((brokers, 2)),
        np.zeros((queues, 2)),
        np.zeros(queues + 1, dtype=np.int64),
    )


@njit(cache=True)
def _serve(problem, sides, load):
    """Computes the service times of the brokers: base + c times routing entries.

    Their coefficient of variation stays, and the variance of the Poisson number of entries is added.
    """
    for b in range(len(sides.members)):
        for kind in range(2):
            mean, square = problem.services[sides.members[b], kind, 0], problem.services[sides.members[b], kind, 1]
            slope = problem.entry_services[sides.members[b], kind]
            if slope > 0.0:
                grown = mean + slope * load.entries[b]
                square = square * (grown / mean) ** 2 if mean > 0.0 else grown * grown
                square += slope * slope * load.entries[b]
                mean = grown
            load.services[b, kind, 0], load.services[b, kind, 1] = mean, square


@njit(cache=True)
def _load_link(sides, sums, routing, hierarchical, scale, b, load):
    """Adds the traffic between a broker and its parent, on the link and at both ends.

    In a hierarchy notifications always go up and control messages never down (capacity section 3.8).
    """
    for way in range(2):
        head = sides.parent[b] if way == UP else b
        floods = routing < 0 or (hierarchical and way == UP)
        silent = routing < 0 or (hierarchical and way == DOWN)
        for k in range(3):
            passing = scale * sides.flood[way, b, k] if floods else sums.notifications[routing, way, b, k]
            control = 0.0 if silent else sums.controls[routing, way, b, k]
            load.links[0, way, b, k], load.links[1, way, b, k] = passing, control
            # capacity Eqs. 21, 24, 27
            load.broker_rates[0, head, k] += passing
            load.broker_rates[1, head, k] += control


@njit(cache=True)
def load_of(problem, sides, sums, routing, hierarchical, scale, load):
    """Fills in the load of an algorithm; routing -1 is flooding. The sums are for the same scale.

    Returns the largest utilisation and where: a candidate's number, or that of a queue behind the candidates.
    """
    brokers = len(sides.members)
    for k in range(3):
        for b in range(brokers):
            load.broker_rates[0, b, k] = scale * sides.own_notifications[b, k]
            load.broker_rates[1, b, k] = scale * sides.own_controls[b, k]
    for b in range(brokers):
        load.entries[b] = 0.0
        for c in range(len(problem.copies)):
            load.entries[b] += scale * problem.lifetime_s * problem.copies[c] * sides.own_subscriptions[b, c]
    for i in range(load.touched[0]):
        load.queue[load.touched[i + 1], 0] = 0.0
        load.queue[load.touched[i + 1], 1] = 0.0
    load.touched[0] = 0
    for i in range(1, brokers):
        b, p = sides.order[i], sides.parent[sides.order[i]]
        _load_link(sides, sums, routing, hierarchical, scale, b, load)
        if routing >= 0:
            load.entries[p] += sums.entries[routing, DOWN, b]
            if not hierarchical:
                load.entries[b] += sums.entries[routing, UP, b]
        _load_queues(problem, sides, b, load)
    _serve(problem, sides, load)
    return _largest(problem, sides, load)


@njit(cache=True)
def _largest(problem, sides, load):
    """Computes the load of the brokers; returns the largest utilisation of all queues, and the queue that has it."""
    most, busiest = 0.0, -1
    for b in range(len(sides.members)):
        # capacity Eqs. 28, 34, and the second moments of Eqs. 29, 35
        for k in range(2):
            load.broker[b, k] = (
                load.broker_rates[0, b, k + 1] * load.services[b, 0, k]
                + load.broker_rates[1, b, k + 1] * load.services[b, 1, k]
            )
        if load.broker[b, 0] > most:
            most, busiest = load.broker[b, 0], sides.members[b]
    for i in range(load.touched[0]):
        queue = load.touched[i + 1]
        if load.queue[queue, 0] > most:
            most, busiest = load.queue[queue, 0], len(problem.services) + queue
    return most, busiest


@njit(cache=True)
def _load_queues(problem, sides, b, load):
    """Adds the traffic of a broker's link to its parent to the queues on the path (capacity Eqs. 32, 33)."""
    p = sides.parent[b]
    pair = problem.pair_number[sides.members[min(b, p)], sides.members[max(b, p)]]
    for way in range(2):
        forward = (b < p) == (way == UP)
        rate = load.links[0, way, b, 1] + load.links[1, way, b, 1]
        square = load.links[0, way, b, 2] + load.links[1, way, b, 2]
        for i in range(problem.path_start[pair], problem.path_start[pair + 1]):
            queue = problem.path_forward[i] if forward else problem.path_backward[i]
            if load.queue[queue, 0] == 0.0 and rate * problem.queue_moments[queue, 0] > 0.0:
                load.touched[0] += 1
                load.touched[load.touched[0]] = queue
            load.queue[queue, 0] += rate * problem.queue_moments[queue, 0]
            load.queue[queue, 1] += square * problem.queue_moments[queue, 1]


@njit(cache=True)
def _most(problem, tables, sides, routing, hierarchical, first, last, sums, load):
    """Returns the largest utilisation at the factor `last`, and the queue that has it; with another `first`, a bound
    over all factors in between.
    """
    if routing >= 0:
        _scaled_sums(problem, tables, sides, routing, first, last, sums)
    return load_of(problem, sides, sums, routing, hierarchical, last, load)


@njit(cache=True)
def headroom_of(problem, tables, sides, routing, hierarchical, now, sums, load):
    """Returns the factor on all arrivals at which the first queue saturates, and that queue; inf and -1 if none ever
    does.

    `now` is the largest utilisation at factor 1. The search is for a root of log utilisation by log factor, which is
    nearly straight. Under identity routing it is the crossing nearest to 1 (`headroom.headroom` says why).
    """
    if now <= 0.0:
        return math.inf, -1
    low, high = -_FARTHEST, _FARTHEST
    identity = routing == 1
    if identity:
        low, high = _nearest(problem, tables, sides, routing, hierarchical, now, sums, load)
        if low > high:
            return math.inf, -1
    here, value = 0.0, math.log(now)
    if identity and not low <= here <= high:
        here = 0.5 * (low + high)
        s = math.exp(here)
        most, busiest = _most(problem, tables, sides, routing, hierarchical, s, s, sums, load)
        value = math.log(max(most, 1e-300))
    slope, busiest = 1.0, -1
    for attempt in range(200):
        if value < 0.0:
            low = max(low, here)
        else:
            high = min(high, here)
        there = here - value / slope
        if not low < there < high or attempt % 12 == 11:
            there = 0.5 * (low + high)
        s = math.exp(there)
        most, busiest = _most(problem, tables, sides, routing, hierarchical, s, s, sums, load)
        log_utilisation = math.log(max(most, 1e-300))
        if abs(log_utilisation) < 1e-13 or high - low < _NARROW or abs(there - here) < 1e-14:
            here = there
            break
        if there != here:
            slope = min(max((log_utilisation - value) / (there - here), 0.05), 20.0)
        here, value = there, log_utilisation
    if here >= _FARTHEST - 1.0:
        return math.inf, -1
    return math.exp(here), busiest


@njit(cache=True)
def _nearest(problem, tables, sides, routing, hierarchical, now, sums, load):
    """Logarithms of two factors around the crossing nearest to 1, under identity routing; the first above the second
    if there is none.

    Walks away from 1 in steps of a fortieth of a decade. Bounds over several steps tell where nothing is crossed.
    """
    stable = now < 1.0
    sign = 1.0 if stable else -1.0
    here, stride = 0, 1
    last = int(_FARTHEST / _STEP)
    while here < last:
        there = min(here + stride, last)
        a, b = math.exp(sign * here * _STEP), math.exp(sign * there * _STEP)
        if stride > 1 or tables.textbook_identity:
            bound = _most(problem, tables, sides, routing, hierarchical, a, b, sums, load)[0]
            if (bound < 1.0) == stable:
                here = there
                stride *= 2
                continue
        if stride > 1:
            stride = max(stride // 4, 1)
            continue
        most = _most(problem, tables, sides, routing, hierarchical, b, b, sums, load)[0]
        if (most < 1.0) != stable:
            return min(sign * here * _STEP, sign * there * _STEP), max(sign * here * _STEP, sign * there * _STEP)
        here = there
    return 1.0, 0.0
