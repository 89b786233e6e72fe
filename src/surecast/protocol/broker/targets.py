"""The sessions that have a response target: what is known of each, what was decided, and which decision is due.

A decision is computed elsewhere, since it takes longer than a turn of the loop may, and comes back as `Decision`. Until
then the last one holds. In a group it comes back as an entry of the log, so that all replicas apply the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from surecast.protocol.broker.limits import Limits
from surecast.protocol.broker.period_monitor import Estimates, PeriodMonitor, Prior
from surecast.protocol.broker.response_target import Decision, ResponseTarget
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.broker.target_results import TargetResults
from surecast.protocol.broker.target_state import TargetState

__all__ = ["Question", "Targets"]


class Question(NamedTuple):
    """A question for a decision: a session by its key, the revision, its target, and what is known."""

    key: str
    revision: int
    target: ResponseTarget
    estimates: Estimates


class Targets:
    """Watches sessions that outlive their connection, and keeps the targets of those that have one."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.undecided: dict[str, Session] = {}
        """The sessions for which a decision is due, in order."""

    def questions(self) -> list[Question]:
        """Returns what is to be decided."""
        return [
            Question(key, state.revision, state.target, state.basis)
            for key, session in self.undecided.items()
            if (state := session.target) is not None and state.basis is not None
        ]

    def connected(self, session: Session, now: float) -> None:
        """The client of a lasting session is there."""
        monitor, matched = session.monitor, session.accounts.matched
        if monitor is None:
            monitor = session.monitor = PeriodMonitor()
        monitor.connected(now, matched)
        wanted, state = session.limits.response_target, session.target
        if wanted is not None and (state is None or (not state.is_own and state.target != wanted)):
            self.set(session, wanted, now, is_own=False)
        elif wanted is None and state is not None and not state.is_own:
            self.forget(session)
        elif state is not None:
            state.results.end_cycle()
            if session.queued:
                monitor.busy(now)
            self.look(session, now)

    def disconnected(self, session: Session, now: float) -> None:
        """The client of a lasting session is gone."""
        if session.monitor is None:
            return
        session.monitor.disconnected(now, session.accounts.matched)
        state = session.target
        if state is not None:
            state.connection, state.packet = 0, b""
            self.look(session, now)

    def set(self, session: Session, target: ResponseTarget, now: float, is_own: bool = True) -> TargetState:
        """Gives a session a target, for which a decision is then due; the last decision holds until it comes."""
        state = session.target
        if state is None:
            state = session.target = TargetState(target, is_own)
            if session.monitor is not None:
                session.monitor.forget_rates(session.accounts.matched)
        elif state.target != target:
            state.results, state.importance = TargetResults(), None
        state.target, state.is_own = target, is_own
        self._ask(session, state, now)
        return state

    def forget(self, session: Session) -> None:
        """A session has no target any more."""
        session.target = None
        self.undecided.pop(session.key, None)

    def look(self, session: Session, now: float) -> None:
        """Asks for another decision if so much is known anew that it may be another one."""
        state, monitor = session.target, session.monitor
        if state is None or monitor is None or session.key in self.undecided:
            return
        estimates = monitor.estimates(now, prior_of(session.limits), session.accounts.matched)
        if state.basis is None or estimates.has_moved(state.basis):
            self._ask(session, state, now)

    def _ask(self, session: Session, state: TargetState, now: float) -> None:
        monitor = session.monitor
        assert monitor is not None, "a session without a monitor has no target"
        state.revision += 1
        state.basis = monitor.estimates(now, prior_of(session.limits), session.accounts.matched)
        self.undecided[session.key] = session

    def decide(self, session: Session, revision: int, decision: Decision) -> TargetState | None:
        """Takes a decision; None if it is out of date."""
        state = session.target
        if state is None or state.revision != revision or state.decided == revision:
            return None
        state.decided, state.decision = revision, decision
        self.undecided.pop(session.key, None)
        self._journal.session(session)
        return state

    @staticmethod
    def limits_of(session: Session, limits: Limits) -> Limits:
        """Returns limits with what was decided for the target of a session."""
        state = session.target
        if state is None or state.decision.policy == "none":
            return limits
        decision = state.decision
        most = decision.queue_messages_max or limits.queue_messages_max
        return replace(
            limits,
            join_probability=min(limits.join_probability, decision.join_probability),
            join_threshold=min(limits.join_threshold, decision.join_threshold),
            queue_lifetime_s=min(limits.queue_lifetime_s, decision.queue_lifetime_s),
            queue_messages_max=min(limits.queue_messages_max, most),
        )


def prior_of(limits: Limits) -> Prior:
    """Returns what is assumed of a client of which nothing is known yet."""
    return Prior(limits.connected_prior_s, limits.disconnected_prior_s)
