"""Real clients whose sessions follow them from broker to broker, also when the broker before is killed."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.broker.overlay.conftest import Clients, announced, is_up, plan_for, until

from surecast.broker.overlay.local_overlay import LocalOverlay

Start = Callable[..., tuple[LocalOverlay, Clients]]
CHAIN = (("b1", "b2"), ("b2", "b3"))


class Hopper:
    """A client that goes from broker to broker, and remembers what it got and whether its session was there."""

    def __init__(self, overlay: LocalOverlay, protocol: int, qos: int):
        self.overlay, self.qos = overlay, qos
        self.got: list[bytes] = []
        self.found: list[bool] = []
        self._options: dict[str, Any] = {}
        clean: dict[str, Any] = {"clean_session": False}
        if protocol == paho.MQTTv5:
            clean = {}
            self._options = {"clean_start": False, "properties": Properties(PacketTypes.CONNECT)}
            self._options["properties"].SessionExpiryInterval = 1_000
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id="hopper", protocol=protocol, **clean)
        self.client.reconnect_delay_set(0.05, 0.05)  # type: ignore[arg-type]
        self.client.on_connect = lambda _c, _d, flags, _r, _p: self.found.append(flags.session_present)
        self.client.on_message = lambda _c, _d, message: self.got.append(message.payload)

    def go(self, broker: str) -> None:
        """Connects to a broker; the connection before ends without a word. What is in flight at QoS 2 is kept."""
        count = len(self.found)
        host, _, port = self.overlay.file.mqtt_address(broker).rpartition(":")
        connection = self.client.socket()
        self.client.connect_async(host, int(port), **self._options)
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if not count:
            self.client.loop_start()
        until(lambda: len(self.found) > count, f"an answer of {broker}")
        if not self.found[-1]:
            self.client.subscribe("stock/#", self.qos)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.mark.parametrize(("protocol", "qos"), [(paho.MQTTv311, 1), (paho.MQTTv5, 2)])
def test_a_client_hops_over_three_brokers_while_messages_come_and_one_broker_is_killed(
    protocol: int, qos: int, start: Start, surecast_overlay: Callable[..., Any]
) -> None:
    overlay, clients = start(plan_for(CHAIN, "buffering"), sessions="move", move_wait="1 s", move_linger="500 ms")
    publisher = clients.publish("b2", "p")
    hopper = Hopper(overlay, protocol, qos)
    wanted: list[bytes] = []

    def publish(count: int) -> None:
        for _ in range(count):
            wanted.append(b"%d" % len(wanted))
            publisher.publish("stock/x", wanted[-1], qos)

    try:
        hopper.go("b1")
        until(lambda: announced(overlay, "b2", "b1"), "demand at b2")
        for broker in ("b3", "b2", "b1", "b3"):
            publish(50)
            hopper.go(broker)
        publish(50)
        assert hopper.found == [False, True, True, True, True]
        until(lambda: set(wanted) <= set(hopper.got), "all messages")

        if qos == 2:
            assert len(hopper.got) == len(set(hopper.got)), "each once"
        publish(50)
        overlay.kill("b3")
        hopper.go("b1")  # which cannot have the session
        publish(50)
        until(lambda: wanted[-1] in hopper.got, "what is new")
        overlay.start("b3")
        until(lambda: is_up(overlay, "b2", "b3"), "the link to b3")
        until(lambda: set(wanted) <= set(hopper.got), "what b3 had for it")
        publisher.finish()
        for broker in ("b2", "b3"):
            until(
                lambda at=broker: all(row["client"] != "hopper" for row in overlay.ask(at, "/homes")["sessions"]),
                f"nothing of it is left at {broker}",
            )
        answers = json.loads(surecast_overlay("sessions", overlay.file.path, "--client", "hopper", "--json").stdout)
        rows = [row for answer in answers["brokers"].values() for row in answer["sessions"]]
        assert [(row["home"], row["connected"], row["going_to"]) for row in rows] == [("b1", True, "")]
        shown = surecast_overlay("sessions", overlay.file.path).stdout
        assert "lasting sessions at 3 brokers" in shown
        assert all(not answer["problems"] for answer in overlay.ask_all("/accounts").values())
    finally:
        hopper.close()
