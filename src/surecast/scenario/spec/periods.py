"""Periods of the day in which filter classes are used more or less than in the mean."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from surecast.documents.models import Name
from surecast.scenario.spec.base import ScenarioPart, Share

__all__ = ["ClassPeriodSpec", "PeriodSpec", "Periods"]

Factor = Annotated[float, Field(ge=0, allow_inf_nan=False)]

SHARES_OFF_MAX = 0.001


class ClassPeriodSpec(ScenarioPart):
    """The use of a class, or a group of classes, in a period."""

    name: Name
    """Name of a class, or of a group of them."""
    publications: Factor | None = None
    """Factor on its publications, in place of the period's."""
    subscriptions: Factor | None = None
    """Factor on its new subscriptions, in place of the period's."""


class PeriodSpec(ScenarioPart):
    """A part of the day with its own rates, long enough for the system to settle."""

    name: Name
    """Name of the period."""
    share: Share
    """Share of the time; those of all periods sum to 1."""
    publications: Factor = 1.0
    """Factor on the publications of all classes."""
    subscriptions: Factor = 1.0
    """Factor on the new subscriptions of all classes."""
    classes: list[ClassPeriodSpec] = Field(default_factory=list)
    """Classes with factors of their own; where several entries fit a class the last one counts."""


def _whole_day(periods: list[PeriodSpec]) -> list[PeriodSpec]:
    names = [period.name for period in periods]
    for name in names:
        if names.count(name) > 1:
            raise PydanticCustomError("periods", "the period {name} is given twice; names must differ", {"name": name})
    total = sum(period.share for period in periods)
    if periods and abs(total - 1.0) > SHARES_OFF_MAX:
        raise PydanticCustomError(
            "periods", "the shares of the periods sum to {total}; they must sum to 1", {"total": f"{total:g}"}
        )
    return periods


Periods = Annotated[list[PeriodSpec], AfterValidator(_whole_day)]
"""All periods of a day; none where every hour is like the other."""
