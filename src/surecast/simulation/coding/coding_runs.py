"""Runs of coded delivery: many events of one audience under one scheme, compiled or with the protocol's objects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from surecast.errors import ConfigurationError, refuse_unknown
from surecast.protocol.coding import CodingSettings
from surecast.protocol.dissemination import SCHEMES, DisseminationSettings, scheme_settings, timed
from surecast.protocol.gossip import GossipSettings
from surecast.scenario.paths import PATH_KINDS, PathKind
from surecast.scenario.spec.delivery import Coding
from surecast.scenario.system import Overlay
from surecast.simulation.coding.compiled_run import run_events
from surecast.simulation.coding.compiled_state import COUNTS, State, new_state
from surecast.simulation.coding.outcomes import Outcomes
from surecast.simulation.coding.packet_network import LossyChannel, network_of
from surecast.simulation.coding.protocol_run import ObjectWorld
from surecast.simulation.coding.scheme import Casting, compiled_scheme

__all__ = ["Caster", "SimulatedAlternative", "alternatives", "needs_compiling", "settings_for"]

How = Literal["compiled", "objects"]


@dataclass(frozen=True, slots=True)
class SimulatedAlternative:
    """A scheme, and the paths of coded packets where these are not the scenario's.

    >>> SimulatedAlternative("coding", "single-path").name
    'coding single-path'
    """

    scheme: str
    paths: PathKind | None = None

    @property
    def name(self) -> str:
        return self.scheme if self.paths is None else f"{self.scheme} {self.paths}"


def alternatives(spec: Coding, names: list[str] | None = None) -> list[SimulatedAlternative]:
    """The alternatives to compare: those named, or all, the coded ones over other paths too.

    >>> [a.name for a in alternatives(Coding(paths="tree"), ["tree", "coding"])]
    ['tree', 'coding', 'coding single-path', 'coding maximum-flow']
    """
    refuse_unknown("scheme of packets", names or (), SCHEMES)
    simulated: list[SimulatedAlternative] = []
    for scheme in SCHEMES:
        if (names and scheme not in names) or (spec.gossip is None and "gossip" in scheme):
            continue
        simulated.append(SimulatedAlternative(scheme))
        if scheme in ("coding", "coding-gossip"):
            simulated += [SimulatedAlternative(scheme, kind) for kind in PATH_KINDS if kind != spec.paths]
    if not simulated:
        raise ConfigurationError("the scheme gossips, and delivery.coding.gossip is null; give it a mode")
    return simulated


def settings_for(spec: Coding, alternative: SimulatedAlternative) -> DisseminationSettings:
    """The settings of an alternative under a scenario; packets carry one byte, and count as long as they are."""
    coding = CodingSettings(spec.packets, spec.redundancy, spec.field_bits, packet_bytes=1)
    gossip = None if spec.gossip is None else GossipSettings.of_scenario(spec.gossip)
    if gossip is None and "gossip" in alternative.scheme:
        raise ConfigurationError(f"{alternative.scheme}: delivery.coding.gossip is null; give it a mode")
    settings = scheme_settings(alternative.scheme, coding, gossip, alternative.paths or spec.paths)
    return timed(settings, spec)


def needs_compiling() -> bool:
    """Returns whether the compiled path has yet to be compiled on this machine, which takes most of a minute."""
    folder = run_events.stats.cache_path
    index = [] if folder is None else list(Path(folder).glob("compiled_run.run_events-*.nbi"))
    newest_s = max(path.stat().st_mtime for path in Path(__file__).parent.glob("compiled_*.py"))
    return not any(path.stat().st_mtime >= newest_s for path in index)


class Caster:
    """Events from one home broker to subscribers with these home brokers, under one scheme.

    The same seed gives the same.

    `compiled` runs events one at a time, in compiled code that does exactly what the protocol's objects do;
    `objects` runs those themselves, about sixty times slower.

    >>> from surecast.scenario import build, parse_text
    >>> overlay = build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}],
    ...  links: [{between: [a, b], loss: 0.1, capacity: 500/s}]}}
    ... ''')).overlay
    >>> settings = scheme_settings("coding", CodingSettings(packets=8, redundancy=1.0, packet_bytes=1))
    >>> caster = Caster(overlay, 0, [1, 1, 0], settings, deadline_s=2.0, seed=1)
    >>> outcomes = caster.run(100)
    >>> outcomes.on_time.mean(axis=0).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        overlay: Overlay,
        source: int,
        homes: list[int],
        settings: DisseminationSettings,
        *,
        deadline_s: float,
        seed: int,
        channel: LossyChannel | None = None,
        how: How = "compiled",
    ):
        if not 0.0 < deadline_s <= settings.lifetime_max_s:
            raise ConfigurationError(
                f"deadline: {deadline_s} s; packets need one above 0 and at most {settings.lifetime_max_s:g} s"
            )
        self.deadline_s = deadline_s
        self.net = network_of(overlay, homes, channel or LossyChannel(), seed)
        self.casting = Casting.of(overlay, source, homes, settings, seed)
        self._seed = seed
        self._next = 0
        self._world: ObjectWorld | None = None
        if how == "objects":
            links = {}
            for i, link in enumerate(overlay.links):
                links[link.a, link.b], links[link.b, link.a] = 2 * i, 2 * i + 1
            for node, home in enumerate(homes, len(overlay.brokers)):
                links[home, node], links[node, home] = int(self.net.down[node]), int(self.net.up[node])
            self._world = ObjectWorld(self.casting, self.net, links, deadline_s)
            return
        self.rules, self.scheme = compiled_scheme(self.casting, overlay, self.net, deadline_s)
        busy = self.rules.sent * max(1, len(self.scheme.neighbour)) + 8 * len(homes)
        self._state = self._fresh_state(4 * busy + 1024)

    def run(self, events: int, gap_s: float | None = None) -> Outcomes:
        """The next events. `gap_s` is the time between two for `objects`; left out, none overlap."""
        if events < 1:
            raise ConfigurationError(f"events: {events} must be 1 or more")
        first, self._next = self._next, self._next + events
        if self._world is not None:
            gap_s = float(int(self.deadline_s) + 1) if gap_s is None else gap_s
            return self._world.run([gap_s * (first + i + 1) for i in range(events)], first)
        subscribers = self.rules.subscribers
        done_s = np.empty((events, subscribers))
        recovered = np.empty((events, subscribers), dtype=np.bool_)
        counts = np.empty((events, COUNTS), dtype=np.int64)
        done = 0
        while done < events:
            done += run_events(
                self.net,
                self.rules,
                self.scheme,
                self._state,
                first + done,
                events - done,
                done_s[done:],
                recovered[done:],
                counts[done:],
            )
            if done < events:
                self._grow()
        return Outcomes(done_s, recovered, counts)

    def _fresh_state(self, capacity: int) -> State:
        nodes = len(self.casting.nodes)
        return new_state(self.net, self.rules, self.scheme, self._seed, capacity, nodes)

    def _grow(self) -> None:
        """A state of twice the size, that goes on where the other one is."""
        old = self._state
        self._state = self._fresh_state(2 * len(old.heap_time))
        self._state.relay_draws[:] = old.relay_draws
        self._state.gossip_draws[:] = old.gossip_draws
        self._state.trips[:] = old.trips
