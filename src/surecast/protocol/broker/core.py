"""The broker as a plain object: bytes and the time go in, bytes and what must be durable first come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from surecast.protocol.broker.accounts import Accounts
from surecast.protocol.broker.acknowledging import Acknowledging
from surecast.protocol.broker.broker_settings import FIXED, BrokerSettings
from surecast.protocol.broker.common_batches import CommonBatches
from surecast.protocol.broker.connecting import Connecting
from surecast.protocol.broker.connection import Connection, Origin, Phase
from surecast.protocol.broker.deciding import Deciding
from surecast.protocol.broker.disconnecting import Disconnecting
from surecast.protocol.broker.incoming import Authorise, Incoming, ViolationError
from surecast.protocol.broker.keep_alive import KeepAlive
from surecast.protocol.broker.limits import Limits, LimitTable
from surecast.protocol.broker.local_traffic import LocalTraffic
from surecast.protocol.broker.message import text_field
from surecast.protocol.broker.observer import ConnectionHooks, Counters, Observer
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.requests import Requests
from surecast.protocol.broker.restore import Restorer
from surecast.protocol.broker.retained import Retained
from surecast.protocol.broker.routes import Routes
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.sessions import Sessions
from surecast.protocol.broker.state_journal import Journal, Record
from surecast.protocol.broker.subscribing import Subscribing
from surecast.protocol.broker.targets import Targets
from surecast.protocol.broker.timers import Timers
from surecast.protocol.broker.wills import Wills
from surecast.protocol.mqtt import (
    V5,
    AckBatch,
    Auth,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    PacketError,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    PublishBatch,
    Pubrec,
    Pubrel,
    ReasonCode,
    Subscribe,
    Unsubscribe,
)

__all__ = ["BrokerCore", "everyone"]

_PINGRESP = b"\xd0\x00"
_HELD_MAX = 1 << 20
_CLOSED, _CHECKING = Phase.CLOSED, Phase.CHECKING  # a name of its own is found in a third of the time


def everyone(user: str, client: str, action: str, topic: str) -> bool:
    """Anybody may do anything."""
    return True


class BrokerCore:
    """A broker without sockets, clocks and disks.

    The shell opens connections, hands in what arrives, and after each turn commits `journal` and then sends the `out`
    of every connection in `dirty`; a connection whose phase is CLOSED is to be closed after that. Connections that
    wait in `checking` have given a name and a password: the shell looks at them and calls `admit` or `refuse`. Unless
    the broker `watches`, somebody else sees to connections that are silent for too long. `traffic` collects what
    clients publish and want, where there are other brokers.

    >>> from surecast.protocol.mqtt import encode
    >>> broker = BrokerCore()
    >>> ann = broker.open(Origin(peer="test"), 0.0)
    >>> broker.receive(ann, encode(Connect("ann"), V5), 0.0)
    >>> ann.phase.value, len(ann.out)
    ('open', 1)
    """

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        *,
        authorise: Authorise = everyone,
        authenticates: bool = False,
        observer: Observer | None = None,
        hooks: ConnectionHooks | None = None,
        new_identifier: Callable[[], str] | None = None,
        journal: Journal | None = None,
        watches: bool = True,
        limits: LimitTable | None = None,
        traffic: LocalTraffic | None = None,
    ):
        self.settings = settings or BrokerSettings()
        limits = limits or LimitTable(Limits.of(self.settings))
        self.authenticates = authenticates
        self._authorise = authorise
        self.journal = journal or Journal()
        self.dirty: set[Connection] = set()
        self.checking: list[Connection] = []
        self.connections: dict[int, Connection] = {}
        self.counters = Counters()
        self.observer = observer
        self.traffic = traffic
        self._hooks = hooks or ConnectionHooks()
        self.timers = Timers()
        self.started_at: float | None = None
        self.next_connection = 0
        self.identifiers_given = 0
        self.routes = Routes(self.settings, traffic)
        self.retained = Retained(self.journal, self.settings)
        self.outgoing = Outgoing(self.journal, self.dirty, self.counters, observer)
        self.requests = Requests(self.journal, self.settings.request_tokens_max)
        self.incoming = Incoming(
            self.journal,
            self.routes,
            self.outgoing,
            self.retained,
            self.requests,
            self.dirty,
            self.counters,
            observer,
            authorise,
            traffic,
        )
        self._acknowledging = acknowledging = Acknowledging(
            self.journal, self.incoming, self.outgoing, self.counters, observer
        )
        self._subscribing = Subscribing(
            self.settings, self.journal, self.routes, self.outgoing, self.retained, self.counters, observer, authorise
        )
        self.incoming.rejects = limits.rejects
        self._common = CommonBatches(self.incoming, self.routes, self.dirty)
        self.wills = Wills(self.journal, self.timers, self.incoming, self.counters, authorise)
        self.targets = Targets(self.journal)
        self.sessions = Sessions(
            self.settings,
            limits,
            self.journal,
            self.routes,
            self.outgoing,
            self.wills,
            self.targets,
            self.timers,
            self.counters,
            observer,
            new_identifier or self._new_identifier,
        )
        self.deciding = Deciding(
            self.targets, self.sessions, self.connections, self._subscribing, self.incoming, self.dirty, observer
        )
        self._disconnecting = Disconnecting(self.sessions, self.dirty, self.counters, self._hooks)
        self._keep_alive = KeepAlive(self.timers, self._disconnecting, watches)
        self._connecting = Connecting(
            self.sessions,
            self.routes,
            self.outgoing,
            self._disconnecting,
            self._keep_alive,
            self.dirty,
            observer,
            self._hooks,
        )
        self._handlers: Mapping[type, Callable[..., None]] = {
            Publish: self.incoming.publish,
            PublishBatch: self.incoming.publish_batch,
            Puback: acknowledging.acknowledged,
            AckBatch: acknowledging.batch,
            Pubrec: acknowledging.received,
            Pubrel: self._pubrel,
            Pubcomp: acknowledging.completed,
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            Pingreq: self._ping,
            Disconnect: self._disconnect,
            Auth: self._auth,
        }

    def _new_identifier(self) -> str:
        self.identifiers_given += 1
        return f"auto-{self.identifiers_given:08x}"

    # What the shell calls.

    def restore(self, records: Iterable[tuple[bytes, bytes]], now: float) -> None:
        """Takes the durable state back, once, before anything else."""
        Restorer(self).run(records, now)

    def decoder(self, listener: str = "") -> PacketDecoder:
        """A decoder for one connection. Its client's own limit holds as soon as it is known who it is."""
        settings = self.settings
        return PacketDecoder(
            self.sessions.limits.packet_bytes_max(listener),
            max_connect_size=settings.first_packet_bytes_max,
            max_levels=settings.topic_levels_max,
            max_user_properties=settings.user_properties_max,
            max_filters=settings.packet_filters_max,
        )

    def open(self, origin: Origin, now: float, connection: Connection | None = None) -> Connection:
        """A new connection; it may have been made elsewhere, with a `decoder` of this broker."""
        self.next_connection += 1
        if connection is None:
            connection = Connection(self.next_connection, origin, self.decoder(origin.listener), now)
        connection.number = self.next_connection
        connection.opened_at = connection.connected_at = connection.heard_at = now
        self.connections[connection.number] = connection
        self.counters.connections += 1
        self._keep_alive.await_connect(connection, self.settings.connect_timeout_s, now)
        return connection

    def receive(self, connection: Connection, data: bytes, now: float) -> None:
        """Takes what a client sent."""
        phase = connection.phase
        if phase is _CLOSED:
            return
        connection.heard_at = now
        self.counters.bytes_in += len(data)
        if len(data) == 4 and self._acknowledging.takes_alone(connection, data, now):
            return
        if phase is _CHECKING:
            connection.held_bytes += len(data)
            if connection.held_bytes > _HELD_MAX:
                self._disconnecting.refuse(
                    connection, ReasonCode.QUOTA_EXCEEDED, "too much was sent before the CONNACK"
                )
                return
        try:
            packets = connection.decoder.feed_batches(data)
        except PacketError as error:
            if self._handle_all(connection, error.packets, now):
                self._disconnecting.malformed(connection, error, now)
            return
        if connection.pace is None:
            self._handle_all(connection, packets, now)
        else:
            self._handle_paced(connection, packets, now)

    def handle(
        self, connection: Connection, packets: Iterable[Packet | PublishBatch | AckBatch], size: int, now: float
    ) -> None:
        """Takes what a client sent, `size` bytes that were decoded elsewhere."""
        if not connection.is_closed():
            connection.heard_at = now
            self.counters.bytes_in += size
            self._handle_paced(connection, packets, now)

    def handle_batches(
        self, batch: PublishBatch, connections: Sequence[Connection | None], counts: Sequence[int], now: float
    ) -> None:
        """Takes messages of several clients to one topic, in order: each has sent so many of them.

        Where there is no connection any more, its messages are left out. What can be done for all is done once.
        """
        at, end, begin, take = 0, len(connections), 0, self._common.take
        while at < end:
            after, stop = take(batch, connections, counts, at, begin, now)
            if after == at:
                connection, stop = connections[at], begin + counts[at]
                if connection is not None:
                    part = batch.part(begin, stop)
                    if len(part.data) > connection.limits.packet_bytes_max:
                        self.receive(connection, part.data, now)  # the limit of this very client may be crossed
                    else:
                        self.handle(connection, (part,), len(part.data), now)
                after += 1
            at, begin = after, stop

    def announce(self, topic: str, payload: bytes, retain: bool, now: float) -> None:
        """Publishes a message of the broker's own, at QoS 1."""
        packet = Publish(topic, payload, 1, retain)
        self.incoming.take(self.incoming.message(packet, topic, text_field(topic), "", now), now)

    def lost(self, connection: Connection, now: float, reason: str = "connection lost") -> None:
        """The transport is gone; nothing can be sent any more.

        A client whose credentials are still being checked may have said all it wanted to: if they are right, it counts.
        """
        if (
            connection.phase is _CHECKING
            and connection.held
            and connection.held_bytes <= self.settings.first_packet_bytes_max
        ):
            connection.left = reason
            return
        if not connection.is_closed():
            self._disconnecting.close(connection, now, reason, with_will=True)
        self.dismiss(connection)

    def dismiss(self, connection: Connection) -> None:
        """Forgets a connection that is over, or goes on elsewhere."""
        self.connections.pop(connection.number, None)
        self._keep_alive.forget(connection)
        self.dirty.discard(connection)

    def admit(self, connection: Connection, user: str, now: float) -> None:
        """The credentials of a connection are right."""
        if connection.phase is not Phase.CHECKING or connection.connect is None:
            return
        connection.user = user
        held, connection.held = connection.held, []
        self._connecting.accept(connection, connection.connect, now)
        self._handle_all(connection, held, now)
        if connection.left:
            self.lost(connection, now, connection.left)

    def refuse(
        self, connection: Connection, now: float, reason: ReasonCode = ReasonCode.BAD_USER_NAME_OR_PASSWORD
    ) -> None:
        """The credentials of a connection are wrong."""
        if connection.phase in (Phase.CHECKING, Phase.NEW):
            self._disconnecting.refuse(connection, reason, "")
            if connection.left:
                self.lost(connection, now, connection.left)

    def disconnect(self, connection: Connection, reason: ReasonCode, now: float, text: str = "") -> None:
        """The broker ends a connection and says why, where the protocol has a word for it."""
        self._disconnecting.disconnect(connection, reason, now, text)

    def set_congested(self, connection: Connection, congested: bool) -> None:
        """The shell says that a connection has too much unsent, or no longer."""
        if connection.congested != congested:
            connection.congested = congested
            if connection.session is not None:
                self.routes.changed(connection.session)

    def configure(self, settings: BrokerSettings, limits: LimitTable, now: float) -> None:
        """Takes other limits while it runs; those of the form of packets stay as they are."""
        self.settings = replace(settings, **{name: getattr(self.settings, name) for name in FIXED})
        self.sessions.settings = self._subscribing.settings = self.settings
        self.retained.settings = self.settings
        self.routes.quotas.limit(self.settings)
        self.requests.tokens_max = settings.request_tokens_max
        self.incoming.rejects = limits.rejects or (self.traffic is not None and self.traffic.refuses is not None)
        self._common.forget()
        self.sessions.limit_anew(limits, now)

    def permissions_changed(self, checks_deliveries: bool = False) -> None:
        """Forgets what access rules allowed: who may publish, and where deliveries are checked, receive."""
        for connection in self.connections.values():
            connection.allowed.clear()
        self._common.forget()
        self.routes.check_deliveries(self.may_receive if checks_deliveries else None)

    def may_receive(self, session: Session, topic: str) -> bool:
        """Returns whether the access rules let a session have the messages of a topic."""
        return self._authorise(session.user, session.client, "receive", topic)

    def remove_subscription(self, session: Session, key: str, now: float) -> bool:
        """Ends one subscription of a session, by its filter as it was asked for; False if there is none."""
        return self._subscribing.remove(session, key, "administrator", now)

    def end_session(self, key: str, now: float) -> bool:
        """Removes a session, by its key, and its connection; False if there is none."""
        session = self.sessions.by_key.get(key)
        if session is None:
            return False
        if session.connection is not None:
            self.disconnect(session.connection, ReasonCode.ADMINISTRATIVE_ACTION, now)
        if self.sessions.by_key.get(key) is session:
            self.sessions.end(session, now)
        return True

    def tick(self, now: float) -> None:
        """Does what is due."""
        for kind, key in self.timers.due(now):
            if kind == "session":
                self.sessions.expire(str(key), now)
            elif kind == "will":
                self.wills.delay_over(self.sessions.by_key.get(str(key)), now)
            elif kind in ("connect", "silence"):
                connection = self.connections.get(int(key))
                if connection is not None:
                    self._keep_alive.check(connection, kind, now)

    def sweep(self, now: float) -> None:
        """Takes out what has expired while it waited; the shell calls it now and then."""
        self.retained.expire(now)
        for session in self.sessions.by_key.values():
            if session.waiting.entries:
                self.outgoing.expire(session, now)

    def accounts(self) -> Accounts:
        """The accounts of all sessions there are and were."""
        self.routes.settle()
        total = Accounts()
        total.add(self.sessions.past)
        for session in self.sessions.by_key.values():
            total.add(session.accounts)
        return total

    def take_journal(self) -> list[Record]:
        """Takes the records that must be durable before anything is sent."""
        return self.journal.take()

    # What packets do.

    def _handle_paced(
        self, connection: Connection, packets: Iterable[Packet | PublishBatch | AckBatch], now: float
    ) -> None:
        before = self.counters.published
        self._handle_all(connection, packets, now)
        if connection.pace is not None:
            connection.pace.spend(self.counters.published - before, now)
            # While it is held back, nothing of it can be heard.
            connection.heard_at = connection.pace.hold_until

    def _handle_all(
        self, connection: Connection, packets: Iterable[Packet | PublishBatch | AckBatch], now: float
    ) -> bool:
        """Handles packets in order; False if the connection did not survive one of them.

        Only a connection whose credentials are being checked has no session and gets packets: they are held.
        """
        if connection.phase is _CLOSED:
            return False
        handlers = self._handlers
        counters = self.counters
        for packet in packets:
            counters.packets_in += 1
            session = connection.session
            if session is not None:
                try:
                    handlers[packet.__class__](connection, session, packet, now)
                except ViolationError as violation:
                    self._violated(connection, violation, now)
            elif isinstance(packet, Connect):
                self._connect(connection, packet, now)
            else:
                connection.held.append(packet)
            if connection.phase is _CLOSED:
                return False
        return True

    def _violated(self, connection: Connection, violation: ViolationError, now: float) -> None:
        self.counters.protocol_errors += 1
        self.disconnect(connection, violation.reason, now, str(violation))

    def _connect(self, connection: Connection, connect: Connect, now: float) -> None:
        connection.version_5 = connect.version == V5
        connection.connect = connect
        if connect.properties.authentication_method is not None:
            self._disconnecting.refuse(
                connection, ReasonCode.BAD_AUTHENTICATION_METHOD, "extended authentication is not supported"
            )
        elif self.authenticates:
            connection.phase = Phase.CHECKING
            self.checking.append(connection)
        else:
            connection.user = connection.origin.identity
            self._connecting.accept(connection, connect, now)

    def _pubrel(self, connection: Connection, session: Session, packet: Pubrel, now: float) -> None:
        self.incoming.release(connection, session, (packet.packet_id,))

    def _subscribe(self, connection: Connection, session: Session, packet: Subscribe, now: float) -> None:
        self.dirty.add(connection)
        session.renewed = False
        if not self.deciding.takes(connection, session, packet, now):
            self._subscribing.subscribe(connection, session, packet, now)

    def _unsubscribe(self, connection: Connection, session: Session, packet: Unsubscribe, now: float) -> None:
        self.dirty.add(connection)
        self._subscribing.unsubscribe(connection, session, packet, now)

    def _ping(self, connection: Connection, session: Session, packet: Pingreq, now: float) -> None:
        connection.out.append(_PINGRESP)
        self.dirty.add(connection)

    def _disconnect(self, connection: Connection, session: Session, packet: Disconnect, now: float) -> None:
        expiry_s = packet.properties.session_expiry_s
        if expiry_s is not None:
            if expiry_s and not session.persistent:
                raise ViolationError(ReasonCode.PROTOCOL_ERROR, "a session without expiry gets none at its end")
            self.sessions.set_lifetime(session, expiry_s)
        self._disconnecting.close(connection, now, "disconnected", with_will=packet.reason != ReasonCode.SUCCESS)

    def _auth(self, connection: Connection, session: Session, packet: Auth, now: float) -> None:
        raise ViolationError(ReasonCode.PROTOCOL_ERROR, "AUTH without an authentication method")

    def next_timer(self) -> float:
        """When `tick` should be called next; infinite if nothing is planned."""
        return self.timers.next_at()
