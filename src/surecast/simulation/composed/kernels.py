"""Compiled travels of events through brokers and links that queue, order, lose and fail, in the order of time.

Lists of intervals are joined (`walk.intervals.join`): list i stands at `offsets[i]` to `offsets[i + 1]`. Service times
are arguments, taken by each queue in the order in which messages come to it; only losses are drawn here.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math
from heapq import heappop, heappush

import numpy as np

from surecast.kernels import njit

__all__ = [
    "EXPIRED",
    "HOME_DOWN",
    "LOST",
    "NO_ENTRY",
    "PARTITIONED",
    "PATH_DOWN",
    "REACHED",
    "UNDER_WAY",
    "travel",
]

UNDER_WAY, REACHED, HOME_DOWN, PATH_DOWN, NO_ENTRY, EXPIRED, PARTITIONED, LOST = range(8)
"""What becomes of an event on its way to a home broker."""

_COMES, _VOTED, _CHOSEN, _FOLLOWED, _LEAVES, _ON_LINK, _COPY, _ACKNOWLEDGED = range(8)
"""What happens: an event comes to a broker; followers vote on it; it is chosen and carried out; followers do so too;
it leaves by whatever way is up; it comes to the next queue on a link; a copy comes; an acknowledgement does."""


@njit(cache=True)
def _position(ends, low, high, time):
    """The first interval from `low` on, below `high`, that ends after `time`."""
    while low < high:
        middle = (low + high) // 2
        if ends[middle] > time:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True)
def _is_up(lists, which, since, until):
    """Returns whether a list has all of the time from `since` to `until` in one interval."""
    starts, ends, offsets = lists
    i = _position(ends, offsets[which], offsets[which + 1], since)
    return i < offsets[which + 1] and starts[i] <= since and until < ends[i]


@njit(cache=True)
def _done(lists, which, time, work):
    """Returns when work that may begin at a time is done by a broker that rests while down; inf: not in this run."""
    starts, ends, offsets = lists
    for i in range(_position(ends, offsets[which], offsets[which + 1], time), offsets[which + 1]):
        begin = max(time, starts[i])
        if begin + work <= ends[i]:
            return begin + work
        work -= ends[i] - begin
    return math.inf


@njit(cache=True)
def _attempt(lists, which, time, interval, limit):
    """The first attempt, every `interval` from `time` on, that finds all up; inf where none is in time. What is late
    already goes on if it need not wait. An interval of 0 waits no longer than all are down."""
    starts, ends, offsets = lists
    for i in range(_position(ends, offsets[which], offsets[which + 1], time), offsets[which + 1]):
        when = time
        if starts[i] > time:
            when = starts[i] if interval <= 0.0 else time + math.ceil((starts[i] - time) / interval) * interval
        if when > limit and when > time:
            return math.inf
        if when < ends[i]:
            return when
    return math.inf


@njit(cache=True)
def _synced(disk, broker, time, sync):
    """Returns when a disk that syncs all that waits in one go has synced what comes to it at a time."""
    if sync > 0.0:
        if time > disk[broker, 1]:
            disk[broker, 0], disk[broker, 1] = time, time + sync
        elif time > disk[broker, 0]:
            disk[broker, 0] = disk[broker, 1]
            disk[broker, 1] += sync
        return disk[broker, 1]
    return time


@njit(cache=True)
def _uniform(seed):
    """The next of a stream of numbers from 0 to 1 (SplitMix64); `seed` has its state."""
    seed[0] += np.uint64(0x9E3779B97F4A7C15)
    x = seed[0]
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return float(x >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True)
def _longer(array):
    """Returns an array with room for twice as many."""
    longer = np.empty(2 * len(array), array.dtype)
    longer[: len(array)] = array
    return longer


@njit(cache=True)
def _ways_to(goal, up, overlay, brokers, onward, queue):
    """Fills in over which link a shortest way to a broker goes from each broker that has one, over all that is up; -1:
    there is none."""
    first, neighbour, link = overlay
    onward[:] = -1
    if not up[goal]:
        return
    queue[0], onward[goal] = goal, -2
    head, tail = 0, 1
    while head < tail:
        here = queue[head]
        head += 1
        for j in range(first[here], first[here + 1]):
            other = neighbour[j]
            if onward[other] == -1 and up[other] and up[brokers + link[j]]:
                onward[other] = link[j]
                queue[tail] = other
                tail += 1


@njit(cache=True)
def travel(  # noqa: C901 - one loop over one state
    events,
    tree,
    targets,
    links,
    traces,
    hops,
    entries,
    groups,
    services,
    rules,
    detours,
    background,
    window,
    seed,
    fates,
    arrivals,
    sums,
):
    """Follows all events from their publication to the home brokers of their subscribers.

    `events` are times, root nodes, limits (when each expires) and where its targets stand in `fates` and `arrivals`.
    `tree` has, by node, its broker, hop and the children. `targets` has, by node, its targets and those behind it: the
    place of each, whether it is here, and which of `entries` has the times at which the node holds the entry for it,
    and which those at which the whole route to it is up; -1: always. `links` has, by tree node and by overlay link and
    direction, latency, loss and the queues that a message to it passes. `groups` has, by broker, whether it is a
    group, whether it has followers, the times to propose, to vote and to carry out, of a message and of a sync.
    `services` are the times of events and of control messages at brokers, and of messages in the queues on links.
    `rules` are, by stream, whether brokers store events, acknowledge them and go around what is down, and the time
    between two attempts; `detours` what going around takes. `background` is other work: times, queues, and how long it
    takes.
    `sums` gets the number of events that come to each broker in the window and the time they stay.
    """
    times, roots, limits, bases = events
    node_broker, node_hop, node_link, child_starts, children = tree
    target_starts, target_place, target_here, target_entry, target_route = targets
    latency, loss, station_starts, stations = links
    event_times, event_starts, event_counts, control_times, station_times = services
    stores_of, interval, acknowledges_of, around_of = rules
    goes_around = around_of.any()
    overlay, change_times, changed, target_node, target_home, node_of, node_stream, node_parent, link_to = detours
    other_times, other_queues, other_work = background
    begin, stop, horizon = window
    brokers = len(groups)
    free, follower_free = np.zeros(brokers), np.zeros(brokers)
    used, controls_used = np.zeros(brokers, np.int64), np.zeros(brokers, np.int64)
    station_free = np.zeros(len(station_times))
    station_used = np.zeros(len(station_times), np.int64)
    disk = np.full((brokers, 2), -1.0)
    up = np.ones(max(len(traces[2]) - 1, 1), np.bool_)
    for i in range(len(traces[2]) - 1):
        up[i] = _is_up(traces, i, 0.0, 0.0)
    onward, epochs, bfs = (
        np.full((brokers, brokers if goes_around else 1), -1),
        np.full(brokers, -1),
        np.empty(brokers, np.int64),
    )
    epoch = 0
    room = 1024 + 4 * brokers
    visit_event, visit_node, visit_broker = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    visit_work, visit_came = np.empty(room), np.empty(room)
    visit_link, visit_stage = np.empty(room, np.int64), np.empty(room, np.int64)
    visit_then = np.empty(room, np.int64)
    carried_from, carried_to = np.empty(room, np.int64), np.empty(room, np.int64)
    carried = np.empty(1024, np.int64)
    carried_used = 0
    spare = np.empty(room, np.int64)
    spares = 0
    visits = 0
    queue = [(math.inf, _COMES, -1)]
    following = behind = 0
    while True:
        published = times[following] if following < len(times) else math.inf
        beside = other_times[behind] if behind < len(other_times) else math.inf
        if beside <= published and beside <= queue[0][0] and beside < math.inf:
            which, work = other_queues[behind], other_work[behind]
            behind += 1
            if which < brokers:
                free[which] = _done(traces, which, max(beside, free[which]), work)
            else:
                station_free[which - brokers] = max(beside, station_free[which - brokers]) + work
            continue
        if visits + 8 + 2 * brokers > room:
            room *= 2
            visit_event, visit_node, visit_broker = _longer(visit_event), _longer(visit_node), _longer(visit_broker)
            visit_work, visit_came, visit_link = _longer(visit_work), _longer(visit_came), _longer(visit_link)
            visit_stage, visit_then = _longer(visit_stage), _longer(visit_then)
            carried_from, carried_to = _longer(carried_from), _longer(carried_to)
            spare = _longer(spare)
        if published <= queue[0][0]:
            if published == math.inf:
                break
            event = following
            following += 1
            node, now, kind = roots[event], published, _COMES
            broker, around = node_broker[node], around_of[node_stream[node]]
            if not _is_up(traces, broker, now, now):
                for t in range(target_starts[node], target_starts[node + 1]):
                    fates[bases[event] + target_place[t]] = HOME_DOWN
                continue
            if spares:
                spares -= 1
                visit = spare[spares]
            else:
                visit = visits
                visits += 1
            visit_event[visit], visit_node[visit], visit_broker[visit] = event, node, broker
            visit_link[visit] = -1
            carried_from[visit] = carried_to[visit] = 0
            if around:
                size = target_starts[node + 1] - target_starts[node]
                while carried_used + size > len(carried):
                    carried = _longer(carried)
                carried_from[visit], carried_to[visit] = carried_used, carried_used + size
                for t in range(target_starts[node], target_starts[node + 1]):
                    carried[carried_used] = t
                    carried_used += 1
        else:
            now, kind, visit = heappop(queue)
            event, node, broker = visit_event[visit], visit_node[visit], visit_broker[visit]
        stream = node_stream[roots[event]]
        stores, acknowledges, around = stores_of[stream], acknowledges_of[stream], around_of[stream]
        delay, sync = groups[broker, 5], groups[broker, 6]
        is_group, has_followers = groups[broker, 0] > 0.0, groups[broker, 1] > 0.0
        if now > horizon:
            continue
        if kind == _ON_LINK:
            over = visit_link[visit]
            if visit_stage[visit] < station_starts[over + 1]:
                station = stations[visit_stage[visit]]
                width = station_times.shape[1]
                took = station_times[station, station_used[station] % width]
                station_used[station] += 1
                station_free[station] = max(now, station_free[station]) + took
                visit_stage[visit] += 1
                last = visit_stage[visit] == station_starts[over + 1]
                then = visit_then[visit] if last else _ON_LINK
                heappush(queue, (station_free[station] + (latency[over] if last else 0.0), then, visit))
            continue
        if kind == _ACKNOWLEDGED:
            took = control_times[broker, controls_used[broker] % control_times.shape[1]]
            controls_used[broker] += 1
            free[broker] = _done(traces, broker, max(now, free[broker]), took)
            spare[spares] = visit
            spares += 1
            continue
        if kind in (_COMES, _COPY) and acknowledges and visit_link[visit] >= 0 and visit_work[visit] >= 0.0:
            # an acknowledgement goes back over the link that brought it, unless it is lost
            back = visit_link[visit] ^ 1
            if spares:
                spares -= 1
                answer = spare[spares]
            else:
                answer = visits
                visits += 1
            visit_event[answer], visit_node[answer], visit_broker[answer] = event, node, link_to[back]
            visit_link[answer], visit_stage[answer], visit_then[answer] = back, station_starts[back], _ACKNOWLEDGED
            if station_starts[back] < station_starts[back + 1]:
                heappush(queue, (now, _ON_LINK, answer))
            else:
                heappush(queue, (now + latency[back], _ACKNOWLEDGED, answer))
        if kind == _COPY:
            took = event_times[event_starts[broker] + used[broker] % max(event_counts[broker], 1)]
            used[broker] += 1
            if not is_group:
                free[broker] = _done(traces, broker, max(now, free[broker]), took)
            spare[spares] = visit
            spares += 1
            continue
        if kind != _LEAVES:
            if kind == _COMES:
                visit_came[visit] = now
                visit_work[visit] = event_times[event_starts[broker] + used[broker] % max(event_counts[broker], 1)]
                used[broker] += 1
                if is_group:
                    free[broker] = _done(traces, broker, max(now, free[broker]), groups[broker, 2])
                    if has_followers:
                        heappush(queue, (free[broker] + delay, _VOTED, visit))
                    else:
                        heappush(queue, (_synced(disk, broker, free[broker], sync), _CHOSEN, visit))
                    continue
            elif kind == _VOTED:
                follower_free[broker] = max(now, follower_free[broker]) + groups[broker, 3]
                heappush(queue, (_synced(disk, broker, follower_free[broker], sync) + delay, _CHOSEN, visit))
                continue
            elif kind == _FOLLOWED:
                follower_free[broker] = max(now, follower_free[broker]) + visit_work[visit]
                continue
            left = _done(traces, broker, max(now, free[broker]), visit_work[visit] + groups[broker, 4])
            free[broker] = left
            if has_followers and visit_work[visit] > 0.0:
                heappush(queue, (left + delay, _FOLLOWED, visit))
            if left > horizon:
                continue
            came = visit_came[visit]
            if begin <= came < stop:
                sums[broker, 0] += 1.0
                sums[broker, 1] += left - came
            if around:
                heappush(queue, (left, _LEAVES, visit))
                continue
        else:
            left, came = now, visit_came[visit]
        base = bases[event]
        if around:
            stays = False
            if not stores and not _is_up(traces, broker, came, left):
                for c in range(carried_from[visit], carried_to[visit]):
                    place = base + target_place[carried[c]]
                    if fates[place] == UNDER_WAY:
                        fates[place] = PATH_DOWN
                continue
            while epoch < len(change_times) and change_times[epoch] <= left:
                up[changed[epoch]] = not up[changed[epoch]]
                epoch += 1
            kept = carried_from[visit]
            for c in range(carried_from[visit], carried_to[visit]):
                t = carried[c]
                place = base + target_place[t]
                if fates[place] != UNDER_WAY:
                    continue
                home = target_home[t]
                if not up[broker] and stores:
                    stays = True
                    carried[kept] = t
                    kept += 1
                    continue
                if home == broker:
                    fates[place], arrivals[place] = REACHED, left
                    continue
                way = -1
                # the static route, if all of it is up from here on
                start, step = node_of[node_stream[roots[event]], broker], target_node[t]
                while start >= 0 and step >= 0 and step != start:
                    way = node_link[step]
                    if not up[node_broker[step]] or not up[brokers + (way >> 1)]:
                        break
                    step = node_parent[step]
                if step != start or start < 0:
                    way = -1
                if way < 0:
                    if epochs[home] != epoch:
                        _ways_to(home, up, overlay, brokers, onward[home], bfs)
                        epochs[home] = epoch
                    by = onward[home, broker]
                    if by >= 0:
                        way = 2 * by if link_to[2 * by] != broker else 2 * by + 1
                if way < 0:
                    if not stores:
                        fates[place] = PARTITIONED
                        continue
                    stays = True
                    carried[kept] = t
                    kept += 1
                    continue
                # marked with its way, to be sent together with what goes the same way
                fates[place] = -1 - way
            first_of, _, link_ids = overlay
            for j in range(first_of[broker], first_of[broker + 1]):
                way = 2 * link_ids[j] if link_to[2 * link_ids[j]] != broker else 2 * link_ids[j] + 1
                size = 0
                for t in range(target_starts[roots[event]], target_starts[roots[event] + 1]):
                    if fates[base + target_place[t]] == -1 - way:
                        size += 1
                if size == 0:
                    continue
                if loss[way] > 0.0 and _uniform(seed) < loss[way]:
                    # one message for all targets that way, so that all of them lose it
                    for t in range(target_starts[roots[event]], target_starts[roots[event] + 1]):
                        place = base + target_place[t]
                        if fates[place] != -1 - way:
                            continue
                        fates[place] = UNDER_WAY if stores else LOST
                        if stores:
                            stays = True
                            carried[kept] = t
                            kept += 1
                    continue
                while carried_used + size > len(carried):
                    carried = _longer(carried)
                if spares:
                    spares -= 1
                    new = spare[spares]
                else:
                    new = visits
                    visits += 1
                carried_from[new], carried_to[new] = carried_used, carried_used + size
                for t in range(target_starts[roots[event]], target_starts[roots[event] + 1]):
                    if fates[base + target_place[t]] == -1 - way:
                        fates[base + target_place[t]] = UNDER_WAY
                        carried[carried_used] = t
                        carried_used += 1
                visit_event[new], visit_node[new], visit_broker[new] = event, -1, link_to[way]
                visit_link[new], visit_stage[new], visit_then[new] = way, station_starts[way], _COMES
                unheard = stores and loss[way] > 0.0 and _uniform(seed) < loss[way]
                visit_work[new] = -1.0 if unheard else 0.0
                if station_starts[way] < station_starts[way + 1]:
                    heappush(queue, (left, _ON_LINK, new))
                else:
                    heappush(queue, (left + latency[way], _COMES, new))
                if unheard and left + interval <= limits[event]:
                    # its acknowledgement is lost, so that it comes again
                    copy, visits = visits, visits + 1
                    visit_event[copy], visit_node[copy], visit_broker[copy] = event, -1, link_to[way]
                    visit_link[copy], visit_stage[copy], visit_then[copy] = way, station_starts[way], _COPY
                    visit_work[copy] = 0.0
                    if station_starts[way] < station_starts[way + 1]:
                        heappush(queue, (left + interval, _ON_LINK, copy))
                    else:
                        heappush(queue, (left + interval + latency[way], _COPY, copy))
            if stays:
                carried_to[visit] = kept
                again = left + interval
                if again > limits[event] or again > horizon:
                    for c in range(carried_from[visit], kept):
                        place = base + target_place[carried[c]]
                        fates[place] = EXPIRED if limits[event] <= horizon else UNDER_WAY
                else:
                    heappush(queue, (again, _LEAVES, visit))
            else:
                spare[spares] = visit
                spares += 1
            continue
        if not stores and not _is_up(traces, broker, came, left):
            _settle(fates, base, target_starts, target_place, node, PATH_DOWN)
            continue
        for t in range(target_starts[node], target_starts[node + 1]):
            place = base + target_place[t]
            if fates[place] != UNDER_WAY:
                continue
            entry, route = target_entry[t], target_route[t]
            if entry >= 0 and not _is_up(entries, entry, left, left):
                # where part of the route is down, that is the reason
                fates[place] = NO_ENTRY if route < 0 or _is_up(entries, route, left, left) else PATH_DOWN
            elif target_here[t]:
                fates[place], arrivals[place] = REACHED, left
        for i in range(child_starts[node], child_starts[node + 1]):
            child = children[i]
            waits = False
            for t in range(target_starts[child], target_starts[child + 1]):
                if fates[base + target_place[t]] == UNDER_WAY:
                    waits = True
                    break
            if not waits:
                continue
            when, over = left, node_link[child]
            if stores:
                end = min(limits[event], horizon)
                when = _attempt(hops, node_hop[child], left, interval, end)
                while when < math.inf and loss[over] > 0.0 and _uniform(seed) < loss[over]:
                    later = when + interval
                    when = math.inf if later > end else _attempt(hops, node_hop[child], later, interval, end)
                if when == math.inf:
                    fate = EXPIRED if limits[event] <= horizon else UNDER_WAY
                    _settle(fates, base, target_starts, target_place, child, fate)
                    continue
            elif not _is_up(hops, node_hop[child], left, left):
                _settle(fates, base, target_starts, target_place, child, PATH_DOWN)
                continue
            elif loss[over] > 0.0 and _uniform(seed) < loss[over]:
                _settle(fates, base, target_starts, target_place, child, LOST)
                continue
            copies = 0
            while stores and loss[over] > 0.0 and _uniform(seed) < loss[over] and copies < 64:
                copies += 1  # its acknowledgement is lost
                if when + copies * interval > limits[event]:
                    copies -= 1
                    break
            for k in range(copies + 1):
                if spares:
                    spares -= 1
                    new = spare[spares]
                else:
                    new = visits
                    visits += 1
                if visits + 8 + brokers > room:
                    room *= 2
                    visit_event, visit_node, visit_broker = (
                        _longer(visit_event),
                        _longer(visit_node),
                        _longer(visit_broker),
                    )
                    visit_work, visit_came, visit_link = _longer(visit_work), _longer(visit_came), _longer(visit_link)
                    visit_stage, visit_then = _longer(visit_stage), _longer(visit_then)
                    carried_from, carried_to = _longer(carried_from), _longer(carried_to)
                    spare = _longer(spare)
                visit_event[new], visit_node[new], visit_broker[new] = event, child, node_broker[child]
                visit_link[new], visit_stage[new] = over, station_starts[over]
                visit_then[new] = _COPY if k else _COMES
                visit_work[new] = -1.0 if k < copies else 0.0
                at = when + k * interval
                if station_starts[over] < station_starts[over + 1]:
                    heappush(queue, (at, _ON_LINK, new))
                else:
                    heappush(queue, (at + latency[over], visit_then[new], new))
        if not has_followers:
            spare[spares] = visit
            spares += 1


@njit(cache=True)
def _settle(fates, base, target_starts, target_place, node, fate):
    """Counts one outcome for all targets at a node and behind it that are under way."""
    for t in range(target_starts[node], target_starts[node + 1]):
        if fates[base + target_place[t]] == UNDER_WAY:
            fates[base + target_place[t]] = fate
