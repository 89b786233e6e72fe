"""The figures for Prometheus: they can be read by its own parser, and the accounts balance in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from surecast.broker.metrics import metrics_text
from surecast.client import Client
from surecast.protocol.broker import REASONS
from surecast.protocol.mqtt import Properties

Running = Callable[..., AbstractAsyncContextManager[Any]]


def test_the_accounts_balance_in_the_metrics(running: Running) -> None:
    async def main() -> str:
        async with running({"limits.queue_messages": 2}) as service:
            port = service.listeners[0].port
            lasting = Properties(session_expiry_s=600)
            async with Client(port=port, client_id="away", clean_start=False, properties=lasting) as client:
                await client.subscribe("a", qos=1)
            async with Client(port=port, client_id="here") as client:
                await client.subscribe("a")
                for _ in range(3):
                    await client.publish("a", b"x", qos=1, retain=True)
                await client.publish("a", b"x")
                for _ in range(4):
                    await client.message()
                return metrics_text(service._collector).decode()

    text = asyncio.run(main())
    values = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    plain = {name.removeprefix("surecast_"): value for (name, labels), value in values.items() if not labels}
    dropped = {reason: values["surecast_messages_dropped_total", (("reason", reason),)] for reason in REASONS}
    assert dropped["queue-full"] == 1
    assert dropped["offline-qos0"] == 1
    assert plain["messages_matched_total"] == 8
    assert plain["messages_matched_total"] == (
        plain["messages_delivered_total"]
        + plain["messages_expired_total"]
        + plain["messages_queued"]
        + sum(dropped.values())
    )
    assert plain["messages_queued"] == 2
    assert plain["queue_messages_longest"] == 2
    assert (plain["sessions"], plain["sessions_connected"], plain["retained"]) == (2, 1, 1)
    assert plain["commit_seconds_count"] >= 4
    assert values["surecast_commit_seconds_bucket", (("le", "+Inf"),)] == plain["commit_seconds_count"]
    assert any(name == "surecast_connections" and value == 1 for (name, _), value in values.items())
