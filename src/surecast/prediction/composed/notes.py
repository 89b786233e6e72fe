"""The assumptions of the composition: every independence by its name, and the effects that are left out."""

from __future__ import annotations

from collections.abc import Sequence

from surecast.prediction.composed.composed_model import ComposedModel
from surecast.report import ReportBuilder
from surecast.scenario.coverage import left_out

__all__ = ["add_assumptions"]


def add_assumptions(builder: ReportBuilder, model: ComposedModel, parts: Sequence[str]) -> None:
    """Adds a warning for each independence that is assumed between parts that are there, and notes on the rest."""
    for needed, sentence in _INDEPENDENCE:
        if needed <= set(parts):
            builder.warn(f"composed: {sentence}")
    system = model.system
    builder.note(f"composed: {' and '.join(parts)} together, under {model.scheme}; delays are of delivered events")
    for note in model.answer.notes:
        builder.note(note)
    if "path failure" in parts and model.scheme == "buffering":
        builder.note(
            "composed: a wait for repairs ends at an attempt, so it takes whole retransmission intervals; an event "
            "whose deadline passes in such a wait is dropped, one that is late for another reason is delivered late"
        )
    for warning in model.warnings:
        builder.warn(warning)
    if model.delivery.components.simplified:
        names = ", ".join(model.delivery.components.simplified)
        builder.warn(f"groups with many states have up and down times with the same moments instead: {names}")
    for sentence in left_out(system, "the composed model"):
        builder.leave_out(sentence)


_INDEPENDENCE = (
    (
        {"path failure"},
        "brokers, links and the clients' links fail independently of each other and of what they carry",
    ),
    (
        {"queueing"},
        "the queues on a way are independent of each other, and events come to each of them at random (Poisson)",
    ),
    (
        {"path failure", "queueing"},
        "queueing is independent of failures: what piles up in an outage, and then comes all at once, is left out",
    ),
    (
        {"replication"},
        "the time that a group takes to order an event is independent of its outages: all its replicas are up",
    ),
    (
        {"dropping"},
        "a subscriber's connected periods are independent of what is published, of all queues and of all failures",
    ),
    (
        {"path failure", "dropping"},
        "a subscriber's queue is independent of failures: while events come they come at random (Poisson) at their "
        "usual rate; an outage of the home broker makes all that waits there later by its length, on or off line",
    ),
)
