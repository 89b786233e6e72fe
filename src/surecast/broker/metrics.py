"""Figures of a running broker for Prometheus, read when they are asked for: they cost nothing in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from surecast import __version__
from surecast.broker.alarms import Alarms
from surecast.broker.authenticator import Authenticator
from surecast.broker.listeners import ConnectionLimit, Listener
from surecast.broker.measured_store import BOUNDS_S, MeasuredStore
from surecast.broker.shell import Shell
from surecast.broker.target_view import target_counts
from surecast.protocol.broker import REASONS

__all__ = ["BrokerCollector", "metrics_text"]


class BrokerCollector(Collector):
    """Reads a broker's counts into the families of Prometheus."""

    def __init__(
        self,
        server: Shell,
        store: MeasuredStore,
        listeners: list[Listener],
        connection_limit: ConnectionLimit,
        *,
        alarms: Alarms,
        authenticator: Authenticator,
        http_turned_away: Counter[str],
        events_lost: Callable[[], int],
    ):
        self._server = server
        self._store = store
        self._listeners = listeners
        self._connection_limit = connection_limit
        self._alarms = alarms
        self._authenticator = authenticator
        self._http_turned_away = http_turned_away
        self._events_lost = events_lost

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._traffic()
        yield from self._passwords()
        yield from self._accounts()
        yield from self._targets()
        yield from self._sizes()
        yield from self._store_figures()
        yield from self._alarm_figures()
        for name, text, value in self._server.gauges():
            yield GaugeMetricFamily(f"surecast_{name}", text, value=value)

    def _traffic(self) -> Iterator[Metric]:
        counters = self._server.broker.counters
        for name, text, count in (
            ("packets_received", "MQTT packets that clients sent.", counters.packets_in),
            ("bytes_received", "Bytes that clients sent.", counters.bytes_in),
            ("bytes_sent", "Bytes handed to connections.", self._server.bytes_sent),
            ("messages_published", "PUBLISH packets from clients.", counters.published),
            ("unauthorised", "Publications and subscriptions that access rules refused.", counters.unauthorised),
            ("protocol_errors", "Connections that broke the protocol.", counters.protocol_errors),
            ("connections_opened", "Connections accepted by listeners.", counters.connections),
            ("connections_refused", "CONNECT packets that were refused.", counters.refused),
            ("event_log_lost", "Times the event log could not be written.", self._events_lost()),
        ):
            yield CounterMetricFamily(f"surecast_{name}", text, value=count)
        turned = CounterMetricFamily(
            "surecast_connections_turned_away", "Connections closed before MQTT.", labels=["listener", "reason"]
        )
        current = GaugeMetricFamily("surecast_connections", "Open connections.", labels=["listener"])
        for listener in self._listeners:
            current.add_metric([listener.name], listener.connection_limit.connections)
            for reason, count in sorted(listener.connection_limit.turned_away.items()):
                turned.add_metric([listener.name, reason], count)
        yield turned
        yield current
        limited = CounterMetricFamily(
            "surecast_limit_reached", "Times a client reached a limit, by its configuration field.", labels=["limit"]
        )
        http = CounterMetricFamily(
            "surecast_http_turned_away", "HTTP connections that got no answer.", labels=["reason"]
        )
        for reason in ("silent", "busy"):
            http.add_metric([reason], self._http_turned_away[reason])
        yield http
        for limit, count in sorted(self._limited().items()):
            limited.add_metric([limit], count)
        yield limited

    def _passwords(self) -> Iterator[Metric]:
        checks = CounterMetricFamily("surecast_password_checks", "Passwords of clients.", labels=["result"])
        for result in ("remembered", "right", "wrong", "busy", "gone"):
            checks.add_metric([result], self._authenticator.counts[result])
        yield checks
        text = "Passwords that wait to be checked."
        yield GaugeMetricFamily("surecast_password_checks_waiting", text, value=self._authenticator.waiting)

    def _limited(self) -> Counter[str]:
        """Returns how often each limit was reached; one that never was is left out."""
        return self._server.broker.counters.limited + self._server.limited

    def _accounts(self) -> Iterator[Metric]:
        accounts = self._server.broker.accounts()
        for name, text, count in (
            ("matched", "Messages routed to sessions, one for each.", accounts.matched),
            ("delivered", "Messages delivered: sent at QoS 0, acknowledged at QoS 1 and 2.", accounts.delivered),
            ("expired", "Messages that expired while they waited.", accounts.expired),
        ):
            yield CounterMetricFamily(f"surecast_messages_{name}", text, value=count)
        dropped = CounterMetricFamily("surecast_messages_dropped", "Messages dropped.", labels=["reason"])
        for reason in REASONS:
            dropped.add_metric([reason], accounts.dropped.get(reason, 0))
        yield dropped
        yield GaugeMetricFamily(
            "surecast_messages_queued", "Messages that wait or are in flight.", value=accounts.queued
        )

    def _targets(self) -> Iterator[Metric]:
        counts = target_counts(list(self._server.broker.sessions.by_key.values()))
        family = GaugeMetricFamily(
            "surecast_response_targets", "Sessions with a response target, by what is known of it.", labels=["state"]
        )
        for state in ("met", "missed", "undecided"):
            family.add_metric([state], counts[state])
        yield family
        yield GaugeMetricFamily(
            "surecast_response_targets_unmeetable",
            "Sessions whose response target no policy meets.",
            value=counts["unmeetable"],
        )

    def _sizes(self) -> Iterator[Metric]:
        broker = self._server.broker
        sessions = list(broker.sessions.by_key.values())
        for name, text, value in (
            ("sessions", "Sessions, connected or not.", len(sessions)),
            (
                "sessions_connected",
                "Sessions whose client is connected.",
                sum(s.connection is not None for s in sessions),
            ),
            ("queue_messages_longest", "Messages in the longest queue.", max((s.queued for s in sessions), default=0)),
            ("queue_bytes", "Bytes in all queues.", sum(s.bytes_queued for s in sessions)),
            ("unfinished_bytes", "Bytes of packets that are not whole yet.", self._server.unfinished.bytes),
            ("subscriptions", "Subscriptions.", broker.routes.count),
            ("retained", "Retained messages.", len(broker.retained)),
            ("uptime_seconds", "Time since the start.", self._server.uptime_s),
        ):
            yield GaugeMetricFamily(f"surecast_{name}", text, value=value)
        info = GaugeMetricFamily("surecast_info", "The version.", labels=["version", "durability"])
        info.add_metric([__version__, self._store.durability], 1)
        yield info

    def _alarm_figures(self) -> Iterator[Metric]:
        alarm = GaugeMetricFamily("surecast_alarm", "1 while publishers wait for memory or disk.", labels=["kind"])
        for kind in ("memory", "disk"):
            alarm.add_metric([kind], int(kind in self._alarms.on))
        yield alarm
        yield GaugeMetricFamily("surecast_memory_bytes", "Memory of the process.", value=self._alarms.memory_bytes)
        if self._alarms.disk_free_bytes is not None:
            yield GaugeMetricFamily(
                "surecast_disk_free_bytes", "Free space for the state.", value=self._alarms.disk_free_bytes
            )
        yield GaugeMetricFamily(
            "surecast_publishers_waiting", "Connections that an alarm holds.", value=self._server.publishers_waiting
        )

    def _store_figures(self) -> Iterator[Metric]:
        statistics = self._store.statistics()
        for name, text, value in (
            ("keys", "Records that are live.", statistics.live_keys),
            ("live_bytes", "Bytes of live records.", statistics.live_bytes),
            ("log_bytes", "Bytes that the store takes.", statistics.log_bytes),
            ("in_doubt", "1 where commits before the start may be lost, and it cannot be told.", statistics.in_doubt),
        ):
            yield GaugeMetricFamily(f"surecast_store_{name}", text, value=value)
        buckets: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._store.counts, strict=True):
            so_far += count
            buckets.append((bound, so_far))
        yield HistogramMetricFamily(
            "surecast_commit_seconds",
            "Time until a commit was durable.",
            buckets=buckets,
            sum_value=self._store.total_s,
        )


def metrics_text(collector: BrokerCollector) -> bytes:
    """The figures in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)
