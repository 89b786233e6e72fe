"""Domains for networks that have none."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surecast.scenario.network import Network

__all__ = ["with_domains"]

Cost = tuple[int, float]
"""Hops first, latency among equals: in a full mesh, where all are one hop apart, latency alone decides."""


def with_domains(network: Network, count: int) -> Network:
    """Returns the same network with its routers divided into `count` connected domains d0, d1, ... of nearby routers.

    The seeds of the domains lie as far apart as possible; each router belongs to the nearest seed.

    >>> from surecast.scenario.streams import Streams
    >>> from surecast.scenario.topology.generate import tree_network
    >>> line = tree_network(Streams(1), routers=6, branching=1)
    >>> [router.domain for router in with_domains(line, 2).routers]
    ['d1', 'd1', 'd1', 'd0', 'd0', 'd0']
    """
    routers = len(network.routers)
    if not 1 <= count <= routers:
        raise ValueError(f"{count} domains cannot be made of {routers} routers; give a number between 1 and {routers}")
    neighbours: list[list[tuple[int, float]]] = [[] for _ in range(routers)]
    for link in network.links:
        neighbours[link.a].append((link.b, link.latency_s))
        neighbours[link.b].append((link.a, link.latency_s))
    owner, cost = [0] * routers, [(routers, 0.0)] * routers
    _claim(0, 0, neighbours, owner, cost)
    seed = _farthest(cost)
    cost = [(routers, 0.0)] * routers
    for number in range(count):
        _claim(seed, number, neighbours, owner, cost)
        seed = _farthest(cost)
    note = f"routers parted into {count} domain{'s' * (count > 1)} by nearness"
    return replace(
        network,
        routers=tuple(replace(router, domain=f"d{owner[i]}") for i, router in enumerate(network.routers)),
        notes=(*network.notes, note),
    )


def _farthest(cost: list[Cost]) -> int:
    return max(range(len(cost)), key=lambda router: (cost[router], -router))


def _claim(
    seed: int, number: int, neighbours: list[list[tuple[int, float]]], owner: list[int], cost: list[Cost]
) -> None:
    """Gives to domain `number` every router that is nearer to `seed` than to the seeds before it.

    The routers on the way to such a router are nearer too, so that each domain is connected.
    """
    queue: list[tuple[int, float, int]] = [(0, 0.0, seed)]
    while queue:
        hops, latency_s, router = heapq.heappop(queue)
        if (hops, latency_s) >= cost[router]:
            continue
        cost[router], owner[router] = (hops, latency_s), number
        for other, step_s in neighbours[router]:
            if (hops + 1, latency_s + step_s) < cost[other]:
                heapq.heappush(queue, (hops + 1, latency_s + step_s, other))
