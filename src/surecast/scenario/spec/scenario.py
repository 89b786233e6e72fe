"""The scenario file as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from surecast.documents.reading import yaml_text
from surecast.documents.source import Source
from surecast.documents.units import Duration, PositiveDuration
from surecast.documents.validation import Int, Name
from surecast.scenario.estimates import Estimate, put_estimates, with_values
from surecast.scenario.spec.base import ScenarioPart, Share
from surecast.scenario.spec.delivery import DeliverySpec
from surecast.scenario.spec.network import NetworkSpec
from surecast.scenario.spec.overlay import AvailabilitySpec, OverlaySpec
from surecast.scenario.spec.workload import WorkloadSpec

if TYPE_CHECKING:
    from surecast.scenario.system import System

__all__ = ["Experiment", "Scenario", "Targets"]


def _whole_number(value: Any) -> Any:
    """Refuses true as a version, which Python takes for 1."""
    return str(value).lower() if isinstance(value, bool) else value


class Targets(ScenarioPart):
    """The quality of service that is asked for; what is left out is not asked for."""

    reliability: Share | None = None
    """Share of its events that every subscriber must get in time."""
    response_time: PositiveDuration | None = None
    """Mean response time that every subscriber accepts."""
    notification_delay: PositiveDuration | None = None
    """Largest expected notification delay on the worst path."""
    subscription_delay: PositiveDuration | None = None
    """Largest expected subscription delay on the worst path."""
    utilisation: Share | None = None
    """Largest utilisation of any broker, link or router."""


class Experiment(ScenarioPart):
    """The time for which the system is observed when it is simulated or run; every command can override it."""

    duration: PositiveDuration = 86400.0
    """Simulated or measured time of one run."""
    warm_up: Duration = 0.0
    """Time at the start that does not count."""
    runs: Int = Field(default=10, ge=1, le=1_000_000)
    """Independent runs, each with a seed of its own."""

    @model_validator(mode="after")
    def _something_left(self) -> Self:
        if self.warm_up >= self.duration:
            raise PydanticCustomError("experiment", "warm_up must be shorter than duration")
        return self


class Scenario(ScenarioPart):
    """One publish/subscribe system, described once."""

    surecast: Annotated[Literal[1], BeforeValidator(_whole_number)]
    """Version of this format: 1."""
    name: Name
    """Name of the scenario, used in reports."""
    description: str = ""
    """A sentence about the system, for readers."""
    seed: Int = Field(default=1, ge=0, lt=2**63)
    """Everything random follows from it."""
    network: NetworkSpec | None = None
    """The physical network; left out, there is none and overlay links have the latency they are given."""
    overlay: OverlaySpec
    """Brokers and the links between them."""
    availability: AvailabilitySpec = AvailabilitySpec()
    """The failures and repairs of brokers and links; what is left out never fails."""
    workload: WorkloadSpec = WorkloadSpec()
    """The publishers and subscribers, with their topics and filters."""
    delivery: DeliverySpec = DeliverySpec()
    """The delivery of events: routing, fault tolerance, replication, dropping."""
    targets: Targets = Targets()
    """The quality of service that is asked for."""

    experiment: Experiment = Experiment()
    """The time for which the system is observed when it is simulated or run."""

    _source: Source | None = PrivateAttr(default=None)
    _system: System | None = PrivateAttr(default=None)
    _estimates: tuple[Estimate, ...] = PrivateAttr(default=())

    @classmethod
    def load(cls, path: str | Path, settings: Mapping[str, object] | None = None) -> Scenario:
        """Reads and checks a scenario file; `settings` sets fields by name before that, as `--set` does.

        Raises ScenarioError with every problem found, each with its line and field.

        >>> Scenario.load("examples/dropping.yaml", {"seed": 7, "workload.publishers[0].rate": "5/s"}).seed
        7
        """
        from surecast.scenario.load import load_system

        return load_system(path, settings)[0]

    @property
    def system(self) -> System:
        """The system that the scenario means: names looked up, ranges drawn from its seed, all of it checked."""
        from surecast.scenario.build import build

        if self._system is None:
            self._system = build(self)
        return self._system

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """The values that are written with the 95 % interval in which the true one is.

        >>> scenario = Scenario.load("examples/dropping.yaml")
        >>> rate = "{estimate: 3/s, low: 2.5/s, high: 3.6/s}"
        >>> [estimate.field for estimate in scenario.change({"workload.publishers[0].rate": rate}).estimates]
        ['workload.publishers[0].rate']
        """
        return self._estimates

    def drawn(self, deviations: Sequence[float]) -> System:
        """Returns the system with each estimated value so many standard deviations from its estimate."""
        from surecast.scenario.build import build

        data: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True)
        drawn = type(self).model_validate(with_values({"surecast": self.surecast, **data}, self._estimates, deviations))
        drawn.attach(self._source or Source(self.name, Path(), None))
        return build(drawn)

    def change(self, settings: Mapping[str, object]) -> Scenario:
        """Returns a checked scenario in which some fields are set by name, as `--set` does.

        >>> Scenario.load("examples/dropping.yaml").change({"targets.response_time": "3s"}).targets.response_time
        3.0
        """
        from surecast.documents.reading import set_fields
        from surecast.scenario.load import parse_scenario

        origin = self._source or Source(self.name, Path(), None)
        # The fields, not the source, say what a scenario is: it may be a copy with other fields.
        source = Source(origin.file, origin.folder, self.to_data(), origin.lines, overridden=dict(origin.overridden))
        set_fields(source, settings)
        return parse_scenario(source)[0]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy with some fields replaced, which means a system of its own."""
        copied = super().model_copy(update=update, deep=deep)
        copied._system = None
        copied._estimates = tuple(each for each in self._estimates if each.path[0] not in (update or {}))
        return copied

    def __eq__(self, other: object) -> bool:
        """Two scenarios are equal if they say the same, wherever they were read."""
        if not isinstance(other, Scenario):
            return NotImplemented
        return self.__dict__ == other.__dict__ and self._estimates == other._estimates

    @property
    def source(self) -> Source | None:
        """The file it was read from, with the line of every field; None for a scenario made in Python."""
        return self._source

    def attach(self, source: Source, system: System | None = None, estimates: Sequence[Estimate] = ()) -> None:
        """Remembers where the scenario was read from, for error messages and relative paths, what it means, and which
        of its values are estimates."""
        self._source, self._system, self._estimates = source, system, tuple(estimates)

    def to_data(self) -> dict[str, Any]:
        """Returns plain data in the form of a file: only fields that differ from the defaults, quantities with their
        units."""
        data: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True)
        put_estimates(data, self._estimates)
        return {"surecast": self.surecast, **data}

    def to_yaml(self) -> str:
        """Returns the scenario as a file that loads to the same scenario."""
        return yaml_text(self.to_data(), allow_unicode=True, width=110)
