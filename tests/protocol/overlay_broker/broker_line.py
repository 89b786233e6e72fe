"""Brokers in a line on pipes without faults, with clients that a test drives packet by packet."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from surecast.protocol.broker import BrokerCore, BrokerSettings, Connection, Origin
from surecast.protocol.mqtt import (
    V5,
    Connect,
    Packet,
    PacketDecoder,
    Properties,
    Publish,
    Subscribe,
    SubscriptionRequest,
    encode,
)
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree
from surecast.protocol.overlay_broker import LinkConnection, LocalTraffic, OverlayBroker


class LineClient:
    """A client of MQTT 5."""

    def __init__(self, line: BrokerLine, home: str, name: str, connect: Connect | None = None):
        self.line, self.home = line, home
        self.core = line.brokers[home].core
        self.connection: Connection = self.core.open(Origin(peer=name), line.now)
        self.decoder = PacketDecoder(version=V5, side="client")
        self.send(connect or Connect(name))
        self.read()

    def send(self, *packets: Packet) -> None:
        for packet in packets:
            self.core.receive(self.connection, encode(packet, V5), self.line.now)
        self.line.run()

    def read(self) -> list[Packet]:
        data = b"".join(self.connection.out)
        self.connection.out.clear()
        return self.decoder.feed(data)

    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.read() if isinstance(packet, Publish)]

    def subscribe(self, filter: str, qos: int = 0, content: str = "", **options: Any) -> None:
        properties = Properties(user=(("filter", content),)) if content else Properties()
        self.send(Subscribe(7, (SubscriptionRequest(filter, qos, **options),), properties))
        self.read()

    def subscribe_and_keep(self, filter: str, qos: int = 0) -> None:
        """Subscribes, and leaves what comes at once to be read."""
        self.send(Subscribe(7, (SubscriptionRequest(filter, qos),)))

    def close(self) -> None:
        self.core.lost(self.connection, self.line.now)
        self.line.run()

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, **properties: Any) -> None:
        number = 9 if qos else 0
        self.send(Publish(topic, payload, qos, retain, packet_id=number, properties=Properties(**properties)))


class BrokerLine:
    """b1 - b2 - ...; every turn commits to a disk, and then sends."""

    def __init__(
        self, size: int = 2, scheme: str = "buffering", node: NodeSettings | None = None, is_joined: bool = True
    ):
        names = tuple(f"b{number + 1}" for number in range(size))
        links = tuple(pairwise(names))
        self.plan = OverlayPlan(names, links, (Tree(links, scheme),))
        self.now = 100.0
        self.node_settings = node or NodeSettings()
        self.disks: dict[str, dict[bytes, bytes]] = {name: {} for name in names}
        self.brokers: dict[str, OverlayBroker] = {}
        self.wires: dict[tuple[str, str], tuple[LinkConnection, LinkConnection]] = {}
        for name in names:
            self.start(name)
        for link in links if is_joined else ():
            self.join(*link)
        self.wait(20.0)

    def start(self, name: str) -> None:
        core = BrokerCore(BrokerSettings(), traffic=LocalTraffic())
        self.brokers[name] = OverlayBroker(
            name, self.plan, core, records=self.disks[name].items(), now=self.now, settings=self.node_settings,
            address="at {}".format,
        )  # fmt: skip

    def join(self, a: str, b: str) -> None:
        self.wires[a, b] = (LinkConnection(self.brokers[a], b), LinkConnection(self.brokers[b]))
        self.run()

    def cut(self, a: str, b: str) -> None:
        for connection in self.wires.pop((a, b)):
            connection.close(self.now)
        self.run()

    def crash(self, name: str) -> None:
        """Kills a broker; its neighbours notice it, and its disk stays."""
        for link in [link for link in self.wires if name in link]:
            ends = self.wires.pop(link)
            ends[link[0] == name].close(self.now)
        del self.brokers[name]
        self.run()

    def commit(self, name: str) -> None:
        for key, value in self.brokers[name].core.take_journal():
            if value is None:
                self.disks[name].pop(key, None)
            else:
                self.disks[name][key] = value

    def run(self) -> None:
        is_busy = True
        while is_busy:
            is_busy = False
            for name, broker in self.brokers.items():
                broker.settle(self.now)
                self.commit(name)
                broker.core.dirty.clear()
            for ends in list(self.wires.values()):
                for own, other in (ends, ends[::-1]):
                    if data := own.output():
                        is_busy = True
                        other.receive(data, self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for broker in self.brokers.values():
            broker.core.tick(self.now)
            broker.tick(self.now)
        self.run()
