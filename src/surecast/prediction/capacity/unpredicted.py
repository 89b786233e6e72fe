"""The fields of routing that have no formulas yet."""

from __future__ import annotations

from surecast.errors import AssumptionError
from surecast.scenario.system import System

__all__ = ["refuse_unpredicted", "unpredicted_fields"]


def refuse_unpredicted(system: System) -> None:
    """Raises AssumptionError, by field, for routing that is simulated and not predicted."""
    for field in unpredicted_fields(system):
        raise AssumptionError(
            f"{system.name}: {field} is simulated and not predicted yet; leave it out, or ask `surecast simulate`"
        )


def unpredicted_fields(system: System) -> list[str]:
    """Returns the fields that a system has of them."""
    routing = system.delivery.routing
    if routing is None:
        return []
    used = {"links": bool(routing.links), "advertisements": routing.advertisements}
    return [f"delivery.routing.{field}" for field, is_given in used.items() if is_given]
