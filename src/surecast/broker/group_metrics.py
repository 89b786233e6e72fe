"""Figures of a replica of a group for Prometheus, beside those of its broker."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from surecast.broker.group_server import GroupServer
from surecast.broker.metrics import BrokerCollector

__all__ = ["GroupCollector"]


class GroupCollector(BrokerCollector):
    """Reads a replica's status into the families of Prometheus too."""

    _server: GroupServer

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from super().collect()
        status = self._server.node.status()
        difference = GaugeMetricFamily(
            "surecast_group_clock_difference_seconds",
            "How far the clock of another replica is ahead of the own one.",
            labels=["peer"],
        )
        error = GaugeMetricFamily(
            "surecast_group_clock_error_seconds",
            "By how much the measured difference of a clock may be wrong.",
            labels=["peer"],
        )
        for peer in status.peers:
            if peer.is_member and peer.clock_ahead_s is not None and peer.clock_error_s is not None:
                difference.add_metric([str(peer.replica)], peer.clock_ahead_s)
                error.add_metric([str(peer.replica)], peer.clock_error_s)
        yield difference
        yield error
        for name, text, count in (
            (
                "suspicions",
                "Times this replica heard of no leader for too long.",
                status.counts.get("leaders suspected", 0),
            ),
            ("elections", "Times this replica stood for election.", status.counts.get("elections begun", 0)),
            ("late_seconds", "Time in which this replica did not run though it should have.", status.late_s),
        ):
            yield CounterMetricFamily(f"surecast_group_{name}", text, value=count)
        if status.clock_ahead_s is not None:
            yield GaugeMetricFamily(
                "surecast_group_clock_ahead_seconds",
                "How far the own clock is ahead of what the clocks of a majority have reached.",
                value=status.clock_ahead_s,
            )
