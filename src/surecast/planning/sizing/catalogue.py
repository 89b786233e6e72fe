"""Machine classes to choose from: cores, memory, bandwidth, cost, and their speed beside the calibrated machine."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from surecast.documents.reading import parse_source, read_source
from surecast.documents.source import DocumentKind
from surecast.documents.units import Size
from surecast.documents.validation import Int, Name, Spec, check_model
from surecast.profile import BrokerProfile, Interval

__all__ = ["Catalogue", "MachineClass", "load_catalogue", "profile_on"]

CATALOGUE_FILE = DocumentKind(
    "list of machines",
    "surecast-machines: 1 and machines:",
    "write machines: [{name: small, cores: 2, memory: 4GB, bandwidth: 300MB, cost: 20}]",
)


class Speed(Spec):
    """Processor time of the calibrated machine for the same work, relative to this one's."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    estimate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """The estimate; above 1 for a faster machine."""
    low: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.7
    """The least."""
    high: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.4
    """The most."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.estimate <= self.high:
            raise PydanticCustomError("speed", "the estimate is outside its range; write low <= estimate <= high")
        return self


class MachineClass(Spec):
    """A class of machines."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: Name
    """Its name."""
    cores: Int = Field(ge=1, le=4096)
    """Cores."""
    memory: Size
    """Memory."""
    bandwidth: Size
    """Bytes per second that its network carries."""
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Cost, in the unit of the list."""
    speed: Speed = Speed()
    """How fast a core is beside one of the calibrated machine: an assumption, with its range."""


class Catalogue(Spec):
    """A list of machine classes."""

    model_config = ConfigDict(use_attribute_docstrings=True, populate_by_name=True)

    surecast_machines: Annotated[Literal[1], Field(alias="surecast-machines")]
    """Version of this format: 1."""
    currency: str = ""
    """The unit of costs."""
    machines: list[MachineClass] = Field(min_length=1)
    """The classes."""


def load_catalogue(path: Path | None = None) -> Catalogue:
    """Returns the classes of a file, or those that come with Surecast.

    >>> [machine.name for machine in load_catalogue().machines]
    ['tiny', 'small', 'medium', 'large', 'huge']
    """
    if path is not None:
        return check_model(read_source(path, CATALOGUE_FILE), Catalogue, CATALOGUE_FILE)
    text = files("surecast.planning.sizing").joinpath("machines.yaml").read_text(encoding="utf-8")
    return check_model(parse_source(text, "machines.yaml", Path(), CATALOGUE_FILE), Catalogue, CATALOGUE_FILE)


def profile_on(profile: BrokerProfile, machine: MachineClass, speed: float) -> BrokerProfile:
    """Returns what a broker costs on a machine that is faster by a factor.

    A broker of one thread uses one core of any machine; one of several threads is taken to use them all.
    """
    costs = {
        name: Interval(estimate=each.estimate / speed, low=each.low / speed, high=each.high / speed)
        for name, each in ((name, getattr(profile.costs, name)) for name in type(profile.costs).model_fields)
    }
    cores = 1.0 if profile.cores <= 1.0 else float(machine.cores)
    return profile.model_copy(
        update={"costs": profile.costs.model_copy(update=costs), "cores": cores, "idle": profile.idle / speed}
    )
