"""One run of the simulated world, from a system and a scheme to its accounts."""

from __future__ import annotations

from math import inf

import numpy as np

from surecast.errors import AssumptionError, ConfigurationError, refuse_unknown
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_plan import OverlayPlan, scheme_parts
from surecast.protocol.overlay.plan_of_system import plan_of_system
from surecast.scenario.spec.delivery import SCHEMES
from surecast.scenario.system import System
from surecast.simulation.reliability.protocol.accounts import REASONS, Target
from surecast.simulation.reliability.protocol.given_run import GivenRun
from surecast.simulation.reliability.protocol.network import KINDS
from surecast.simulation.reliability.protocol.options import Options
from surecast.simulation.reliability.protocol.result import WorldResult
from surecast.simulation.reliability.protocol.simulated_overlay import World

__all__ = ["simulate_world"]


def simulate_world(
    system: System,
    scheme: str,
    *,
    duration_s: float,
    seed: int,
    warm_up_s: float = 0.0,
    run: int = 0,
    options: Options | None = None,
    given: GivenRun | None = None,
) -> WorldResult:
    """Runs the protocol code under one scheme for some virtual time.

    Events published from `warm_up_s` to `duration_s` count; after that the world goes on until they have arrived or
    expired. The same arguments give the same run, bit for bit: `digest` says so. Subscriptions are in place at the
    start, and failures begin in their stationary state. With a `given` run, failures and publications are those of it.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: pair
    ... overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}
    ... workload:
    ...   topics: [t]
    ...   publishers: [{name: p, home: a, topics: [t], rate: 1/s}]
    ...   subscribers: [{name: s, home: b, topics: [t]}]
    ... '''))
    >>> result = simulate_world(system, "buffering", duration_s=100, seed=1)
    >>> int(result.published[0]), int(result.on_time[0]), result.messages["notification"], sum(result.messages.values())
    (100, 100, 100, 204)
    """
    chosen = options or Options()
    refuse_unknown("scheme", [scheme], SCHEMES)
    _check(system, duration_s, warm_up_s, chosen)
    if given is not None:
        given.check(system)
    tolerance = system.delivery.fault_tolerance
    refresh = tolerance.refresh if chosen.refresh_s is None else "end-to-end"
    plan = plan_of_system(system, scheme=scheme, refresh=refresh)
    interval_s = _given(chosen.refresh_s, tolerance.refresh_interval)
    settings = _settings(system, plan, chosen, interval_s)
    replay = f"simulate_world(system, {scheme!r}, duration_s={duration_s!r}, seed={seed!r}"
    replay += f", warm_up_s={warm_up_s!r}, run={run!r}, options={chosen!r})"
    targets, of_subscriber = _targets(system, merges=chosen.merges_subscribers)
    world = World(
        system,
        plan,
        settings,
        targets,
        chosen,
        client_refresh_s=interval_s if any(tree.refresh == "end-to-end" for tree in plan.trees) else inf,
        detection_s=_given(chosen.detection_s, tolerance.detection),
        seed=seed,
        run=run,
        warm_up_s=warm_up_s,
        replay=replay if given is None else f"{replay[:-1]}, given=...)",
        given=given,
    )
    world.run(duration_s, _drain_s(system, plan, chosen, world.rest_s), warm_up_s)
    return _result(world, scheme, of_subscriber)


def _check(system: System, duration_s: float, warm_up_s: float, options: Options) -> None:
    if not 0 <= warm_up_s < duration_s < inf:
        raise ConfigurationError(f"a run of {duration_s:g} s with a warm-up of {warm_up_s:g} s observes nothing")
    if not system.publishers or not system.subscribers:
        raise AssumptionError(
            f"{system.name} has no publishers and subscribers with topics; there is nothing to deliver"
        )
    if system.client_failures is not None:
        raise AssumptionError(
            "the protocol simulation has no links between clients and brokers that fail (availability.clients); "
            "use --method compiled"
        )
    disconnecting = [s.name for s in system.subscribers if s.connectivity is not None]
    if disconnecting:
        raise AssumptionError(f"subscriber {disconnecting[0]} disconnects at times, which is not simulated here")
    if (options.refresh_s is not None and options.refresh_s < 0) or (options.retransmission_s or 0) < 0:
        raise ConfigurationError("intervals must not be negative")


def _given(option: float | None, otherwise: float) -> float:
    return otherwise if option is None else option


def _settings(system: System, plan: OverlayPlan, options: Options, interval_s: float) -> NodeSettings:
    """The settings of the nodes. Clients refresh subscriptions themselves where they are refreshed from end to end, so
    that each does so at a time of its own."""
    tolerance = system.delivery.fault_tolerance
    timeout_s = tolerance.subscription_timeout
    if timeout_s is None or options.refresh_s is not None:
        timeout_s = 3 * interval_s if interval_s else inf
    by_link = any(tree.refresh == "link" for tree in plan.trees)
    return NodeSettings(
        resume_s=0.0,
        refresh_s=interval_s if by_link and interval_s else inf,
        timeout_s=timeout_s,
        retransmission_interval_s=_given(options.retransmission_s, tolerance.retransmission_interval),
        custody_events_max=1_000_000,
    )


def _targets(system: System, *, merges: bool) -> tuple[tuple[Target, ...], list[list[int]]]:
    """Returns the targets that are simulated, and for each subscriber the indices of its own."""
    names = [broker.name for broker in system.overlay.brokers]
    index: dict[Target, int] = {}
    of_subscriber: list[list[int]] = []
    for subscriber in system.subscribers:
        home = names[subscriber.home]
        wanted = [
            Target(f"{home}/{topic}" if merges else subscriber.name, topic, home)
            for topic in dict.fromkeys(subscriber.topics)
        ]
        of_subscriber.append([index.setdefault(target, len(index)) for target in wanted])
    return tuple(index), of_subscriber


def _drain_s(system: System, plan: OverlayPlan, options: Options, rest_s: float) -> float:
    """Returns the time that the last events may take."""
    if options.drain_s is not None:
        return options.drain_s
    has_custody = any(scheme_parts(tree.scheme).custody for tree in plan.trees)
    lifetimes = [p.deadline_s for p in system.publishers if p.deadline_s < inf] if has_custody else []
    return max(lifetimes, default=0.0) + 2 * rest_s


def _result(world: World, scheme: str, of_subscriber: list[list[int]]) -> WorldResult:
    by_target = world.accounts.by_target

    def column(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([sum(values[i] for i in own) for own in of_subscriber], dtype=np.int64)

    delays = [account.delay_s for account in by_target]
    return WorldResult(
        scheme=scheme,
        replay=world.replay,
        digest=world.journal.digest(),
        steps=world.clock.steps,
        published=column([account.published for account in by_target]),
        on_time=column([account.on_time for account in by_target]),
        late=column([account.late for account in by_target]),
        queued=column([account.queued for account in by_target]),
        lost={reason: column([(account.lost or {}).get(reason, 0) for account in by_target]) for reason in REASONS},
        delay_sum_s=np.array([sum(delays[i] for i in own) for own in of_subscriber]),
        events_published=world.accounts.events_published,
        messages=dict(zip(KINDS, world.sent, strict=True)),
        targets=tuple(world.accounts.targets),
        fates=tuple(world.accounts.fates),
        transitions=tuple(world.transitions),
    )
