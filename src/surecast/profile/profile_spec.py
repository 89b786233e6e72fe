"""The fields of a profile: what a broker costs on one machine, how that was measured, and how far it may be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator
from pydantic_core import PydanticCustomError

from surecast.documents.units import DURATION_HINT, SIZE_HINT, Duration, Rate, Size, parse_duration, parse_size
from surecast.documents.validation import Int, Name, Spec
from surecast.profile.broker_load import BrokerLoad, BrokerUse, quantities, solve_use

__all__ = ["COSTS", "BrokerProfile", "Costs", "Interval", "MachineSpec", "MemoryCosts"]

Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ProfilePart(Spec):
    """A part of a profile."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Interval(ProfilePart):
    """An estimate with the ends of its 95 % interval."""

    estimate: Number
    """The estimate, in seconds or bytes."""
    low: Number
    """The lower end."""
    high: Number
    """The upper end."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.estimate <= self.high:
            raise PydanticCustomError("interval", "the estimate is outside its interval; write low <= estimate <= high")
        return self

    @classmethod
    def exactly(cls, value: float) -> Interval:
        """Returns a value without an interval around it."""
        return cls(estimate=value, low=value, high=value)


def _written(text: Any, is_size: bool) -> Any:
    """Returns the number of a quantity with its unit."""
    if isinstance(text, (int, float)) and not isinstance(text, bool) and text == 0:
        return 0.0
    hint = SIZE_HINT if is_size else DURATION_HINT
    if not isinstance(text, str):
        raise PydanticCustomError("quantity", "{value} has no unit; {hint}", {"value": repr(text), "hint": hint})
    try:
        return parse_size(text) if is_size else parse_duration(text)
    except ValueError as error:
        raise PydanticCustomError("quantity", "{reason}", {"reason": str(error)}) from None


def _reader(is_size: bool) -> Any:
    def read(value: Any) -> Any:
        if isinstance(value, Interval):
            return value
        if isinstance(value, dict):
            return {name: _written(text, is_size) for name, text in value.items()}
        number = _written(value, is_size)
        return {"estimate": number, "low": number, "high": number}

    return read


def _short(value: float, is_size: bool) -> str:
    """Returns a quantity in four digits with its unit."""
    if is_size:
        return f"{value:.4g}B" if value < 1e4 else f"{value / 1e3:.6g}kB"
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms"), (1.0, "s")):
        if value * factor < 1000.0:
            return f"{value * factor:.4g}{unit}"
    return f"{value:.6g}s"


def _writer(is_size: bool) -> Any:
    def write(interval: Interval) -> dict[str, str]:
        return {name: _short(getattr(interval, name), is_size) for name in ("estimate", "low", "high")}

    return write


Time = Annotated[Interval, BeforeValidator(_reader(False)), PlainSerializer(_writer(False))]
Bytes = Annotated[Interval, BeforeValidator(_reader(True)), PlainSerializer(_writer(True))]
_NOTHING: Final = Interval.exactly(0.0)


class Costs(ProfilePart):
    """Processor time of one of each."""

    message: Time = _NOTHING
    """A message that comes."""
    delivery: Time = _NOTHING
    """A message that goes to one subscriber."""
    received_byte: Time = _NOTHING
    """A byte of payload that comes."""
    sent_byte: Time = _NOTHING
    """A byte of payload that goes to one subscriber."""
    acknowledged_message: Time = _NOTHING
    """QoS 1 of a message that comes: its acknowledgement."""
    acknowledged_delivery: Time = _NOTHING
    """QoS 1 of a delivery: what is kept for it, and the acknowledgement that comes."""
    ping: Time = _NOTHING
    """A keep-alive request and its answer."""
    lookup: Time = _NOTHING
    """One more subscription at the broker, for each message."""
    turn: Time = _NOTHING
    """A turn of the broker, in which it takes all that has come."""
    wake_up: Time = _NOTHING
    """Going to sleep and waking again."""
    flush: Time = _NOTHING
    """Writing to one connection, whatever the number of messages in the write."""

    def seconds(self) -> dict[str, float]:
        """Returns the estimates by name."""
        return {name: getattr(self, name).estimate for name in COSTS}


COSTS: Final = tuple(Costs.model_fields)
"""The costs of a profile, by name."""


class MemoryCosts(ProfilePart):
    """Memory of one of each."""

    base: Bytes = _NOTHING
    """The broker with nothing in it."""
    connection: Bytes = _NOTHING
    """A connection with its session."""
    session: Bytes = _NOTHING
    """A session that outlives its connection."""
    queued: Bytes = _NOTHING
    """A message of 200 bytes that waits for a client."""
    retained: Bytes = _NOTHING
    """A retained message of 200 bytes."""


class MachineSpec(ProfilePart):
    """The machine of a measurement."""

    processor: str = ""
    """The processor, as the system names it."""
    cores: Int = Field(default=1, ge=1)
    """Its cores."""
    memory: Size = 1e9
    """Its memory."""
    system: str = ""
    """The operating system and its version."""


class SendingPattern(ProfilePart):
    """The way in which clients sent while it was measured; a broker carries more where they send several messages at
    once."""

    messages_per_write: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Messages in one write of a client."""
    arrivals: Literal["poisson", "paced"] = "poisson"
    """Messages at random times, or at equal distances."""
    protocol: Literal["MQTT 3.1.1", "MQTT 5"] = "MQTT 5"
    """The version of MQTT."""
    tls: bool = False
    """Encrypted connections."""


class ValidRange(ProfilePart):
    """Loads that the profile was measured and checked with; nothing is known beyond."""

    payload_max: Size = 1e9
    """The largest payload."""
    deliveries_per_message_max: Number = 1e9
    """The most deliveries of a message."""
    utilisation_max: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The highest utilisation."""
    qos: tuple[Literal[0, 1], ...] = (0, 1)
    """The levels of quality of service."""
    connections_max: Int = Field(default=1_000_000_000, ge=1)
    """The most connections."""
    subscriptions_max: Int = Field(default=1_000_000_000, ge=1)
    """The most subscriptions."""


class Errors(ProfilePart):
    """The errors of the profile for loads that it was not made from."""

    points: Int = Field(default=0, ge=0)
    """Such loads."""
    processor_time_median: Number = 0.0
    """The median of the relative errors of processor time for a message."""
    processor_time_worst: Number = 0.0
    """The largest of these."""
    saturation: Number | None = None
    """The relative error of the largest rate that the broker took, sent as the pattern says."""
    repeatability: Number = 0.0
    """The median relative difference of processor time for a message between two runs of the same load."""


class BrokerProfile(ProfilePart):
    """The costs of a broker on one machine."""

    surecast_profile: Annotated[Literal[1], Field(alias="surecast-profile")] = 1
    """Version of this format: 1."""
    name: Name
    """Name of the profile, used in reports."""
    description: str = ""
    """The broker and its settings, for readers."""
    machine: MachineSpec = MachineSpec()
    """The machine it ran on."""
    pattern: SendingPattern = SendingPattern()
    """How clients sent."""
    idle: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Cores that it uses when nothing comes."""
    cores: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Cores that it can use: 1 for a broker with one thread for all messages."""
    costs: Costs
    """Processor time of one of each."""
    memory: MemoryCosts = MemoryCosts()
    """Memory of one of each."""
    valid: ValidRange = ValidRange()
    """Loads that it was measured and checked with."""
    errors: Errors = Errors()
    """What it says against what was measured."""
    overload: Rate | None = None
    """Messages per second that the broker took at most in the check of saturation."""
    measured: Duration = 0.0
    """How long the measurements took."""

    model_config = ConfigDict(populate_by_name=True)

    @classmethod
    def of(cls, name: str, seconds: Mapping[str, float], **fields: Any) -> BrokerProfile:
        """Returns a profile of exact costs in seconds."""
        return cls(name=name, costs=Costs(**{k: Interval.exactly(v) for k, v in seconds.items()}), **fields)

    def use_of(self, load: BrokerLoad) -> BrokerUse:
        """Returns what the broker uses for a load; a utilisation above 1 says that it cannot carry it."""
        return solve_use(self.costs.seconds(), self.idle, load, self.cores)

    def saturation(self, load: BrokerLoad) -> float:
        """Returns by which factor the rates of a load may grow until the broker is busy all the time.

        Turns and wakings are for nothing then: there is always something to do.

        >>> profile = BrokerProfile.of("p", {"message": 10e-6, "wake_up": 5e-6})
        >>> round(profile.saturation(BrokerLoad(messages_per_s=1000.0)))
        100
        """
        seconds = self.costs.seconds()
        work = math.fsum(seconds[name] * count for name, count in quantities(load).items())
        return math.inf if work <= 0.0 else (self.cores - self.idle) / work

    def memory_bytes(
        self, connections: float, sessions: float = 0.0, queued: float = 0.0, retained: float = 0.0
    ) -> float:
        """Returns the memory that the broker needs."""
        each = self.memory
        return (
            each.base.estimate
            + connections * each.connection.estimate
            + sessions * each.session.estimate
            + queued * each.queued.estimate
            + retained * each.retained.estimate
        )

    def beyond(self, load: BrokerLoad, payload_bytes: float) -> list[str]:
        """Returns in words where a load is outside of what the profile was measured with."""
        valid, found = self.valid, []
        per_message = load.deliveries_per_s / load.messages_per_s if load.messages_per_s else 0.0
        checks = [
            (payload_bytes, valid.payload_max, "payloads of {:,.0f} bytes, measured up to {:,.0f}"),
            (per_message, valid.deliveries_per_message_max, "{:,.1f} deliveries of a message, measured up to {:,.0f}"),
            (load.connections, valid.connections_max, "{:,.0f} connections, measured up to {:,.0f}"),
            (load.subscriptions, valid.subscriptions_max, "{:,.0f} subscriptions, measured up to {:,.0f}"),
        ]
        found = [words.format(value, most) for value, most, words in checks if value > most * (1.0 + 1e-9)]
        used = self.use_of(load).utilisation
        if valid.utilisation_max < used < 1.0:
            found.append(f"a utilisation of {used:.0%}, measured up to {valid.utilisation_max:.0%}")
        return found
