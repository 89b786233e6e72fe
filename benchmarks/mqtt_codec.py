"""Speed of the MQTT codec, beside the codecs of paho-mqtt and amqtt on the same packets.

Run it without arguments; it takes about half a minute. Every reader gets the bytes it would get from a socket: ours
whole reads of 64 kB, paho its socket's `recv`, amqtt its buffer reader. All must read the same topics and payloads.
The contestants take turns, and the least of the rounds counts. Times are microseconds a packet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from surecast.protocol.mqtt import (
    V5,
    V311,
    Packet,
    PacketDecoder,
    Properties,
    Puback,
    Publish,
    Subscribe,
    SubscriptionRequest,
    TopicTree,
    encode,
    encode_publish,
)


def imported(module: str, name: str = "") -> Any:
    """A module, or something in it; None where it is not installed."""
    try:
        found = import_module(module)
    except ImportError:
        return None
    return getattr(found, name) if name else found


paho = imported("paho.mqtt.client")
BufferReader = imported("amqtt.adapters", "BufferReader")
PublishPacket = imported("amqtt.mqtt.publish", "PublishPacket")

COUNT = 800
ROUNDS = 15
READ_BYTES = 65_536


def traffic(qos: int, properties: Properties) -> list[Packet]:
    """800 messages of 64 bytes on 50 topics."""
    return [
        Publish(f"site/hall/{n % 50}", n.to_bytes(64, "big"), qos, packet_id=n + 1 if qos else 0, properties=properties)
        for n in range(COUNT)
    ]


def read_ours(data: bytes, version: int) -> Callable[[], int]:
    decoder = PacketDecoder(version=version)
    chunks = [data[at : at + READ_BYTES] for at in range(0, len(data), READ_BYTES)]

    def read() -> int:
        found = [packet for chunk in chunks for packet in decoder.feed(chunk)]
        return sum(len(packet.payload) for packet in found if isinstance(packet, Publish))

    return read


class Feeding:
    """A socket for paho: everything is there, and what is sent is lost."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def recv(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        self.at += size
        if not part:
            raise BlockingIOError
        return part

    def send(self, data: bytes) -> int:
        return len(data)

    def close(self) -> None: ...

    def fileno(self) -> int:
        return -1


def read_paho(data: bytes, version: int) -> Callable[[], int]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "c", protocol=paho.MQTTProtocolVersion(version))

    def read() -> int:
        client._sock = Feeding(data)
        total = 0

        def arrived(_client: object, _user: object, message: Any) -> None:
            nonlocal total
            total += len(message.payload)

        client.on_message = arrived
        while client._sock is not None and client._sock.at < len(data):
            client._packet_read()
        return total

    return read


def read_amqtt(data: bytes) -> Callable[[], int]:
    async def read() -> int:
        reader, total = BufferReader(data), 0
        for _ in range(COUNT):
            packet = await PublishPacket.from_stream(reader)
            total += len(packet.data)
        return total

    return lambda: asyncio.run(read())


def best_us(contestants: Mapping[str, Callable[[], object]], count: int = COUNT) -> dict[str, float]:
    times = dict.fromkeys(contestants, float("inf"))
    for _ in range(ROUNDS):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            times[name] = min(times[name], time.perf_counter() - start)
    return {name: 1e6 * taken / count for name, taken in times.items()}


def show(what: str, times: dict[str, float]) -> None:
    print(f"{what:48}" + "   ".join(f"{name} {taken:7.2f}" for name, taken in times.items()))


def decoding() -> None:
    with_properties = Properties(content_type="text/plain", user=(("unit", "mm"), ("deadline_ms", "250")))
    for version, qos, properties in (
        (V311, 0, Properties()),
        (V311, 1, Properties()),
        (V5, 0, Properties()),
        (V5, 1, Properties()),
        (V5, 0, with_properties),
    ):
        data = b"".join(encode(packet, version) for packet in traffic(qos, properties))
        readers: dict[str, Callable[[], int]] = {"surecast": read_ours(data, version)}
        if paho is not None and qos == 0:  # at QoS 1 paho would answer each message
            readers["paho"] = read_paho(data, version)
        if BufferReader is not None and version == V311:
            readers["amqtt"] = read_amqtt(data)
        for name, read in readers.items():
            if read() != COUNT * 64:
                raise SystemExit(f"{name} has not read all messages")
        extra = ", 3 properties" if properties else ""
        show(f"decode PUBLISH {version} QoS {qos}{extra}", best_us(readers))
    acks = b"".join(encode(Puback(n + 1), V5) for n in range(COUNT))
    decoder = PacketDecoder(version=V5)
    show("decode PUBACK 5", best_us({"surecast": lambda: decoder.feed(acks)}))


def encoding() -> None:
    topic, payload = b"site/hall/7", bytes(64)
    packet = Publish("site/hall/7", payload)
    subscribe = Subscribe(1, (SubscriptionRequest("site/+/7", 1), SubscriptionRequest("site/#")))
    for version in (V311, V5):
        show(
            f"encode {version}",
            best_us(
                {
                    "encode_publish": lambda v=version: [
                        encode_publish(topic, payload, version=v) for _ in range(COUNT)
                    ],  # type: ignore[misc]
                    "Publish": lambda v=version: [encode(packet, v) for _ in range(COUNT)],  # type: ignore[misc]
                    "Subscribe": lambda v=version: [encode(subscribe, v) for _ in range(COUNT)],  # type: ignore[misc]
                }
            ),
        )
    if BufferReader is not None:
        amqtt = lambda: [  # noqa: E731
            PublishPacket.build("site/hall/7", payload, None, False, 0, False).to_bytes() for _ in range(COUNT)
        ]
        show("encode 4", best_us({"amqtt": amqtt}))


def matching() -> None:
    tree: TopicTree[int, int] = TopicTree()
    start = time.perf_counter()
    for client in range(100_000):
        tree.subscribe(f"site{client % 100}/device{client}/+", client, client)
    filled = 1e6 * (time.perf_counter() - start) / 100_000
    topics = [f"site{n % 100}/device{n}/t" for n in range(COUNT)]
    show("100,000 subscriptions, each", {"subscribe": filled})
    show(
        "match one topic among them",
        best_us(
            {"remembered": lambda: [tree.match(t) for t in topics], "new": lambda: [tree._search(t) for t in topics]}
        ),
    )


if __name__ == "__main__":
    decoding()
    encoding()
    matching()
