"""The reliability of each flow under each scheme, and what becomes of the events that do not arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.predict.reliability.model import DeliveryModel
from surecast.predict.reliability.pairs import PairConnections
from surecast.predict.reliability.price import flow_values, later_share
from surecast.predict.reliability.static import with_refresh

__all__ = ["SCHEMES", "SchemeAnswer", "answers"]

Array = NDArray[np.float64]

SCHEMES: Final = ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering")
"""All schemes, in the order in which reports show them."""


@dataclass(frozen=True)
class SchemeAnswer:
    """Per flow: P[arrives in time], its interval where it was sampled, and P[lost] by reason, all as if the
    links to clients never failed.

    `waits` is the factor by which P[delay > t] of the flow's route becomes that of its events, given that the home was
    up; None where events arrive at once or never.
    """

    scheme: str
    reliability: Array
    how: str
    dropped: dict[str, Array]
    low: Array | None = None
    high: Array | None = None
    waits: Array | None = None
    notes: tuple[str, ...] = field(default=())


def answers(
    model: DeliveryModel, schemes: tuple[str, ...], tails: Array, connections: PairConnections | None
) -> list[SchemeAnswer]:
    """The answer for each scheme; `tails` has P[delay > deadline] of each entry of the model's spread."""
    found = []
    for scheme in schemes:
        if scheme == "none":
            found.append(_none(model))
        elif scheme == "periodic-subscription":
            found.append(_periodic(model))
        elif scheme == "buffering":
            found.append(_buffering(model, tails))
        elif connections is not None and scheme == "bypass":
            found.append(_bypass(model, connections))
        elif connections is not None:
            found.append(_bypass_buffering(model, tails, connections))
    return found


def _home_down(model: DeliveryModel) -> Array:
    return 1.0 - model.home_up


def _none(model: DeliveryModel) -> SchemeAnswer:
    """Entries lost in a crash never come back: what arrives in the long run has a route of brokers that never fail."""
    fails = np.array([broker is not None for broker in model.components.brokers])
    parts = model.paths.parts
    rows = np.repeat(np.arange(len(parts.start) - 1), np.diff(parts.start) + 1)
    failing = np.bincount(rows, weights=fails[parts.broker], minlength=len(parts.start) - 1) > 0
    lost = failing[model.flow_path]
    up = np.where(lost, 0.0, model.path_up[model.flow_path])
    dropped = {"home down": _home_down(model), "no entry": np.where(lost, model.home_up, 0.0)}
    if not lost.all():
        dropped["path down"] = np.where(lost, 0.0, model.home_up - up)
    return SchemeAnswer("none", up, "exact", dropped)


def _periodic(model: DeliveryModel) -> SchemeAnswer:
    up = model.path_up[model.flow_path]
    value, how = up, "exact"
    notes: tuple[str, ...] = ()
    if not model.is_ideal:
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
    dropped = {"home down": _home_down(model), "path down": model.home_up - up}
    if not model.is_ideal:
        dropped["no entry"] = up - value
    return SchemeAnswer("periodic-subscription", value, how, dropped, notes=notes)


def _delay_notes(model: DeliveryModel) -> tuple[str, ...]:
    """Why the delay distribution is no exact one; empty if it is."""
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


def _buffering(model: DeliveryModel, tails: Array) -> SchemeAnswer:
    late = flow_values(model, tails)
    # reliability Eq. 4, with <=
    value = model.home_up * (1.0 - late)
    dropped = {"home down": _home_down(model), "expired": model.home_up * late}
    notes = _delay_notes(model)
    how = "approximation" if notes else "exact"
    return SchemeAnswer("buffering", value, how, dropped, waits=np.ones_like(value), notes=notes)


def _bypass(model: DeliveryModel, connections: PairConnections) -> SchemeAnswer:
    value = np.minimum(connections.value, model.home_up)
    dropped = {"home down": _home_down(model), "partitioned": model.home_up - value}
    notes = (connections.note,) if connections.note else ()
    return SchemeAnswer("bypass", value, connections.how, dropped, connections.low, connections.high, notes=notes)


def _bypass_buffering(model: DeliveryModel, tails: Array, connections: PairConnections) -> SchemeAnswer:
    share = later_share(model, tails)

    def combined(at_once: Array) -> Array:
        # reliability Eq. 13, corrected: a_b0 - r for 1 - r, and P[0 < d <= D] for P[d <= D]
        return np.asarray(at_once + np.maximum(model.home_up - at_once, 0.0) * share, dtype=np.float64)

    value = combined(np.minimum(connections.value, model.home_up))
    dropped = {"home down": _home_down(model), "expired": model.home_up - value}
    low = None if connections.low is None else combined(connections.low)
    high = None if connections.high is None else np.maximum(combined(connections.high), value)
    positive = 1.0 - model.table.atoms[model.flow_path]
    partitioned = 1.0 - connections.value / model.home_up
    waits = np.divide(partitioned, positive, out=np.zeros_like(value), where=positive > 0)
    notes = (
        "bypass-buffering: the delay of an event that meets a partition is taken to be that of one that finds its "
        "static route down (reliability Eq. 13)",
        *((connections.note,) if connections.note else ()),
        *_delay_notes(model),
    )
    waits = np.clip(waits, 0.0, 1.0)
    return SchemeAnswer("bypass-buffering", value, "approximation", dropped, low, high, waits, notes)
