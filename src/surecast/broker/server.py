"""The broker on real sockets: one event loop, one core, one commit and one write per connection and turn.

A turn of the loop: whatever has arrived goes into the core, which collects what is to be sent. At the end of the turn
the journal is committed, and only then is everything sent. So no acknowledgement leaves before what it promises is
durable, and a thousand messages that arrive together cost one commit.
"""

from __future__ import annotations

import asyncio
import secrets
import time

from surecast.broker.authenticator import Verdict
from surecast.broker.shell import Authenticate, Channel, Hooks, Shell
from surecast.broker.store import MemoryStore, Store
from surecast.broker.target_adviser import TargetAdviser
from surecast.errors import SurecastError
from surecast.protocol.broker import (
    Authorise,
    BrokerCore,
    BrokerSettings,
    Connection,
    LimitTable,
    Observer,
    Origin,
    everyone,
    publish_system_topics,
)
from surecast.protocol.broker.local_traffic import LocalTraffic
from surecast.protocol.broker.response_target import Decision
from surecast.protocol.mqtt import ReasonCode

__all__ = ["Server"]

_SWEEP_S = 5.0


class Server(Shell):
    """Runs a core: gives it bytes and time, commits its journal and sends its answers."""

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        store: Store | None = None,
        *,
        authorise: Authorise = everyone,
        authenticate: Authenticate | None = None,
        observer: Observer | None = None,
        hooks: Hooks | None = None,
        limits: LimitTable | None = None,
        traffic: LocalTraffic | None = None,
    ):
        super().__init__(authenticate, hooks)
        self.store = store or MemoryStore()
        self.broker = BrokerCore(
            settings,
            authorise=authorise,
            authenticates=authenticate is not None,
            observer=observer,
            hooks=self._hooks.connections,
            new_identifier=lambda: f"auto-{secrets.token_hex(10)}",
            limits=limits,
            traffic=traffic,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._timers_seen = 0
        self._next_sweep = 0.0
        self._adviser = TargetAdviser(self)

    def start(self) -> None:
        """Takes the durable state back; call it on the running loop, before any listener."""
        self._loop = asyncio.get_running_loop()
        now = time.time()
        self.broker.started_at = now
        self._restore(now)
        self.turn()

    def _restore(self, now: float) -> None:
        """Takes back what is on disk."""
        self.broker.restore(self.store.items(), now)

    def stop(self) -> None:
        """Says goodbye to all clients and commits what is left; their transports close when all is sent."""
        self._stopped = True
        now = time.time()
        for connection, channel in list(self._channels.items()):
            if connection.is_closed():
                channel.close()  # one that waited for its client to close
            self.broker.disconnect(connection, ReasonCode.SERVER_SHUTTING_DOWN, now)
        self.end_turn()
        self._adviser.stop()
        if self._timer is not None:
            self._timer.cancel()

    def revoke(self, authorise: Authorise, checks_deliveries: bool = False) -> int:
        """Forgets what clients were allowed, and ends subscriptions that they may not have any more."""
        now = time.time()
        ended = 0
        self.broker.permissions_changed(checks_deliveries)
        for session in self.broker.sessions.by_key.values():
            for key, subscription in list(session.subscriptions.items()):
                if not authorise(session.user, session.client, "subscribe", subscription.filter):
                    ended += self.broker.remove_subscription(session, key, now)
        self.turn()
        return ended

    # What channels call.

    def connected(self, channel: Channel, origin: Origin) -> None:
        """A transport is up."""
        channel.connection = self.broker.open(origin, time.time())
        channel.connection.decoder.count_in(self.unfinished)
        self._channels[channel.connection] = channel
        self.turn()

    def _receive(self, connection: Connection, data: bytes) -> None:
        """Handles bytes in this turn."""
        self.received(connection, data, is_piece=True)

    def received(self, connection: Connection, data: bytes, is_piece: bool = False) -> None:
        """As for all brokers; a read, which is small most of the time, costs one call."""
        if not is_piece and (len(data) > self._small_bytes or self._rest):
            self._spread(connection, data)
            return
        now, broker = time.time(), self.broker
        broker.receive(connection, data, now)
        if connection.pace is not None and connection.pace.hold_until > now:
            self._hold(connection, connection.pace.hold_until - now)
        if not self._turn_planned and (
            broker.dirty
            or broker.journal.records
            or broker.checking
            or broker.counters.notices
            or broker.observer is not None
            or broker.traffic is not None
            or broker.timers.count != self._timers_seen
        ):
            self.turn()  # an acknowledgement often leads to nothing at all

    def lost(self, connection: Connection, reason: str = "connection lost") -> None:
        """A transport is gone."""
        if self._is_leaving(connection, reason):
            return
        if self._stalled and connection in self._channels:
            self._stalled.discard(self._channels[connection])
        connection.decoder.release()
        held = self._held.pop(connection, None)
        if held is not None:
            held.cancel()
        if self._channels.pop(connection, None) is not None:
            self.broker.lost(connection, time.time(), reason)
            self.turn()

    def set_congested(self, connection: Connection, congested: bool) -> None:
        """A transport has too much unsent, or no longer."""
        self.broker.set_congested(connection, congested)

    def _published(self) -> int:
        return self.broker.counters.published

    def _forget_unread(self, connection: Connection) -> None:
        """Nothing is held twice."""

    def _excuse(self, connection: Connection) -> None:
        connection.heard_at = time.time()

    # What the service calls.

    def kick(self, key: str, end_session: bool) -> None:
        """Ends the connection of a session, which is named by its key, or the session too."""
        now = time.time()
        session = self.broker.sessions.by_key.get(key)
        if end_session:
            self.broker.end_session(key, now)
        elif session is not None and session.connection is not None:
            self.broker.disconnect(session.connection, ReasonCode.ADMINISTRATIVE_ACTION, now)
        self.turn()

    def disconnect(self, connection: Connection, reason: ReasonCode) -> None:
        """Ends a connection."""
        self.broker.disconnect(connection, reason, time.time())
        self.turn()

    def take_decision(self, key: str, revision: int, decision: Decision) -> None:
        """The policy for a response target has been found."""
        self.broker.deciding.decide(key, revision, decision, time.time())
        self.turn()

    def configure(self, settings: BrokerSettings, limits: LimitTable) -> None:
        """Takes other limits."""
        self.broker.configure(settings, limits, time.time())

    @property
    def authenticates(self) -> bool:
        """True if the credentials of clients are checked."""
        return self.broker.authenticates

    @authenticates.setter
    def authenticates(self, checks: bool) -> None:
        self.broker.authenticates = checks

    def publish_system_topics(self, version: str) -> None:
        """Publishes what the broker says of itself."""
        publish_system_topics(self.broker, version, time.time(), self._system_values())
        self.turn()

    def _system_values(self) -> dict[str, str]:
        """Returns the `$SYS` topics that the core cannot know."""
        return {f"alarms/{kind}": str(int(kind in self.alarms)) for kind in ("memory", "disk")}

    # The turn.

    def end_turn(self) -> None:
        self._turn_planned = False
        if self._failed:
            return
        broker = self.broker
        if broker.journal.records:
            try:
                self.store.commit(broker.take_journal())
            except SurecastError as error:
                self.give_up(error)
                return
        if broker.dirty:
            self._send(broker.dirty)
            broker.counters.bytes_out = self.bytes_sent
        if broker.checking:
            waiting, broker.checking = broker.checking, []
            self._check_credentials(waiting)
        if broker.targets.undecided and not self._stopped:
            self._adviser.ask(broker.targets.questions())
        self._hooks.turn()
        if (self._timer is None or broker.timers.count != self._timers_seen) and not self._stopped:
            self._plan_timer()

    def _checked(self, connection: Connection, verdict: Verdict) -> None:
        if isinstance(verdict, str):
            self.broker.admit(connection, verdict, time.time())
        else:
            self.broker.refuse(connection, time.time(), verdict)

    def _plan_timer(self) -> None:
        """Sets the clock for what is due first; only a new appointment can come before it."""
        self._timers_seen = self.broker.timers.count
        at = min(self.broker.next_timer(), self._next_sweep)
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_later(max(0.0, at - time.time()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.time()
        self.broker.tick(now)
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_S
            self.broker.sweep(now)
        self.turn()
