"""One run of the simulated world, from a system and a scheme to its accounts."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from surecast.errors import AssumptionError, ConfigurationError
from surecast.protocol.overlay import Settings, settings_for
from surecast.scenario.system import System
from surecast.simulation.reliability.protocol.accounts import REASONS, Target
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
) -> WorldResult:
    """Runs the protocol code under one scheme for some virtual time.

    Events published from `warm_up_s` to `duration_s` count; after that the world goes on until they have arrived or
    expired. The same arguments give the same run, bit for bit: `digest` says so. Subscriptions are in place at the
    start, and failures begin in their stationary state.

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
    (100, 100, 100, 202)
    """
    chosen = options or Options()
    _check(system, duration_s, warm_up_s, chosen)
    settings = _with_options(settings_for(scheme, system.delivery.fault_tolerance), chosen)
    replay = f"simulate_world(system, {scheme!r}, duration_s={duration_s!r}, seed={seed!r}"
    replay += f", warm_up_s={warm_up_s!r}, run={run!r}, options={chosen!r})"
    targets, of_subscriber = _targets(system, merges=chosen.merges_subscribers)
    world = World(system, settings, targets, chosen, seed=seed, run=run, warm_up_s=warm_up_s, replay=replay)
    world.run(duration_s, _drain_s(system, settings, chosen, world.rest_s), warm_up_s)
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
    losing = [link.name for link in system.overlay.links if link.loss]
    if losing and options.retransmission_s == 0:
        message = f"link {losing[0]} loses messages at random, which retransmission on detection alone does not notice"
        raise AssumptionError(f"{message}; give retransmission_s above 0")


def _with_options(settings: Settings, options: Options) -> Settings:
    """The settings of a scheme with the intervals of the options."""
    if options.retransmission_s is not None:
        settings = replace(settings, retransmission_interval_s=options.retransmission_s)
    if options.refresh_s == 0:
        settings = replace(settings, subscription_timeout_s=inf)
    elif options.refresh_s is not None and settings.subscription_timeout_s < inf:
        settings = replace(settings, subscription_timeout_s=3 * options.refresh_s)
    return settings


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


def _drain_s(system: System, settings: Settings, options: Options, rest_s: float) -> float:
    """Returns the time that the last events may take."""
    if options.drain_s is not None:
        return options.drain_s
    lifetimes = [p.deadline_s for p in system.publishers if p.deadline_s < inf] if settings.buffers else []
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
