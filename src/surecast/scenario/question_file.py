"""A scenario from a question: so many devices, subscribers and sites, as people ask it."""

from __future__ import annotations

from dataclasses import dataclass

from surecast.documents.reading import yaml_text
from surecast.documents.units import format_duration, format_rate, format_size
from surecast.errors import ConfigurationError

__all__ = ["SizingQuestion", "question_text"]


@dataclass(frozen=True)
class SizingQuestion:
    """Devices that publish at a rate each, subscribers that want everything, and sites with links between them."""

    devices: int
    rate_per_s: float
    payload_bytes: float = 200.0
    qos: int = 1
    subscribers: int = 1
    sites: int = 1
    latency_s: float = 0.02
    link_availability: float = 1.0
    outages_every_s: float = 3600.0
    deadline_s: float = 60.0
    reliability: float | None = None
    profile: str | None = None
    capacity_per_s: float | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("devices", self.devices, 1),
            ("subscribers", self.subscribers, 1),
            ("sites", self.sites, 1),
        ):
            if value < least:
                raise ConfigurationError(f"`{name}`: write at least {least}, not {value}")
        if self.sites > self.devices:
            raise ConfigurationError(f"`sites`: {self.sites} sites for {self.devices} devices; write at most one each")
        if self.sites > 100:
            raise ConfigurationError(f"`sites`: {self.sites} sites that are all joined; write 100 at most")
        if not 0.0 < self.rate_per_s < float("inf"):
            raise ConfigurationError("`rate`: write how often a device publishes, such as 1/10s")
        if not 0.0 < self.link_availability <= 1.0:
            raise ConfigurationError("`links_up`: write the share of time that a link is up, such as 99%")
        if (self.profile is None) == (self.capacity_per_s is None):
            raise ConfigurationError(
                "calibrate or state a capacity: name a --profile (surecast calibrate HOST:PORT --out FILE makes one), "
                "or write --capacity, in messages per second of a broker"
            )


def question_text(question: SizingQuestion, name: str = "question") -> str:
    """Returns the scenario file of a question: devices and subscribers are spread evenly over the sites, all joined.

    >>> text = question_text(SizingQuestion(50_000, 0.1, subscribers=40, sites=3, profile="mosquitto.yaml"))
    >>> [line for line in text.splitlines() if "count" in line]
    ['  - count: 16667', '  - count: 16667', '  - count: 16666', '  - count: 14', '  - count: 13', '  - count: 13']
    """
    sites = [f"site-{i + 1}" for i in range(question.sites)]
    cost = {"profile": question.profile}
    if question.capacity_per_s is not None:
        cost = {"capacity": format_rate(question.capacity_per_s)}
    data: dict[str, object] = {
        "surecast": 1,
        "name": name,
        "description": _description(question),
        "overlay": {"brokers": [{"name": site, **cost} for site in sites]},
        "workload": {
            "topics": ["readings"],
            "payload": format_size(question.payload_bytes),
            "qos": question.qos,
            "deadline": format_duration(question.deadline_s),
            "publishers": [
                {
                    "count": count,
                    "name": f"device-{site}",
                    "home": site,
                    "topics": ["readings"],
                    "rate": format_rate(question.rate_per_s),
                }
                for site, count in zip(sites, _shares(question.devices, question.sites), strict=True)
            ],
            "subscribers": [
                {"count": count, "name": f"dashboard-{site}", "home": site, "topics": "all"}
                for site, count in zip(sites, _shares(question.subscribers, question.sites), strict=True)
                if count
            ],
        },
        "delivery": {"fault_tolerance": {"scheme": "buffering"}},
    }
    if question.sites > 1:
        data["overlay"] = {
            "brokers": [{"name": site, **cost} for site in sites],
            "links": {"build": "complete", "latency": format_duration(question.latency_s)},
        }
    if question.sites > 1 and question.link_availability < 1.0:
        data["availability"] = {
            "links": {
                "availability": question.link_availability,
                "period": format_duration(question.outages_every_s),
            }
        }
    if question.reliability is not None:
        data["targets"] = {"reliability": question.reliability}
    return yaml_text(data, allow_unicode=True, width=110)


def _shares(count: int, sites: int) -> list[int]:
    return [len(range(site, count, sites)) for site in range(sites)]


def _description(question: SizingQuestion) -> str:
    where = "one site" if question.sites == 1 else f"{question.sites} sites"
    every = format_duration(1.0 / question.rate_per_s)
    return (
        f"{question.devices:,} devices publish {format_size(question.payload_bytes)} every {every} at QoS "
        f"{question.qos}; {question.subscribers:,} subscribers want all of it; {where}."
    )
