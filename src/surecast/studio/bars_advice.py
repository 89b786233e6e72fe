"""The answers of `surecast.planning` as bars: what each advice turns on, at a glance."""

from __future__ import annotations

from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING

from surecast.studio.bars import BarSeries, bars
from surecast.studio.wording import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from surecast.planning import Deployment, HomeChoice, Improvement, ReliabilityPromise, SchemeChoice

__all__ = ["common_target", "draw_admission", "draw_deployment", "draw_homes", "draw_improvements", "draw_schemes"]

RELIABILITY = "predicted reliability"


def common_target(targets: Iterable[float | None]) -> float | None:
    """Returns the target that all subscribers with one share; None if they differ, or nobody has one.

    >>> common_target([0.9, None, 0.9]), common_target([0.9, 0.8])
    (0.9, None)
    """
    distinct = {target for target in targets if target is not None}
    return distinct.pop() if len(distinct) == 1 else None


def draw_admission(promises: Sequence[ReliabilityPromise], path: Path | str) -> Path:
    """Draws the share of subscribers at each home broker that can be promised their target, the least first.

    Subscribers whose topics nobody publishes are left aside.
    """
    promises = [promise for promise in promises if promise.reliability is not None]
    homes: dict[str, list[ReliabilityPromise]] = {}
    for promise in promises:
        homes.setdefault(promise.home, []).append(promise)
    share, notes = {}, {}
    for home, there in homes.items():
        mean = f"mean {fmean(p.reliability or 0.0 for p in there):.4f}"
        share[home] = round(100 * fmean(p.met for p in there), 1)
        notes[home] = f"{sum(p.met for p in there)} of {len(there)} · {mean}"
    names = sorted(homes, key=lambda home: share[home])
    met, target = sum(p.met for p in promises), common_target(p.target for p in promises)
    wanted = "their targets, which differ" if target is None else f"their target of {target:g}"
    return bars(
        [BarSeries("can be promised", names, [share[name] for name in names])],
        path,
        title="Which home brokers can promise the target",
        value_label="subscribers that can be promised their target",
        unit="%",
        caption=f"{met} of {count(len(promises), 'subscriber')} can be promised {wanted}. "
        "Means are of predicted reliability.",
        notes=notes,
    )


def draw_homes(choice: HomeChoice, path: Path | str, *, limit: int | None = None) -> Path:
    """Draws the number of subscribers of each broker before and after, the best homes first."""
    import numpy as np

    before, after = Counter(choice.before), Counter(choice.after)
    names = sorted({*before, *after}, key=lambda name: (-after[name], -before[name], name))
    was, becomes = (float(np.nanmean(v)) for v in (choice.reliability_before, choice.reliability_after))
    if choice.moved:
        says = (
            f"Moving {choice.moved} of {count(len(choice.subscribers), 'subscriber')} changes the mean predicted "
            f"reliability from {was:.4f} to {becomes:.4f}."
        )
    else:
        says = f"Nobody gains by moving: the mean predicted reliability is {was:.4f}."
    return bars(
        [
            BarSeries("now", names, [before[name] for name in names]),
            BarSeries("with the best homes", names, [after[name] for name in names]),
        ],
        path,
        title="Subscribers at each home broker",
        value_label="subscribers",
        caption=says,
        target=limit,
        target_label="at most",
    )


def draw_improvements(rows: Sequence[Improvement], path: Path | str) -> Path:
    """Draws the gain from repairing each component twice as fast, the best first."""
    names = [f"{row.kind} {row.component}" for row in rows]
    return bars(
        [BarSeries("if repaired twice as fast", names, [row.gain_half_repair for row in rows])],
        path,
        title="Which component to improve first",
        value_label="gain in mean predicted reliability",
        caption="What subscribers gain on average if this one component is repaired twice as fast.",
    )


def draw_schemes(choices: Sequence[SchemeChoice], path: Path | str, *, target: float | None = None) -> Path:
    """Draws the mean and worst reliability with each scheme, the cheapest first."""
    names = [choice.scheme for choice in choices]
    notes = {choice.scheme: f"{choice.messages_per_event:.3g} messages per event" for choice in choices}
    best = [choice.scheme for choice in choices if choice.cheapest]
    if best:
        says = f"The cheapest scheme that meets all targets is {best[0]}."
    else:
        says = "No scheme meets all targets." if choices and choices[0].targets else "There are no targets."
    return bars(
        [
            BarSeries("mean of all subscribers", names, [choice.mean for choice in choices]),
            BarSeries("worst subscriber", names, [choice.worst for choice in choices]),
        ],
        path,
        title="What each scheme gives, the cheapest first",
        value_label=RELIABILITY,
        caption=says,
        notes=notes,
        target=target,
    )


def draw_deployment(plan: Deployment, path: Path | str) -> Path:
    """Draws the number of subscribers still below target after each addition, with the mean reliability."""
    names = ["as it is", *(f"{i}. {addition}" for i, addition in enumerate(plan.additions, 1))]
    below = f"{count(plan.below_target[-1], 'subscriber')} stay{'s' if plan.below_target[-1] == 1 else ''} below target"
    says = f"All targets are met at cost {plan.cost:g}" if plan.met else f"{below} at cost {plan.cost:g}"
    return bars(
        [BarSeries("below target", names, plan.below_target)],
        path,
        title="Subscribers below target after each addition",
        value_label="subscribers below target",
        caption=f"{says}. Each addition comes on top of those above it.",
        notes={name: f"mean reliability {mean:.4f}" for name, mean in zip(names, plan.mean, strict=True)},
    )
