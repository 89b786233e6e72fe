"""Systems with several brokers at a site, with more load, or without one site, made from the one that was described."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from surecast.scenario.system import OverlayLink, Publisher, Subscriber, System

__all__ = ["grown", "spread", "without_site"]


def spread(system: System, counts: Sequence[int]) -> System:
    """Returns the system with so many brokers at each site, that is, in place of each broker.

    The first broker of a site keeps its links to other sites and has one to each other broker of its own, which takes
    no time. The clients of a site are spread evenly over its brokers.
    """
    brokers, links = list(system.overlay.brokers), list(system.overlay.links)
    places: list[list[int]] = [[i] for i in range(len(brokers))]
    for site, count in enumerate(counts):
        for number in range(2, count + 1):
            name = f"{brokers[site].name}.{number}"
            places[site].append(len(brokers))
            links.append(OverlayLink(f"{brokers[site].name}--{name}", site, len(brokers)))
            brokers.append(replace(brokers[site], name=name))
    inside = tuple(range(len(system.overlay.links), len(links)))
    trees = {topic: (*tree, *inside) for topic, tree in system.overlay.trees.items()}
    overlay = replace(system.overlay, brokers=tuple(brokers), links=tuple(links), trees=trees)
    return replace(
        system,
        overlay=overlay,
        publishers=tuple(_publishers(system.publishers, places)),
        subscribers=tuple(_subscribers(system.subscribers, places)),
    )


def _publishers(publishers: Sequence[Publisher], places: Sequence[Sequence[int]]) -> list[Publisher]:
    """Returns the publishers at the brokers of their sites; a population is divided."""
    spread_over, turns = [], [0] * len(places)
    for publisher in publishers:
        homes = places[publisher.home]
        if publisher.count == 1:
            spread_over.append(replace(publisher, home=homes[turns[publisher.home] % len(homes)]))
            turns[publisher.home] += 1
            continue
        parts = [len(range(k, publisher.count, len(homes))) for k in range(len(homes))]
        for number, (home, part) in enumerate(zip(homes, parts, strict=True), 1):
            if part:
                name = publisher.name if len(homes) == 1 else f"{publisher.name}.{number}"
                rate = publisher.rate_per_s * part / publisher.count
                spread_over.append(replace(publisher, name=name, home=home, count=part, rate_per_s=rate))
    return spread_over


def _subscribers(subscribers: Sequence[Subscriber], places: Sequence[Sequence[int]]) -> list[Subscriber]:
    spread_over, turns = [], [0] * len(places)
    for subscriber in subscribers:
        homes = places[subscriber.home]
        spread_over.append(replace(subscriber, home=homes[turns[subscriber.home] % len(homes)]))
        turns[subscriber.home] += 1
    return spread_over


def without_site(system: System, site: int) -> System | None:
    """Returns the system in which the clients of a site use the others, and its broker nobody; None where the others
    cannot reach each other without it, or there is no other."""
    others = [i for i in range(len(system.overlay.brokers)) if i != site]
    if not others:
        return None
    tree = _tree(system.overlay.links, others)
    if tree is None:
        return None
    places: list[list[int]] = [[i] for i in range(len(system.overlay.brokers))]
    places[site] = others
    overlay = replace(system.overlay, trees=dict.fromkeys(system.overlay.trees, tree))
    return replace(
        system,
        overlay=overlay,
        publishers=tuple(_publishers(system.publishers, places)),
        subscribers=tuple(_subscribers(system.subscribers, places)),
    )


def _tree(links: Sequence[OverlayLink], brokers: Sequence[int]) -> tuple[int, ...] | None:
    """Returns links that join brokers without a cycle; None where there are not enough."""
    reached, chosen = {brokers[0]}, []
    grows = True
    while grows:
        grows = False
        for i, link in enumerate(links):
            if {link.a, link.b} <= set(brokers) and (link.a in reached) != (link.b in reached):
                reached |= {link.a, link.b}
                chosen.append(i)
                grows = True
    return tuple(chosen) if len(reached) == len(brokers) else None


def grown(system: System, factor: float, grows: Callable[[int], bool] = lambda _: True) -> System:
    """Returns the system with the publishers of some sites publishing more, as more of them would."""
    return replace(
        system,
        publishers=tuple(
            replace(p, rate_per_s=p.rate_per_s * factor, count=max(1, round(p.count * factor))) if grows(p.home) else p
            for p in system.publishers
        ),
    )
