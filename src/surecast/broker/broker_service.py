"""Runs a broker until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from surecast import __version__
from surecast.broker.admin import Admin, View
from surecast.broker.admin_http import HttpServer, bind_local
from surecast.broker.alarms import AlarmLimits, Alarms, free_bytes, memory_mark, resident_bytes
from surecast.broker.authenticator import Authenticator
from surecast.broker.config import admin_socket_path
from surecast.broker.config_models import BrokerConfig
from surecast.broker.event_log import Alive, EventLog, EventLogError, Started, Stopped
from surecast.broker.event_observer import EventObserver
from surecast.broker.listeners import ConnectionLimit, Listener, bind
from surecast.broker.measured_store import MeasuredStore
from surecast.broker.password_queue import Spacing
from surecast.broker.private import write_private
from surecast.broker.reload import Prepared, merge, prepare
from surecast.broker.security import Users, read_token
from surecast.broker.security_acl import AccessRules
from surecast.broker.server import Server
from surecast.broker.service_log import BrokerLog
from surecast.broker.shell import Hooks, Shell
from surecast.broker.start_banner import banner, started_fields
from surecast.broker.store import open_store
from surecast.broker.tcp import peer_name
from surecast.broker.tls import certificate_context, load_certificate
from surecast.errors import SurecastError
from surecast.protocol.broker import Connection, ConnectionHooks
from surecast.protocol.mqtt import ReasonCode

if TYPE_CHECKING:
    from surecast.broker.metrics import BrokerCollector

__all__ = ["EXIT_STORE_FAILED", "BrokerService", "run_broker"]

EXIT_STORE_FAILED = 3
"""The store could not be written any more. Nothing was acknowledged after that."""

_OVERFLOW_CHECK_S = 30.0
_ALARM_CHECK_S = 0.2
_LOG_WARNING_S = 10.0
_CHECKING_THREADS = 2


def run_broker(
    config: BrokerConfig, log: BrokerLog | None = None, reread: Callable[[], BrokerConfig] | None = None
) -> int:
    """Runs a broker in this process until SIGTERM or SIGINT; returns the exit code.

    `reread` makes the configuration anew when SIGHUP comes; without it only the files that it names are read again.
    ConfigurationError, StoreError and EventLogError say why it could not start.
    """
    service = BrokerService(config, log or BrokerLog(config.log.level, config.log.format), reread)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(service.run(handle_signals=True))


class BrokerService:
    """A broker with all that belongs to it. `run` returns when `stop` was called or the store has failed."""

    def __init__(self, config: BrokerConfig, log: BrokerLog, reread: Callable[[], BrokerConfig] | None = None):
        self.config = config
        self._reread = reread or (lambda: self.config)
        self.log = log
        self.ready = asyncio.Event()
        self.listeners: list[Listener] = []
        self.http_addresses: list[str] = []
        self.server: Shell
        self._exit = ExitStack()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._failure: Exception | None = None
        self._events: EventLog | None = None
        self._events_warned_at = 0.0
        self._events_lost = 0
        self._seen_drops: dict[str, int] = {}
        self._users: Users | None = None
        self._access: AccessRules | None = None
        self._http_context: ssl.SSLContext | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        folder = config.state.folder if config.state.chosen != "memory" else None
        self._alarms = Alarms(resident_bytes, lambda: free_bytes(folder))
        self._connection_limit = ConnectionLimit(config.limits.connections)
        self._threads = ThreadPoolExecutor(_CHECKING_THREADS, thread_name_prefix="surecast-check")
        self._authenticator = Authenticator(None, self._is_anonymous, executor=self._threads, at_once=_CHECKING_THREADS)

    async def run(self, handle_signals: bool = False) -> int:
        """Starts, serves and stops; the exit code."""
        try:
            if handle_signals:
                loop = asyncio.get_running_loop()
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
                loop.add_signal_handler(signal.SIGHUP, self.reload)
            await self._start()
            if handle_signals:
                # The process is the broker's own. What was found at the start stays: looking through it again and
                # again would cost time for nothing.
                gc.collect()
                gc.freeze()
            await self._stopping.wait()
            await self._drain()
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._exit.close()
        if self._failure is not None:
            self.log.error("store failed", reason=str(self._failure))
            return EXIT_STORE_FAILED
        self.log.info("stopped")
        return 0

    def stop(self, reason: str = "asked to") -> None:
        """Begins to stop; a second call does not wait for slow clients."""
        if self._stopping.is_set():
            self._hurry.set()
            return
        self.log.info("stopping", reason=reason)
        self._stopping.set()

    def reload(self) -> None:
        """Reads the configuration again, and all that it names. If anything is wrong, all stays as it was."""
        if not self.ready.is_set():
            return
        try:
            config, waiting = merge(self.config, self._reread())
            prepared = prepare(config)
        except SurecastError as error:
            self.log.error("reload failed, all stays as it was", reason=str(error))
            return
        self._apply(prepared)
        if waiting:
            self.log.warning("changes that need a restart are left alone", fields=", ".join(waiting))

    def _apply(self, prepared: Prepared) -> None:
        self.config = prepared.config
        config, server = self.config, self.server
        self.log.set_level(config.log.level)
        self._connection_limit.connections_max = config.limits.connections
        for listener, spec, context in zip(self.listeners, config.listeners, prepared.contexts, strict=True):
            listener.configure(spec, context)
        if self._http_context is not None and config.http is not None:
            load_certificate(self._http_context, config.http.certificate, config.http.key)
        self._secure(prepared)
        server.authenticates = self._must_authenticate()
        server.limit(config.settings)
        self._limit()
        ended = self._use_access()
        self.log.info("reloaded", subscriptions_ended=ended, clients_disconnected=self._disconnect_unwelcome())

    def _secure(self, prepared: Prepared) -> None:
        """Takes users and access rules; wrong passwords are counted on."""
        self._access = prepared.access
        if prepared.users is None:
            self._users = None
        elif self._users is None:
            self._users = Users(prepared.users)
        else:
            self._users.replace(prepared.users)
        security = prepared.config.security
        self._authenticator.users = self._users
        self._authenticator.limit(
            security.checks_waiting,
            Spacing(security.failures_max, security.failures_window, security.failures_delay),
        )

    # Starting.

    async def _start(self) -> None:
        config = self.config
        self._secure(prepare(config))
        self._store = await self._open_server(self._open_event_log())
        restored = len(self.server.broker.sessions.by_key)
        socket = await self._start_admin()
        for listener in self.listeners:
            listener.start()
        if self._events is not None:
            self._events.append(self._started())
            self._flush_events()
        self._repeat("system", config.system_interval, self._publish_system_topics)
        self._repeat("alarms", _ALARM_CHECK_S, self._check_alarms)
        self._repeat("overflow", _OVERFLOW_CHECK_S, self._report_drops)
        self.ready.set()
        if self.log.is_json:
            self.log.info("started", **started_fields(config, self.listeners, self.http_addresses, restored))
        else:
            self.log.text(banner(config, self.listeners, socket, self.http_addresses, restored))
            self.log.info("started", **{each.name: ",".join(each.addresses) for each in self.listeners})

    @cached_property
    def _collector(self) -> BrokerCollector:
        """The figures for Prometheus."""
        return self._collector_class()(
            self.server,
            self._store,
            self.listeners,
            self._connection_limit,
            alarms=self._alarms,
            authenticator=self._authenticator,
            http_turned_away=self._http.turned_away,
            events_lost=lambda: self._events_lost,
        )

    def _collector_class(self) -> type[BrokerCollector]:
        from surecast.broker.metrics import BrokerCollector

        return BrokerCollector

    def _metrics_text(self) -> bytes:
        # Imported when metrics are first asked for: a broker without a port for them starts without Prometheus' client.
        from surecast.broker.metrics import metrics_text

        return metrics_text(self._collector)

    def _started(self) -> Started:
        """Returns the record with which the event log notes the start of this broker."""
        return Started(self.server.time_s(), self.config.name)

    async def _open_server(self, observer: EventObserver | None) -> MeasuredStore:
        """Takes the state back, and the addresses."""
        config = self.config
        store = MeasuredStore(open_store(config.state.folder, config.state.chosen))
        self._exit.callback(store.close)
        for text in store.warnings:
            self.log.warning("store", text=text)
        self._write_pid()
        self.server = server = self._make_server(store, observer)
        server.authenticates = self._must_authenticate()
        self._open_listeners()
        server.start()
        self._use_access()  # the rules may have changed while the broker was down
        return store

    def _make_server(self, store: MeasuredStore, observer: EventObserver | None) -> Server:
        return Server(
            self.config.settings,
            store,
            authorise=self._authorise,
            authenticate=self._authenticator,
            observer=observer,
            hooks=self._hooks(),
        )

    def _open_listeners(self) -> None:
        """Takes the addresses; the limits of sessions go by the names that listeners have then."""
        self.server.limit(self.config.settings)
        for spec in self.config.listeners:
            listener = Listener(spec, self.server, self._connection_limit, lambda text: self.log.warning(text))
            listener.open()
            self._exit.callback(listener.stop)
            self.listeners.append(listener)
        self._limit()

    def _limit(self) -> None:
        """Gives the core the limits of the configuration."""
        table = self.config.limit_table([each.name for each in self.listeners])
        assert isinstance(self.server, Server)
        self.server.configure(self.config.settings, table)

    def _use_access(self) -> int:
        """Applies the access rules to connected clients. Returns the number of subscriptions that ended."""
        assert isinstance(self.server, Server)
        return self.server.revoke(self._authorise, self._access is not None and self._access.checks_deliveries)

    def _write_pid(self) -> None:
        """For tools that stop processes; the store's lock is what keeps two brokers apart."""
        if self.config.state.folder is None or self.config.state.chosen == "memory":
            return
        path = self.config.state.folder / "broker.pid"
        write_private(path, f"{os.getpid()}\n")
        self._exit.callback(lambda: path.unlink(missing_ok=True))

    def _is_anonymous(self, listener: str) -> bool:
        """Returns whether clients without a user name may stay at a listener.

        The open listeners are asked, not the configuration: the name of a listener may contain the port that it got.
        """
        return any(each.name == listener and self.config.anonymous_at(each.spec) for each in self.listeners)

    def _must_authenticate(self) -> bool:
        return self._users is not None or not all(map(self.config.anonymous_at, self.config.listeners))

    def _authorise(self, user: str, client: str, action: str, topic: str) -> bool:
        return self._access is None or self._access.allows(user, client, action, topic)

    def _open_event_log(self) -> EventObserver | None:
        spec = self.config.event_log
        if spec is None:
            return None
        self._events = EventLog(
            spec.folder,
            int(spec.segment_size),
            spec.segment_age,
            None if spec.retention_size is None else int(spec.retention_size),
            spec.retention_age,
            spec.sync,
        )
        self._exit.callback(self._close_events)
        if self._events.warning:
            self.log.warning("event log", text=self._events.warning)
        self._repeat("alive", spec.alive_interval, self._say_alive)
        return EventObserver(self._events)

    def _hooks(self) -> Hooks:
        connections = ConnectionHooks(self._log_connected, self._log_refused, self._log_closed)
        return Hooks(connections, self._store_failed, self._end_turn)

    def _views(self) -> Mapping[str, View]:
        """Returns what else administrators can ask for, by path."""
        return {}

    async def _start_admin(self) -> Path:
        config = self.config
        http = config.http
        admin = Admin(
            config.name,
            self.server,
            self._metrics_text,
            self.listeners,
            is_ready=lambda: self.ready.is_set() and not self._stopping.is_set() and self._failure is None,
            state_folder=config.state.folder,
            log_folder=config.event_log.folder if config.event_log is not None else None,
            token=read_token(http.token_file) if http is not None and http.token_file is not None else None,
            authenticator=self._authenticator,
            log_readers=frozenset(http.log_readers) if http is not None else frozenset(),
            executor=self._threads,
            views=self._views(),
        )
        self._http = server = HttpServer(admin.handle)
        self._exit.callback(server.close)
        path = admin_socket_path(config, self.listeners[0].port)
        await server.serve(bind_local(path), is_local=True)
        self._exit.callback(lambda: path.unlink(missing_ok=True))
        if http is not None:
            self._metrics_text()  # so that the first who asks does not wait for an import
            if http.certificate is not None:
                self._http_context = certificate_context(http.certificate, http.key)
            for sock in bind(http.host, http.port):
                self.http_addresses.append(peer_name(sock.getsockname()))
                await server.serve(sock, is_local=False, context=self._http_context)
        return path

    # While it runs.

    def _repeat(self, name: str, interval_s: float, call: Callable[[], None]) -> None:
        """Calls something again and again; an interval of 0 means never."""
        if interval_s <= 0:
            return
        loop = asyncio.get_running_loop()

        def due() -> None:
            if self._stopping.is_set():
                return
            call()
            self._timers[name] = loop.call_later(interval_s, due)

        self._timers[name] = loop.call_later(interval_s, due)

    def _publish_system_topics(self) -> None:
        self.server.publish_system_topics(f"surecast {__version__}")

    def _check_alarms(self) -> None:
        """Has publishers wait where memory or disk run short."""
        limits = self.config.limits
        memory = memory_mark() if limits.memory is None else int(limits.memory)
        before = set(self._alarms.on)
        on = self._alarms.check(AlarmLimits(memory, int(limits.disk_free)))
        if before or on:
            self.server.set_alarms(on)
        for kind in on.keys() - before:
            self.server.limited["memory" if kind == "memory" else "disk_free"] += 1
            self.log.warning(f"{kind} alarm: publishers have to wait", reason=on[kind])
        for kind in before - on.keys():
            self.log.warning(f"{kind} alarm is over: publishers are read again")

    def _report_drops(self) -> None:
        """Says which messages were dropped since it last looked."""
        dropped = dict(self.server.broker.accounts().dropped)
        more = {reason: count - self._seen_drops.get(reason, 0) for reason, count in dropped.items()}
        self._seen_drops = dropped
        if any(more.values()):
            self.log.warning("messages dropped", **{reason: count for reason, count in more.items() if count})

    def _say_alive(self) -> None:
        if self._events is not None and self.ready.is_set():
            self._events.append(Alive(self.server.time_s(), self.config.name))
            self._flush_events()

    def _end_turn(self) -> None:
        notices = self.server.broker.counters.notices
        if notices:
            for text in notices:
                self.log.warning("notice", text=text)
            notices.clear()
        if self._events is not None:
            self._flush_events()

    def _flush_events(self) -> None:
        assert self._events is not None
        try:
            self._events.flush()
        except EventLogError as error:
            self._events_lost += 1
            now = time.monotonic()
            if now - self._events_warned_at > _LOG_WARNING_S or not self._events_warned_at:
                self._events_warned_at = now
                self.log.warning("event log not written", reason=str(error), records=self._events.lost)

    def _log_connected(self, connection: Connection) -> None:
        session = connection.session
        self.log.info(
            "connected",
            client=session.client if session is not None else "",
            user=connection.user or None,
            address=connection.origin.peer,
            listener=connection.origin.listener,
        )

    def _log_refused(self, connection: Connection, reason: str) -> None:
        asked = connection.connect
        self.log.info(
            "refused",
            client=asked.client_id if asked is not None else None,
            user=asked.username if asked is not None else None,
            address=connection.origin.peer,
            listener=connection.origin.listener,
            reason=reason,
        )

    def _log_closed(self, connection: Connection, client: str, reason: str) -> None:
        if client:
            self.log.info("disconnected", client=client, address=connection.origin.peer, reason=reason)
        else:
            self.log.info("closed", address=connection.origin.peer, reason=reason)

    def _store_failed(self, error: Exception) -> None:
        self._failure = error
        self._stopping.set()

    def _disconnect_unwelcome(self) -> int:
        """Ends connections of users who were removed, and anonymous ones where a user name is required now.

        Returns their number.
        """
        gone = 0
        for connection in list(self.server.broker.connections.values()):
            if connection.session is None or connection.origin.identity:
                continue
            if connection.user:
                is_welcome = self._users is None or connection.user in self._users
            else:
                is_welcome = self._is_anonymous(connection.origin.listener)
            if not is_welcome:
                self.server.disconnect(connection, ReasonCode.NOT_AUTHORIZED)
                gone += 1
        return gone

    # Stopping.

    async def _drain(self) -> None:
        for listener in self.listeners:
            listener.stop()
        self.server.stop()
        drain = asyncio.ensure_future(self.server.drain(self.config.drain if self._failure is None else 0.0))
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({drain, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not drain.done():
            drain.cancel()
            with suppress(asyncio.CancelledError):
                await drain
            late = await self.server.drain(0.0)
        else:
            late = drain.result()
        if late:
            self.log.warning("clients cut off before they had taken everything", count=late)

    def _close_events(self) -> None:
        """Appends the last record if the broker had started, and closes the log. Failures of the log are ignored."""
        assert self._events is not None
        if self.ready.is_set():
            reason = "store failed" if self._failure is not None else None
            self._events.append(Stopped(self.server.time_s(), self.config.name, reason))
        with suppress(EventLogError):
            self._events.close()
