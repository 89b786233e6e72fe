"""Compiled capacity formulas for many placements of brokers under all routing algorithms.

The same model as `model`, `delays` and `headroom`, arranged so that algorithms share work: what passes a link is summed
over classes once for each routing, and both schemes are put together from these sums.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math
from typing import Final

import numpy as np

from surecast.kernels import njit
from surecast.prediction.capacity.kernel_loads import DOWN, UP, headroom_of, load_of, new_load, sides_of, sums_of
from surecast.prediction.capacity.kernel_lookup import value_at
from surecast.prediction.capacity.kernel_overlay import PlacementArrays, both_sides, rebuild

__all__ = ["FIGURES", "PlacementArrays", "evaluate_placements", "rebuild"]

FIGURES: Final = (
    "notification_delay_worst_s",
    "subscription_delay_worst_s",
    "notification_delay_mean_s",
    "notification_rate_per_s",
    "control_rate_per_s",
    "utilisation",
    "utilisation_at",
    "headroom_factor",
    "headroom_at",
    "table_entries",
)
"""Columns of what `evaluate_placements` finds; those ending in `_at` number candidates first, then queues."""

NOTIFICATION, CONTROL = 0, 1


@njit(cache=True)
def _deliveries(problem, tables, sides):
    """Returns the rates at which wanted notifications start at each broker and pass each link.

    By broker and (plain, weighted by service factor), then by direction, broker and the same. A destination wants what
    the subscriptions of its own clients match, whatever the routing.
    """
    brokers, classes = len(sides.members), len(problem.copies)
    slot = tables.slots[0, 0]
    wanted, below, above = np.empty((brokers, classes)), np.empty((brokers, classes)), np.empty((brokers, classes))
    for b in range(brokers):
        for c in range(classes):
            x = problem.lifetime_s * sides.own_subscriptions[b, c]
            wanted[b, c] = value_at(tables, problem.statistics[c], slot, x)
    both_sides(wanted, sides.order, sides.parent, below, above)
    root = sides.order[0]
    start, passing = np.zeros((brokers, 2)), np.zeros((2, brokers, 2))
    for b in range(brokers):
        for c in range(classes):
            weight, factor = problem.copies[c], problem.factor[c]
            everywhere = weight * sides.own_publications[b, c] * below[root, c]
            up = weight * sides.publications_below[b, c] * above[b, c]
            down = weight * sides.publications_above[b, c] * below[b, c]
            start[b, 0] += everywhere
            start[b, 1] += everywhere * factor
            passing[UP, b, 0] += up
            passing[UP, b, 1] += up * factor
            passing[DOWN, b, 0] += down
            passing[DOWN, b, 1] += down * factor
    return start, passing


@njit(cache=True)
def _link_delays(problem, sides, load):
    """Writes latency and waiting times by direction and broker, and the service times of each broker's link to its
    parent.
    """
    brokers = len(sides.members)
    fixed, service = np.zeros((2, brokers)), np.zeros(brokers)
    for i in range(1, brokers):
        b, p = sides.order[i], sides.parent[sides.order[i]]
        pair = problem.pair_number[sides.members[min(b, p)], sides.members[max(b, p)]]
        for way in range(2):
            forward = (b < p) == (way == UP)
            # capacity Eqs. 35-39
            fixed[way, b] = problem.latency_s[pair]
            for j in range(problem.path_start[pair], problem.path_start[pair + 1]):
                queue = problem.path_forward[j] if forward else problem.path_backward[j]
                fixed[way, b] += load.queue[queue, 1] / (2.0 * (1.0 - load.queue[queue, 0]))
                if way == UP:
                    service[b] += problem.queue_moments[queue, 0]
    return fixed, service


@njit(cache=True)
def _worst(problem, sides, load, waiting, fixed, service, kind, routing, hierarchical):
    """Returns the longest mean delay over paths that may be used at all (capacity Eqs. 40-45); NaN if nothing starts.

    Classes of one kind have the same service factor, publishers and subscribers, so that one stands for all.
    """
    brokers, root = len(sides.members), sides.order[0]
    worst = math.nan
    down, up, delay = np.empty(brokers), np.empty(brokers), np.empty(brokers)
    best, second, best_child = np.empty(brokers), np.empty(brokers), np.empty(brokers, dtype=np.int64)
    for c in problem.kinds:
        factor = problem.factor[c]
        for b in range(brokers):
            # capacity Eqs. 30, 31
            delay[b] = waiting[b] + load.services[b, kind, 0] * factor
        for b in range(brokers):
            best[b], second[b], best_child[b] = 0.0, 0.0, -1
        for i in range(brokers - 1, 0, -1):
            b, p = sides.order[i], sides.parent[sides.order[i]]
            down[b] = fixed[DOWN, b] + service[b] * factor + delay[b] + best[b]
            if kind == CONTROL:
                passes = routing >= 0 and not hierarchical
            else:
                passes = routing < 0 or sides.subscriptions_below[b, c] > 0.0
            if passes and down[b] > best[p]:
                second[p], best[p], best_child[p] = best[p], down[b], b
            elif passes and down[b] > second[p]:
                second[p] = down[b]
        up[root] = 0.0
        for i in range(brokers):
            b = sides.order[i]
            if b != root:
                p = sides.parent[b]
                others = second[p] if best_child[p] == b else best[p]
                up[b] = fixed[UP, b] + service[b] * factor + delay[p] + max(up[p], others)
                if kind == CONTROL:
                    passes = routing >= 0
                else:
                    passes = routing < 0 or hierarchical or sides.subscriptions_above[b, c] > 0.0
                # What does not pass counts as 0 for those before it.
                up[b] = up[b] if passes else 0.0
            starts = sides.own_subscriptions[b, c] if kind == CONTROL else sides.own_publications[b, c]
            if starts > 0.0:
                longest = delay[b] + max(best[b], up[b])
                worst = longest if math.isnan(worst) else max(worst, longest)
    return worst


@njit(cache=True)
def _mean(sides, load, waiting, fixed, service, start, passing):
    """Returns the mean delay of notifications to the brokers that want them; NaN if there are none."""
    rate, total = 0.0, 0.0
    for b in range(len(sides.members)):
        rate += start[b, 0]
        total += start[b, 0] * waiting[b] + start[b, 1] * load.services[b, 0, 0]
    for i in range(1, len(sides.members)):
        b = sides.order[i]
        for way in range(2):
            head = sides.parent[b] if way == UP else b
            total += passing[way, b, 0] * (fixed[way, b] + waiting[head])
            total += passing[way, b, 1] * (service[b] + load.services[head, 0, 0])
    return total / rate if rate > 0.0 else math.nan


@njit(cache=True)
def evaluate_placements(problem, tables, placements, algorithms, with_headroom):
    """Returns figures by placement and algorithm, each row of `algorithms` a routing (-1: flooding) and whether
    hierarchical.

    Delays are NaN where a queue is overloaded; headroom is inf where no queue ever saturates, NaN if not asked for.
    """
    figures = np.full((len(placements), len(algorithms), len(FIGURES)), np.nan)
    for i in range(len(placements)):
        members, order, parent, home = rebuild(problem, placements[i])
        sides = sides_of(problem, members, order, parent, home)
        sums = sums_of(problem, tables, sides)
        start, passing = _deliveries(problem, tables, sides)
        load = new_load(problem, len(members))
        waiting = np.empty(len(members))
        for j in range(len(algorithms)):
            routing, hierarchical = algorithms[j, 0], algorithms[j, 1] == 1
            row = figures[i, j]
            most, busiest = load_of(problem, sides, sums, routing, hierarchical, 1.0, load)
            # capacity Eqs. 11, 19
            row[3], row[4], row[9] = 0.0, 0.0, 0.0
            for b in range(len(members)):
                row[9] += load.entries[b]
                row[3] += load.links[0, UP, b, 0] + load.links[0, DOWN, b, 0]
                row[4] += load.links[1, UP, b, 0] + load.links[1, DOWN, b, 0]
            row[5], row[6] = most, busiest
            if most < 1.0:
                for b in range(len(members)):
                    # capacity Eq. 29
                    waiting[b] = load.broker[b, 1] / (2.0 * (1.0 - load.broker[b, 0]))
                fixed, service = _link_delays(problem, sides, load)
                for kind in range(2):
                    row[kind] = _worst(
                        problem, sides, load, waiting, fixed, service, kind, routing, hierarchical
                    )  # fmt: skip
                row[2] = _mean(sides, load, waiting, fixed, service, start, passing)
        if with_headroom:
            for j in range(len(algorithms)):
                routing, hierarchical = algorithms[j, 0], algorithms[j, 1] == 1
                figures[i, j, 7], figures[i, j, 8] = headroom_of(
                    problem, tables, sides, routing, hierarchical, figures[i, j, 5], sums, load
                )
    return figures
