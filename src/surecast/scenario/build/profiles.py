"""Services of brokers that have a profile: what each costs for the load that it gets in this system."""

from __future__ import annotations

from dataclasses import replace

from surecast.scenario.build.collect import Collector
from surecast.scenario.distributions import Deterministic
from surecast.scenario.group import is_replicated
from surecast.scenario.profile_load import profile_loads
from surecast.scenario.system import Broker, System

__all__ = ["with_profile_services"]


def with_profile_services(system: System, collect: Collector) -> System:
    """Returns the system in which each broker with a profile takes as long for an event as the profile says.

    A broker of several cores counts as one that is so much faster. The notes say how busy each is, how far its load
    may grow, and where it is beyond what the profile was measured with.
    """
    brokers = system.overlay.brokers
    if all(broker.profile is None for broker in brokers):
        return system
    for unfit, what in (
        (system.class_workload is not None, "filter classes"),
        (is_replicated(system), "replicated brokers"),
        (system.delivery.coding is not None, "coded delivery"),
    ):
        if unfit:
            collect.add(
                ("overlay", "brokers"), f"a profile has no costs of {what}", "give these brokers a capacity instead"
            )
            return system
    loads = profile_loads(system)
    priced: list[Broker] = []
    for broker, load in zip(brokers, loads, strict=True):
        profile = broker.profile
        if profile is None or not load.messages_per_s:
            priced.append(broker)
            continue
        use = profile.use_of(load)
        service = Deterministic().with_mean(use.utilisation / load.messages_per_s)
        answer_s = profile.costs.acknowledged_delivery.estimate / profile.cores
        control = Deterministic().with_mean(answer_s) if answer_s > 0.0 else None
        priced.append(replace(broker, notification_service=service, control_service=control))
        collect.notes.append(
            f"broker {broker.name} by profile {profile.name}: {load.messages_per_s:,.0f} messages/s come and "
            f"{load.deliveries_per_s:,.0f}/s go; {use.per_message_s * 1e6:.3g} µs each, "
            f"{use.cores:.3g} of {profile.cores:g} cores; it carries {profile.saturation(load):.3g} times this"
        )
        beyond = profile.beyond(load, load.received_bytes_per_s / load.messages_per_s)
        if beyond:
            collect.notes.append(
                f"broker {broker.name} is beyond what profile {profile.name} was measured with, and what it says is an "
                f"extrapolation: {'; '.join(beyond)}"
            )
    return replace(system, overlay=replace(system.overlay, brokers=tuple(priced)), notes=tuple(collect.notes))
