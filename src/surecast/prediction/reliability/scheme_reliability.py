"""The reliability of each flow under each scheme, and what becomes of the events that do not arrive."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.reliability.pairs import PairConnections
from surecast.prediction.reliability.price import flow_values
from surecast.prediction.reliability.reliability_model import DeliveryModel
from surecast.prediction.reliability.static_routes import with_refresh
from surecast.scenario.spec.delivery import SCHEMES

__all__ = ["SCHEMES", "SchemeAnswer", "Term", "answers"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

"""All schemes, in the order in which reports show them."""
_ROUNDING = 1e-12
"""Differences of probabilities below this are none."""


@dataclass(frozen=True)
class Term:
    """A part of P[delay > t] of each flow's events, given that the home was up: `factor` times that of a `route`, which
    at the deadline is `tail`, and has the integral `mean` up to there."""

    route: Index
    factor: Array
    tail: Array
    mean: Array


@dataclass(frozen=True)
class SchemeAnswer:
    """Per flow: P[arrives in time], its interval where it was sampled, and P[lost] by reason, all as if the
    links to clients never failed.

    `late` adds up to P[delay > t] of each flow's events, given that the home was up; routes are numbered as in the
    model's table, or that for bypass if there are several terms. None where events arrive at once or never.
    """

    scheme: str
    reliability: Array
    how: str
    dropped: dict[str, Array]
    low: Array | None = None
    high: Array | None = None
    late: tuple[Term, ...] | None = None
    notes: tuple[str, ...] = field(default=())
    behind: Array | None = None
    """P[arrives late by the time on brokers and links], None where that is not counted."""


def answers(
    model: DeliveryModel,
    schemes: tuple[str, ...],
    delays: tuple[Array, Array],
    connections: PairConnections | None,
    bare: PairConnections | None,
) -> list[SchemeAnswer]:
    """Returns the answer for each scheme; `delays` are P[delay > deadline] and the mean of min(delay, deadline) of each
    entry of the model's spread, and `bare` the connections with links that never fail.
    """
    scheme_answers = []
    for scheme in schemes:
        if scheme == "none":
            scheme_answers.append(_none(model))
        elif scheme == "periodic-subscription":
            scheme_answers.append(_periodic(model))
        elif scheme == "buffering":
            scheme_answers.append(_buffering(model, *delays))
        elif connections is not None and scheme == "bypass":
            scheme_answers.append(_bypass(model, connections))
        elif connections is not None and bare is not None:
            scheme_answers.append(_bypass_buffering(model, connections, bare))
    return scheme_answers


def _home_down(model: DeliveryModel) -> Array:
    return 1.0 - model.home_up


def _none(model: DeliveryModel) -> SchemeAnswer:
    """Entries lost in a crash never come back: what arrives in the long run has a route of brokers that never fail. But
    where neighbours compare what they want at every link-up they do, as with periodic subscription."""
    if model.refreshes_by_link:
        return replace(_periodic(model), scheme="none")
    fails = np.array([broker is not None for broker in model.components.brokers])
    parts = model.paths.parts
    rows = np.repeat(np.arange(len(parts.start) - 1), np.diff(parts.start) + 1)
    failing = np.bincount(rows, weights=fails[parts.broker], minlength=len(parts.start) - 1) > 0
    lost = failing[model.flow_path]
    up = np.where(lost, 0.0, model.path_up[model.flow_path])
    dropped = {"home broker down": _home_down(model), "no routing entry": np.where(lost, model.home_up, 0.0)}
    if not lost.all():
        dropped["path down"] = np.where(lost, 0.0, model.home_up - up)
    return SchemeAnswer("none", up, "exact", dropped)


def _periodic(model: DeliveryModel) -> SchemeAnswer:
    up = model.path_up[model.flow_path]
    value, how = up, "exact"
    notes: tuple[str, ...] = ()
    if not model.refreshes_at_once:
        interval, timeout = model.refresh_s
        chosen, back = np.unique(model.flow_path, return_inverse=True)
        refreshed = with_refresh(model.paths.parts, chosen, model.components, interval, timeout)
        value, how = np.minimum(refreshed[back], up), "approximation"
        notes = (
            f"periodic-subscription: refreshes every {interval:g} s, entries time out after {timeout:g} s; what blocks "
            "several refreshes in a row is approximated; each home broker refreshes on its own, at a random phase",
        )
        if model.components.not_exponential:
            notes += ("periodic-subscription: between refreshes all times are taken to be exponential",)
    dropped = {"home broker down": _home_down(model), "path down": model.home_up - up}
    if not model.refreshes_at_once:
        dropped["no routing entry"] = up - value
    return SchemeAnswer("periodic-subscription", value, how, dropped, notes=notes)


def _delay_notes(model: DeliveryModel) -> tuple[str, ...]:
    """Returns the reasons why the delay distribution is not exact; empty if it is."""
    notes = []
    if model.interval_s > 0:
        notes.append(
            f"buffering: attempts every {model.interval_s:g} s; exact for events that wait at one broker, approximated "
            "for those that wait at several; an attempt that falls into an outage of its broker is not made up for"
        )
    if model.components.not_exponential:
        names = model.components.not_exponential
        some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        notes.append(
            f"buffering: times that are not exponential ({some}) are replaced by phases with the same two moments, at "
            "most three stages; then the hops of a route are independent only approximately"
        )
    return tuple(notes)


def _buffering(model: DeliveryModel, tails: Array, means: Array) -> SchemeAnswer:
    late, mean = flow_values(model, tails), flow_values(model, means)
    # reliability Eq. 4, with <=
    value = model.home_up * (1.0 - late)
    dropped = {"home broker down": _home_down(model), "expired": model.home_up * late}
    notes = _delay_notes(model)
    how = "approximation" if notes else "exact"
    term = Term(model.flow_path, np.ones_like(value), late, mean)
    return SchemeAnswer("buffering", value, how, dropped, late=(term,), notes=notes)


def _bypass(model: DeliveryModel, connections: PairConnections) -> SchemeAnswer:
    connected = np.minimum(connections.value, _ends_up(model))
    dropped = {"home broker down": _home_down(model), "partitioned": model.home_up - connected}
    notes: tuple[str, ...] = (connections.note,) if connections.note else ()
    if not model.detection_s:
        how, low, high = connections.how, connections.low, connections.high
        return SchemeAnswer("bypass", connected, how, dropped, low, high, notes=notes)
    unnoticed = _unnoticed(model, connected, np.zeros_like(connected))
    dropped["path down"] = unnoticed
    low, high = (None if end is None else end - unnoticed for end in (connections.low, connections.high))
    notes += (_detection_note(model, "bypass"),)
    return SchemeAnswer("bypass", connected - unnoticed, "approximation", dropped, low, high, notes=notes)


def _detection_note(model: DeliveryModel, scheme: str) -> str:
    return (
        f"{scheme}: for {model.detection_s:g} s after a failure on its static route events are sent into it; a second "
        "failure meanwhile, and one on a detour, are neglected"
    )


def _unnoticed(model: DeliveryModel, connected: Array, patience_s: Array) -> Array:
    """Returns P[the route has failed so lately that nobody has noticed it, a way around it is up, and an event cannot
    wait until somebody has] of each flow.

    A component that takes the route down is noticed after the detection time, if it has not been repaired by then. A
    way around is up as often as whenever the route is down and its ends are up.
    """
    parts, components = model.paths.parts, model.components
    count = len(model.paths.parent)
    latest = np.full(count, model.detection_s)

    def rates(failure: Array, repair: Array, within_s: Array, over: Index) -> Array:
        """Failures per second times the time until they are noticed or repaired, at most some time."""
        repair = np.where(repair > 0, repair, 1.0)
        return np.asarray(failure * -np.expm1(-repair * within_s[over]) / repair, dtype=np.float64)

    def up_to(within_s: Array) -> Array:
        broker_rows = np.repeat(np.arange(count), np.diff(parts.start) + 1)
        link_rows = np.repeat(np.arange(count), np.diff(parts.start))
        failure, repair = components.broker_failure, components.broker_repair
        lost = rates(failure[parts.broker], repair[parts.broker], within_s, broker_rows)
        is_end = np.zeros(len(parts.broker), dtype=np.bool_)
        is_end[parts.start[:-1] + np.arange(count)] = is_end[parts.start[1:] + np.arange(count)] = True
        total = np.bincount(broker_rows, weights=np.where(is_end, 0.0, lost), minlength=count)
        links_failure = np.append(components.link_failure, 0.0)[parts.link]  # where there are no links, none is there
        links_repair = np.append(components.link_repair, 0.0)[parts.link]
        over = rates(links_failure, links_repair, within_s, link_rows)
        return np.asarray(total + np.bincount(link_rows, weights=over, minlength=count), dtype=np.float64)

    path = model.flow_path
    route_up, ends_up = model.path_up[path], _ends_up(model)
    around = np.divide(
        connected - route_up, ends_up - route_up, out=np.zeros_like(route_up), where=ends_up - route_up > _ROUNDING
    )
    waited = np.zeros(count)
    np.maximum.at(waited, path, np.minimum(patience_s, model.detection_s))
    unnoticed = up_to(latest)[path] - up_to(waited)[path]
    return np.asarray(np.clip(route_up * unnoticed * np.clip(around, 0.0, 1.0), 0.0, connected), dtype=np.float64)


def _ends_up(model: DeliveryModel) -> Array:
    """Returns P[both home brokers are up] of each flow."""
    last_up = model.components.broker_up[model.paths.last[model.flow_path]]
    return model.home_up * np.where(model.spread.of_flow >= 0, last_up, 1.0)


def _late_factors(model: DeliveryModel, followed: NDArray[np.bool_], at_once: Array, bare: Array) -> tuple[Array, ...]:
    """By how much the four distributions of `DeliveryModel.bypass_routes` count in P[delay > t] of each flow.

    Events that meet a partition are of three kinds: their last broker is down; or it is up and other brokers alone make
    the partition; or it takes links too. The last two are as often late as those that find their static route down for
    that reason. `bare` is the connection probability with links that never fail.
    """
    path, ends_up = model.flow_path, _ends_up(model)
    down = np.where(followed, 1.0 - model.components.broker_up[model.paths.last[path]], 0.0)
    route_up, bare_up = model.table.atoms[path], model.bare.table.atoms[path]
    connected = np.clip(at_once, model.home_up * route_up, ends_up) / model.home_up
    by_links = np.clip(bare, model.home_up * bare_up, ends_up) / model.home_up - connected
    by_links = np.clip(by_links, 0.0, bare_up - route_up)
    by_brokers = 1.0 - down - connected - by_links

    def share(partitioned: Array, waits: Array) -> Array:
        ratio = np.divide(partitioned, waits, out=np.zeros_like(waits), where=waits > _ROUNDING)
        return np.clip(ratio, 0.0, 1.0)

    links, brokers = share(by_links, bare_up - route_up), share(by_brokers, 1.0 - down - bare_up)
    more = brokers - links
    return links + (1.0 - links) * down, (1.0 - links) * down, more * (1.0 - down), -more * down


def _bypass_buffering(model: DeliveryModel, connections: PairConnections, bare: PairConnections) -> SchemeAnswer:
    routes = model.bypass_routes[1][:, model.flow_path]
    late = [model.bypass_delays(route, model.flow_patience_s) for route in routes]

    def factors(at_once: Array) -> tuple[Array, ...]:
        return _late_factors(model, routes[1] >= 0, at_once, bare.value)

    def combined(at_once: Array) -> Array:
        # reliability Eq. 13, corrected: a_b0 - r for 1 - r, P[0 < d <= D] for P[d <= D], and by what is down at first
        lost = sum((f * tail for f, (tail, _) in zip(factors(at_once), late, strict=True)), np.zeros_like(at_once))
        return np.asarray(model.home_up * (1.0 - np.clip(lost, 0.0, 1.0)), dtype=np.float64)

    late_by = np.zeros(len(model.flow_path))
    if model.detection_s:
        late_by = _unnoticed(model, np.minimum(connections.value, _ends_up(model)), model.flow_patience_s)
    value = combined(connections.value) - late_by
    dropped = {"home broker down": _home_down(model), "expired": model.home_up - value}
    low = None if connections.low is None else combined(connections.low) - late_by
    high = None if connections.high is None else np.maximum(combined(connections.high) - late_by, value)
    notes = (
        "bypass-buffering: an event that meets a partition is taken to follow its static route from then on; if its "
        "last broker is up, the partition is taken to be like an outage of that route by its brokers, or by its links, "
        "whichever make the partition (reliability Eq. 13)",
        *_fallback_notes(model, routes[1]),
        *((_detection_note(model, "bypass-buffering"),) if model.detection_s else ()),
        *((connections.note,) if connections.note else ()),
        *_delay_notes(model),
    )
    parts = zip(routes, factors(connections.value), late, strict=True)
    terms = tuple(Term(route, factor, tail, mean) for route, factor, (tail, mean) in parts)
    return SchemeAnswer("bypass-buffering", value, "approximation", dropped, low, high, terms, notes)


def _fallback_notes(model: DeliveryModel, route: Index) -> tuple[str, ...]:
    """Says where a last broker has no exponential times, so that what it was at first is not followed."""
    lasts = np.unique(model.paths.last[model.flow_path[(route < 0) & (model.spread.of_flow >= 0)]])
    if all(model.components.brokers[i] is None for i in lasts.tolist()):
        return ()
    return (
        "bypass-buffering: where times of a subscriber's home broker are not exponential, the delay of an event that "
        "meets a partition is taken to be that of one that finds its static route down",
    )
