"""Routing with an algorithm for each link (hybrid routing), for uniform intervals.

What a broker announces over a link is made of what its own clients want and of what was announced to it. A link of
identity routing makes the whole class of it, one of merging the hull; simple and covering ones leave the intervals as
they are. So what is announced over a link consists of three kinds of items: single intervals, hulls of the
subscriptions behind merging links, and whole classes. Their numbers of subscriptions are Poisson and independent of
each other. Behind a link of flooding nothing is announced: who announces elsewhere then asks for everything.

A subscription passes a link if it passed all before it and changes what is announced there. Of the conditions on its
way those of the last identity link, or of the last merging link and the last covering or merging link, imply the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.capacity.overlay_tree import BrokerTree

__all__ = ["LinkLaws", "link_laws"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_STEP, _REACH = 0.55, 26.0


@dataclass(frozen=True)
class LinkLaws:
    """By directed link and class: P_n, the mean of P_s over the subscriptions behind it, and the entries for the
    neighbour it leads to. `notified` and `subscribed` say where the first two are above 0. `everything` counts, by
    directed link, the entries for that neighbour which stand for all classes."""

    notify: Array
    subscribe: Array
    entries: Array
    notified: Mask
    subscribed: Mask
    everything: Array


def link_laws(
    tree: BrokerTree, routings: Sequence[str], is_hierarchical: bool, own: Array, advertised: Mask | None = None
) -> LinkLaws:
    """Returns the laws of links, each with its own algorithm in both directions.

    `own` has the mean number of subscriptions by broker and class, `advertised` whether a class is published behind
    each directed link, where subscriptions travel to advertisers only.
    """
    return _Mixed(tree, routings, is_hierarchical, own, advertised).laws()


@dataclass(frozen=True)
class _Behind:
    """The announcements from the tail of a directed link: means of subscriptions by class of single intervals, of
    those in whole classes, and of each hull, with the link that made it."""

    single: Array
    whole: Array
    hulls: dict[int, Array]

    @property
    def apart(self) -> Array:
        """The mean number of subscriptions that are not in whole classes."""
        return sum(self.hulls.values(), self.single)


class _Mixed:
    """All links: `announces` says over which directed links anything of a class is announced, `asks_all` how often
    everything is asked for over each."""

    def __init__(
        self, tree: BrokerTree, routings: Sequence[str], is_hierarchical: bool, own: Array, advertised: Mask | None
    ):
        self.tree, self.own, self.is_hierarchical = tree, own, is_hierarchical
        self.routing = [*routings, *routings]
        rising = tree.rising if is_hierarchical else np.ones(2 * tree.links, np.bool_)
        self.tells = [bool(up) and name != "flooding" for up, name in zip(rising, self.routing, strict=True)]
        self.advertised = np.ones((2 * tree.links, own.shape[1]), np.bool_) if advertised is None else advertised
        self.into: list[list[int]] = [[] for _ in range(tree.brokers)]
        for link, head in enumerate(tree.head.tolist()):
            self.into[head].append(link)
        self.behind: list[_Behind] = [_Behind(own[:0], own[:0], {})] * (2 * tree.links)
        self.asks_all = np.zeros(2 * tree.links)
        self.changes: dict[tuple[int, int, int], Array] = {}
        for link in self._outwards():
            self._announce(link)
        self.announces = [
            tells and not (self.routing[link] == "covering" and self.asks_all[link] > 0.0)
            for link, tells in enumerate(self.tells)
        ]

    def _outwards(self) -> list[int]:
        """Returns the directed links in an order in which those that lead into the tail of a link come before it."""
        up = [self.tree.up[broker] for broker in reversed(self.tree.order[1:])]
        return [*up, *(self.tree.back(link) for link in reversed(up))]

    def _before(self, link: int) -> list[int]:
        """Returns the directed links into the tail of a link, but for its own other direction."""
        return [e for e in self.into[self.tree.tail[link]] if e != self.tree.back(link)]

    def _announce(self, link: int) -> None:
        """Gathers what is behind a link, from what is behind those before it."""
        if not self.tells[link]:
            return
        single, whole = self.own[self.tree.tail[link]].copy(), np.zeros(self.own.shape[1])
        hulls: dict[int, Array] = {}
        asks = float(any(self.routing[e] == "flooding" for e in self._before(link)))
        for e in self._before(link):
            if not self.tells[e]:
                continue
            kind, before = self.routing[e], self.behind[e]
            asks += self.asks_all[e]
            if kind == "covering" and self.asks_all[e] > 0.0:
                continue
            if kind == "identity":
                whole += before.apart + before.whole
                continue
            whole += before.whole
            if kind == "merging":
                hulls[e] = before.apart
            else:
                single += before.single
                hulls |= before.hulls
        if not self.advertised[self.tree.back(link)].any():
            asks = 0.0  # nobody at the other end publishes anything
        self.behind[link] = _Behind(single, whole, hulls)
        self.asks_all[link] = asks if self.routing[link] == "simple" else min(asks, 1.0)

    def laws(self) -> LinkLaws:
        tree, shape = self.tree, (2 * self.tree.links, self.own.shape[1])
        notify, entries, everything = np.ones(shape), np.zeros(shape), np.zeros(shape[0])
        notified = np.ones(shape, np.bool_)
        changed, behind = np.zeros(shape), tree.reverse(tree.beyond(self.own))
        for link in self._outwards():
            there = tree.back(link)  # messages go back against what is announced
            if not self.tells[link]:
                continue
            everything[there] = self.asks_all[link]
            entries[there] = self._entries(link, entries)
            if not self.asks_all[link]:
                notify[there], notified[there] = self._notified(link), self._number(link) > 0.0
        for broker in range(tree.brokers):
            self._follow(broker, changed)
        subscribe = np.divide(changed, behind, out=np.zeros(shape), where=behind > 0.0)
        meets = self.advertised[[tree.back(link) for link in range(2 * tree.links)]]
        subscribed = np.array(self.announces, np.bool_)[:, None] & meets
        return LinkLaws(
            notify, np.where(meets, subscribe, 0.0), np.where(self.advertised, entries, 0.0), notified, subscribed,
            everything,
        )  # fmt: skip

    def _number(self, link: int) -> Array:
        return self.behind[link].apart + self.behind[link].whole

    def _notified(self, link: int) -> Array:
        """Returns P[a notification matches what is announced over a link]."""
        behind, kind = self.behind[link], self.routing[link]
        if kind == "identity":
            return np.asarray(-np.expm1(-self._number(link)), dtype=np.float64)
        single, hulls = behind.single, list(behind.hulls.values())
        if kind == "merging":
            single, hulls = np.zeros_like(single), [behind.apart]
        value, other, weight = _line()
        missed = np.exp(-2.0 * single[:, None] * value * other)
        for x in (hull[:, None] for hull in hulls):
            # all ends are on one side of the value, or there are none
            missed = missed * (np.exp(-x * other * (1.0 + value)) + np.exp(-x * value * (1.0 + other)) - np.exp(-x))
        passed = (1.0 - np.exp(-behind.whole)[:, None] * missed) @ weight
        return np.asarray(np.where(self._number(link) > 0.0, passed, 0.0), dtype=np.float64)

    def _entries(self, link: int, before: Array) -> Array:
        """Returns the mean number of entries of each class that are announced over a link; `before` has those of the
        links before it."""
        behind, kind = self.behind[link], self.routing[link]
        if not self.announces[link]:
            return np.zeros(self.own.shape[1])
        if kind in ("identity", "merging"):
            return np.asarray(-np.expm1(-self._number(link)), dtype=np.float64)
        if kind == "simple":
            through = [before[self.tree.back(e)] for e in self._before(link)]
            return np.asarray(sum(through, self.own[self.tree.tail[link]]), dtype=np.float64)
        none = np.zeros(self.own.shape[1])
        found = behind.single * self._passes(none, behind.single, list(behind.hulls.values()))
        for made, x in behind.hulls.items():
            others = [hull for link_of, hull in behind.hulls.items() if link_of != made]
            found += self._passes(x, behind.single, others, is_hull=True)
        return np.asarray(-np.expm1(-behind.whole) + np.exp(-behind.whole) * found, dtype=np.float64)

    def _passes(self, merged: Array, single: Array, hulls: Sequence[Array], *, is_hull: bool = False) -> Array:
        """Returns P[an interval extends the hull of `merged` others, and nothing else covers the hull then]; with
        `is_hull` the mean number of hulls of `merged` subscriptions that nothing covers, 0 or 1."""
        low, high, width, beside, weight = _triangle()
        x = merged[:, None]
        density = (
            np.exp(-x * beside) * (4.0 * x**2 * width**2 + 2.0 * x)
            if is_hull
            else np.exp(-x * beside) * (8.0 * x * width**2 + 2.0)
        )
        # a single interval covers it with probability 2 low (1 - high)
        density = density * np.exp(-2.0 * single[:, None] * low * high)
        for each in (hull[:, None] for hull in hulls):
            density = density * (
                np.exp(-each * low * (2.0 - low)) + np.exp(-each * high * (2.0 - high)) - np.exp(-each * beside)
            )
        return np.asarray(density @ weight, dtype=np.float64)

    def _follow(self, start: int, changed: Array) -> None:
        """Adds the subscriptions of one broker that pass each link."""
        rate = self.own[start]
        if not rate.any():
            return
        # a broker, the link by which it was reached, and the links that decide
        ahead: list[tuple[int, int, tuple[int, int, int]]] = [(start, -1, (-1, -1, -1))]
        while ahead:
            broker, reached, (identity, merging, last) = ahead.pop()
            back = self.tree.back(reached) if reached >= 0 else -1
            for arriving in self.into[broker]:
                link = self.tree.back(arriving)
                if link == back or not self.announces[link]:
                    continue
                kind = self.routing[link]
                decide = (identity, merging, last)
                if kind == "identity":
                    decide = (link, -1, -1)
                elif kind == "merging":
                    decide = (identity, link if identity < 0 else -1, link)
                elif kind == "covering":
                    decide = (identity, merging, link)
                if decide not in self.changes:
                    self.changes[decide] = self._change(*decide)
                changed[link] += rate * self.changes[decide]
                ahead.append((int(self.tree.head[link]), link, decide))

    def _change(self, identity: int, merging: int, last: int) -> Array:
        """Returns P[a subscription changes what is announced over all links on its way], by those that decide: the
        last identity link (-1: none), the last merging link where no identity comes before it, and the last one that
        covers or merges, behind the last identity link."""
        if identity >= 0:
            return np.asarray(np.exp(-(self._number(identity) if last < 0 else self.behind[last].whole)))
        if last < 0:
            return np.ones(self.own.shape[1])
        behind = self.behind[last]
        merged = self.behind[merging].apart if merging >= 0 else np.zeros_like(behind.whole)
        if last == merging:
            chance = self._passes(merged, np.zeros_like(merged), [])
        else:
            others = [hull for made, hull in behind.hulls.items() if made != merging]
            chance = self._passes(merged, behind.single, others)
        return np.asarray(np.exp(-behind.whole) * chance, dtype=np.float64)


@lru_cache(maxsize=1)
def _line() -> tuple[Array, Array, Array]:
    """Returns points of (0, 1), their distance from 1 and their weights; they are dense at both ends."""
    s = np.arange(-_REACH, _REACH + _STEP / 2.0, _STEP)
    point, other = 1.0 / (1.0 + np.exp(-s)), 1.0 / (1.0 + np.exp(s))
    weight = point * other
    return point, other, weight / weight.sum()


@lru_cache(maxsize=1)
def _triangle() -> tuple[Array, Array, Array, Array, Array]:
    """Returns intervals [a, b] of (0, 1), dense at both ends: a, 1 - b, b - a, 1 - (b - a)², and their weights."""
    point, other, weight = _line()
    low, rest = point[:, None], other[:, None]
    high = rest * other[None, :]
    width = rest * point[None, :]
    low = np.broadcast_to(low, width.shape)
    weights = weight[:, None] * weight[None, :] * rest
    beside = (low + high) * (1.0 + width)
    return low.ravel(), high.ravel(), width.ravel(), beside.ravel(), weights.ravel()
