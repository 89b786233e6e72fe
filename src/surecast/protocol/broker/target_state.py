"""The response target of one session, with what was decided for it and how well it is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from surecast.protocol.broker.importance import Importance
from surecast.protocol.broker.period_monitor import Estimates
from surecast.protocol.broker.response_target import Decision, ResponseTarget
from surecast.protocol.broker.target_results import TargetResults

__all__ = ["TargetState"]

_NO_DECISION: Final = Decision()


@dataclass(slots=True)
class TargetState:
    """The target of one session. `revision` counts what was asked, `decided` is the last revision with an answer.

    `basis` is what was known when it was last asked. A SUBSCRIBE that waits for the decision is kept as `packet`, with
    the number of its connection. `is_own` says that the client asked itself, not a rule for clients. `importance` is
    made when something must go.
    """

    target: ResponseTarget
    is_own: bool = True
    revision: int = 0
    decided: int = 0
    decision: Decision = _NO_DECISION
    basis: Estimates | None = None
    connection: int = 0
    packet: bytes = b""
    results: TargetResults = field(default_factory=TargetResults)
    importance: Importance | None = None
