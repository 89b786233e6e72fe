"""Topics with schemes of their own: each flow of events under the scheme of its topic, over the same brokers and links.

All schemes share the queues, which their messages fill together. What piles up in outages is what is stored; the wait
behind it is that of the stored scheme with most events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.composed.composed_model import ComposedModel
from surecast.prediction.composed.ways import RouteTimes, Ways
from surecast.prediction.passages import Passage
from surecast.prediction.reliability.scheme_reliability import SchemeAnswer
from surecast.scenario.saturation import Traffic, traffic_of
from surecast.scenario.system import System
from surecast.scenario.topic_schemes import topic_schemes, without_topic_schemes

__all__ = ["composed_model"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def composed_model(
    system: System,
    scheme: str,
    policy: str,
    *,
    waits: bool = True,
    besides: Mapping[str, tuple[float, float]] | None = None,
) -> ComposedModel:
    """Returns the model of a system under one scheme, or under those of its topics where they have their own."""
    if not system.delivery.fault_tolerance.schemes:
        return ComposedModel(system, scheme, policy, waits=waits, besides=besides)
    return _TopicSchemes(system, scheme, policy, waits=waits, besides=besides)


class _TopicSchemes(ComposedModel):
    """A system whose topics have schemes of their own. `members` has a model of the whole system for each scheme; a
    flow has the figures of the one that its topic has."""

    def __init__(
        self,
        system: System,
        scheme: str,
        policy: str,
        *,
        waits: bool,
        besides: Mapping[str, tuple[float, float]] | None,
    ):
        plain = without_topic_schemes(system)
        super().__init__(plain, scheme, policy, waits=waits, besides=besides)
        by_topic = topic_schemes(system, scheme)
        flow_schemes = [by_topic[system.topics[topic].name] for topic in self.flows.topic.tolist()]
        self._counted = system
        self._names = tuple(dict.fromkeys(flow_schemes))
        self._of_flow: Index = np.array([self._names.index(name) for name in flow_schemes], dtype=np.intp)
        own = system.delivery.fault_tolerance.schemes
        self._label = f"{scheme} ({', '.join(f'{topic}: {name}' for topic, name in own.items())})"

    @property
    def label(self) -> str:
        return self._label

    @cached_property
    def traffic(self) -> Traffic:
        return traffic_of(self._counted, self.flows, self.scheme)

    @cached_property
    def members(self) -> tuple[ComposedModel, ...]:
        """A model for each scheme, all with the same traffic and the same times in queues."""
        members = []
        for name in self._names:
            member = ComposedModel(self.system, name, self.policy, waits=self.waits, besides=self.besides)
            member.delivery, member.traffic, member.stations = self.delivery, self.traffic, self.stations
            members.append(member)
        rates = np.bincount(self._of_flow, weights=self.flows.rate_per_s, minlength=len(members))
        storing = [i for i, member in enumerate(members) if member.stores]
        if storing:
            leading: list[Passage] = members[max(storing, key=lambda i: rates[i])].passages
            for member in members:
                member.passages = leading
        return tuple(members)

    @cached_property
    def passages(self) -> list[Passage]:
        return self.members[0].passages

    @property
    def stored_flows(self) -> NDArray[np.bool_]:
        return np.array([name.endswith("buffering") for name in self._names])[self._of_flow]

    @property
    def stored_share(self) -> float:
        rates = self.flows.rate_per_s
        return float(rates[self.stored_flows].sum() / rates.sum())

    @cached_property
    def answer(self) -> SchemeAnswer:
        found = [member.answer for member in self.members]
        reasons = dict.fromkeys(reason for answer in found for reason in answer.dropped)
        none = np.zeros(len(self._of_flow))
        return SchemeAnswer(
            self._label,
            self._chosen([answer.reliability for answer in found]),
            "approximation",
            {reason: self._chosen([answer.dropped.get(reason, none) for answer in found]) for reason in reasons},
            notes=tuple(dict.fromkeys(note for answer in found for note in answer.notes)),
        )

    def _chosen(self, by_member: list[Array]) -> Array:
        """Returns the value of each flow's own scheme."""
        return np.asarray(np.stack(by_member)[self._of_flow, np.arange(len(self._of_flow))], dtype=np.float64)

    @cached_property
    def ways(self) -> Ways:
        found = [member.ways for member in self.members]
        first = np.cumsum([0, *(len(ways.delivered) for ways in found)])
        of_flow = np.stack([ways.of_flow + start for ways, start in zip(found, first[:-1], strict=True)])
        columns = {
            name: np.concatenate([getattr(ways, name) for ways in found])
            for name in ("passes", "detours", "delivered", "in_time", "waited_s")
        }
        return replace(
            found[0],
            of_flow=of_flow[self._of_flow, np.arange(len(self._of_flow))],
            reach=self._chosen([ways.reach for ways in found]),
            direct=_joined([ways.direct for ways in found]),
            around=_joined([ways.around for ways in found]),
            waits=[wait for ways in found for wait in ways.waits],
            **columns,
        )


def _joined(times: list[RouteTimes]) -> RouteTimes:
    names = ("shift_s", "mean_s", "variance_s2", "behind_share", "behind_s", "stays_s")
    return RouteTimes(*(np.concatenate([getattr(each, name) for each in times]) for name in names))
