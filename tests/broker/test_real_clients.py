"""Clients that others wrote: paho, aiomqtt, mosquitto_pub and mosquitto_sub, and MQTT.js in a browser."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from surecast.broker.admin_client import ask
from tests.broker.conftest import Certificates, Process

V311, V5 = paho.MQTTv311, paho.MQTTv5
WAIT_S = 20
needs_mosquitto = pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto-clients is not installed")
both_versions = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])


class Broker:
    """A broker for all tests of this module, with one listener of each kind."""

    def __init__(self, folder: Path, certificates: Certificates):
        config = {
            "listeners": [
                {"kind": "tcp", "port": 0},
                {"kind": "websocket", "port": 0},
                {
                    "kind": "tls",
                    "port": 0,
                    "certificate": str(certificates.server),
                    "key": str(certificates.server_key),
                },
            ],
            "state": {"folder": str(folder / "state")},
            "admin_socket": str(folder / "admin.sock"),
            "limits": {"packet_size": "12MB"},
        }
        (folder / "broker.yaml").write_text(json.dumps(config))
        self.process = Process("--config", folder / "broker.yaml")
        self.port, self.web_port, self.tls_port = (int(each["port"]) for each in self.process.started["listeners"])
        self._socket = folder / "admin.sock"

    def kick(self, client: str) -> None:
        ask(self._socket, "/kick", {"client": client}, "POST")

    def books_balance(self) -> bool:
        sessions = ask(self._socket, "/sessions")["sessions"]
        return all(each["books"]["queued"] == each["inflight"] + each["waiting"] for each in sessions)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("real"), certificates)
    yield made
    assert made.books_balance()
    assert made.process.end() == 0


class Paho:
    """A paho client whose callbacks fill queues."""

    def __init__(self, port: int, name: str, version: int, lasting: bool = False, **options: Any):
        self.version = version
        given = {} if version == V5 else {"clean_session": not lasting}
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=version, **given, **options)  # type: ignore[arg-type]
        self.client.reconnect_delay_set(1, 1)
        self.port, self.lasting = port, lasting
        self.connected: queue.Queue[tuple[Any, Any, Any]] = queue.Queue()
        self.disconnected: queue.Queue[Any] = queue.Queue()
        self.inbox: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.answers: queue.Queue[list[int]] = queue.Queue()
        self.reasons: dict[int, int] = {}
        self.client.on_connect = lambda c, u, *rest: self.connected.put(rest)  # type: ignore[assignment,arg-type]
        self.client.on_disconnect = lambda c, u, flags, reason, properties: self.disconnected.put(reason)
        self.client.on_message = lambda c, u, message: self.inbox.put(message)
        self.client.on_subscribe = lambda c, u, mid, reasons, p: self.answers.put([r.value for r in reasons])
        self.client.on_publish = lambda c, u, mid, reason, p: self.reasons.__setitem__(mid, reason.value)

    def connect(self, keep_alive_s: int = 60, **properties: Any) -> bool:
        """Connects; whether the session was there."""
        if self.version == V5:
            if self.lasting:
                properties.setdefault("SessionExpiryInterval", 300)
            given = make_properties(PacketTypes.CONNECT, **properties)
            self.client.connect("127.0.0.1", self.port, keep_alive_s, clean_start=not self.lasting, properties=given)
        else:
            self.client.connect("127.0.0.1", self.port, keep_alive_s)
        self.client.loop_start()
        return self.accepted()

    def accepted(self) -> bool:
        flags, reason, self.welcome = self.connected.get(timeout=WAIT_S)
        assert reason.value == 0
        return bool(flags.session_present)

    def subscribe(self, *filters: tuple[str, Any], **properties: Any) -> list[int]:
        wanted: list[Any] = list(filters)
        if self.version == V5:
            wanted = [(f, o if isinstance(o, SubscribeOptions) else SubscribeOptions(qos=o)) for f, o in filters]
        given = make_properties(PacketTypes.SUBSCRIBE, **properties) if properties else None
        self.client.subscribe(wanted, properties=given)
        return self.answers.get(timeout=WAIT_S)

    def publish(self, topic: str, payload: Any = b"", qos: int = 0, retain: bool = False, **properties: Any) -> int:
        """Publishes, and waits for the acknowledgement; its reason code."""
        given = make_properties(PacketTypes.PUBLISH, **properties) if properties else None
        info = self.client.publish(topic, payload, qos, retain, given)
        info.wait_for_publish(WAIT_S)
        assert info.is_published()
        return self.reasons.get(info.mid, 0)

    def get(self, count: int = 1) -> list[paho.MQTTMessage]:
        return [self.inbox.get(timeout=WAIT_S) for _ in range(count)]

    def break_off(self) -> None:
        """The connection breaks; paho's loop will make another."""
        sock = self.client.socket()
        assert sock is not None
        sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    def die(self) -> None:
        """No goodbye, and no coming back."""
        self.client.loop_stop()
        self.break_off()

    def end(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def make_properties(packet: int, **values: Any) -> Properties:
    made = Properties(packet)
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            setattr(made, name, each)
    return made


@pytest.fixture
def make_paho(broker: Broker) -> Iterator[Callable[..., Paho]]:
    with ExitStack() as stack:

        def make(name: str, version: int = V5, lasting: bool = False, **options: Any) -> Paho:
            client = Paho(options.pop("port", broker.port), name, version, lasting, **options)
            stack.callback(client.end)
            return client

        yield make


def seen(messages: list[paho.MQTTMessage]) -> list[tuple[str, bytes, int, bool]]:
    return [(message.topic, message.payload, message.qos, message.retain) for message in messages]


# paho


@both_versions
def test_paho_all_qos_and_retained_messages(make_paho: Callable[..., Paho], version: int) -> None:
    root = f"qos/{version}"
    sub, pub = make_paho(f"sub-{version}", version), make_paho(f"pub-{version}", version)
    sub.connect()
    pub.connect()
    assert sub.subscribe((f"{root}/#", 2), (f"{root}/low", 1)) == [2, 1]
    for qos in (0, 1, 2):
        assert pub.publish(f"{root}/{qos}", b"now", qos) == 0
    assert seen(sub.get(3)) == [(f"{root}/{qos}", b"now", qos, False) for qos in (0, 1, 2)]
    for qos in (0, 1, 2):
        pub.publish(f"kept/{version}/{qos}", b"later", qos, retain=True)
    sub.subscribe((f"kept/{version}/+", 2))
    found = {message.topic: (message.payload, message.qos, message.retain) for message in sub.get(3)}
    assert found == {f"kept/{version}/{qos}": (b"later", qos, True) for qos in (0, 1, 2)}
    for qos in (0, 1, 2):
        pub.publish(f"kept/{version}/{qos}", b"", qos, retain=True)
    sub.get(3)
    late = make_paho(f"late-{version}", version)
    late.connect()
    late.subscribe((f"kept/{version}/+", 2))
    pub.publish(f"kept/{version}/end", b"", 1)
    assert seen(late.get()) == [(f"kept/{version}/end", b"", 1, False)]


@both_versions
def test_paho_comes_back_to_its_session_and_its_will_is_sent(make_paho: Callable[..., Paho], version: int) -> None:
    sub, pub = make_paho(f"back-{version}", version, lasting=True), make_paho(f"away-{version}", version)
    pub.connect()
    assert sub.connect() is False
    sub.subscribe((f"back/{version}/#", 2))
    sub.end()
    for qos in (0, 1, 2):
        pub.publish(f"back/{version}/{qos}", b"while away", qos)
    assert sub.connect() is True
    assert [message.qos for message in sub.get(2)] == [1, 2]
    sub.break_off()
    assert sub.accepted() is True
    mortal = make_paho(f"mortal-{version}", version)
    mortal.client.will_set(f"back/{version}/will", b"gone", 1)
    mortal.connect()
    mortal.die()
    assert seen(sub.get()) == [(f"back/{version}/will", b"gone", 1, False)]


@both_versions
def test_paho_sends_again_what_a_broken_connection_left_open(make_paho: Callable[..., Paho], version: int) -> None:
    """Two hundred QoS 2 messages through breaks on both sides: each comes once, in order."""
    sub, pub = make_paho(f"sure-{version}", version, True), make_paho(f"surer-{version}", version, True)
    sub.connect()
    pub.connect()
    sub.subscribe((f"sure/{version}", 2))
    infos = []
    for number in range(200):
        infos.append(pub.client.publish(f"sure/{version}", str(number), 2))
        if number in (60, 120):
            (pub if number == 60 else sub).break_off()
    for info in infos:
        info.wait_for_publish(WAIT_S)
    assert [int(message.payload) for message in sub.get(200)] == list(range(200))
    pub.publish(f"sure/{version}", b"end", 2)
    assert sub.get()[0].payload == b"end"


def test_paho_properties(make_paho: Callable[..., Paho]) -> None:
    sub, pub = make_paho("props-sub"), make_paho("props-pub")
    sub.connect(TopicAliasMaximum=5, ReceiveMaximum=3)
    pub.connect()
    assert pub.welcome.ReceiveMaximum == 1_000
    assert pub.welcome.TopicAliasMaximum == 100
    sub.subscribe(("props/#", 2), SubscriptionIdentifier=77)
    given: dict[str, Any] = {
        "PayloadFormatIndicator": 1,
        "MessageExpiryInterval": 100,
        "ContentType": "text/plain",
        "ResponseTopic": "props/answer",
        "CorrelationData": b"\0\1\2",
        "UserProperty": [("a", "1"), ("b", "2"), ("a", "3")],
    }
    for qos in (0, 1, 2):
        assert pub.publish("props/x", "text", qos, TopicAlias=7, **given) == 0
    for qos, message in enumerate(sub.get(3)):
        assert message.qos == qos
        assert message.topic == (
            "props/x" if not qos else ""
        )  # the broker uses an alias, which paho leaves to its user
        found = message.properties
        assert found is not None
        assert found.SubscriptionIdentifier == [77]
        assert 99 <= found.MessageExpiryInterval <= 100
        for name in given.keys() - {"MessageExpiryInterval"}:
            assert getattr(found, name) == given[name]
    assert pub.publish("nobody/is/here", b"", 1) == 0x10
    nameless = make_paho("")
    nameless.connect()
    assert nameless.welcome.AssignedClientIdentifier.startswith("auto-")


def test_paho_subscription_options(make_paho: Callable[..., Paho]) -> None:
    client, other = make_paho("options"), make_paho("options-other")
    client.connect()
    other.connect()
    other.publish("options/kept", b"old", 1, retain=True)
    client.subscribe(("options/#", SubscribeOptions(1, noLocal=True, retainAsPublished=True, retainHandling=2)))
    client.publish("options/own", b"", 1)
    other.publish("options/kept", b"new", 1, retain=True)
    assert seen(client.get()) == [("options/kept", b"new", 1, True)]
    client.subscribe(("options/#", SubscribeOptions(0, retainHandling=1)))
    other.publish("options/more", b"", 1)
    assert seen(client.get()) == [("options/more", b"", 0, False)]
    client.subscribe(("options/#", SubscribeOptions(2, retainHandling=0)))
    assert seen(client.get()) == [("options/kept", b"new", 1, True)]
    other.publish("options/kept", b"", 1, retain=True)


@both_versions
def test_paho_large_messages_and_many_topics(make_paho: Callable[..., Paho], version: int) -> None:
    sub, pub = make_paho(f"large-{version}", version), make_paho(f"larger-{version}", version)
    sub.connect()
    pub.connect()
    sub.subscribe((f"large/{version}/#", 2))
    payload = os.urandom(1_000_000) * 8
    for qos in (0, 1, 2):
        pub.publish(f"large/{version}/x", payload, qos)
        assert sub.get()[0].payload == payload
    infos = [pub.client.publish(f"large/{version}/{n}/{n % 7}", str(n), n % 3) for n in range(1_500)]
    for info in infos:
        info.wait_for_publish(WAIT_S)
    assert {message.topic for message in sub.get(1_500)} == {f"large/{version}/{n}/{n % 7}" for n in range(1_500)}


def test_paho_packets_that_are_too_large(make_paho: Callable[..., Paho]) -> None:
    small, pub = make_paho("small"), make_paho("small-pub")
    small.connect(MaximumPacketSize=300)
    pub.connect()
    assert pub.welcome.MaximumPacketSize == 12_000_000
    small.subscribe(("small/#", 1))
    pub.publish("small/x", b"." * 400, 1)
    pub.publish("small/x", b"fits", 1)
    assert small.get()[0].payload == b"fits"
    pub.client.publish("small/x", b"." * 12_000_000, 1)
    assert pub.disconnected.get(timeout=WAIT_S).value == 0x95
    pub.client.loop_stop()


@both_versions
def test_paho_shared_subscriptions(make_paho: Callable[..., Paho], version: int) -> None:
    members = [make_paho(f"member-{version}-{n}", version) for n in range(3)]
    pub = make_paho(f"sharer-{version}", version)
    pub.connect()
    for member in members:
        member.connect()
        assert member.subscribe((f"$share/group/shared/{version}", 1)) == [1]
    for number in range(30):
        pub.publish(f"shared/{version}", str(number), 1)
    got = [[int(message.payload) for message in member.get(10)] for member in members]
    assert sorted(sum(got, [])) == list(range(30))
    assert all(each == sorted(each) for each in got)


def test_paho_content_filters(make_paho: Callable[..., Paho]) -> None:
    sub, pub = make_paho("filtering"), make_paho("filtered")
    sub.connect()
    pub.connect()
    sub.subscribe(("content/#", 1), UserProperty=("filter", "price > 30"))
    for price in (10, 35, 20, 40):
        pub.publish("content/a", str(price), 1, UserProperty=("price", str(price)))
    pub.publish("content/a", '{"price": 50}', 1, ContentType="application/json")
    assert [message.payload for message in sub.get(3)] == [b"35", b"40", b'{"price": 50}']
    assert sub.subscribe(("content/#", 1), UserProperty=("filter", "price >")) == [0x83]


def test_paho_request_and_response_between_versions(make_paho: Callable[..., Paho]) -> None:
    old, new = make_paho("old", V311), make_paho("new", V5)
    old.connect()
    new.connect()
    old.subscribe(("ask/#", 2))
    new.subscribe(("answer/#", 2))
    new.publish("ask/x", b"?", 2, ResponseTopic="answer/x", CorrelationData=b"1")
    assert seen(old.get()) == [("ask/x", b"?", 2, False)]
    old.publish("answer/x", b"!", 2)
    assert seen(new.get()) == [("answer/x", b"!", 2, False)]


def test_paho_over_websocket(broker: Broker, make_paho: Callable[..., Paho]) -> None:
    web, plain = make_paho("web-paho", transport="websockets", port=broker.web_port), make_paho("plain-paho")
    web.client.ws_set_options("/mqtt")
    web.connect()
    plain.connect()
    web.subscribe(("web-paho/#", 2))
    plain.subscribe(("plain-paho/#", 2))
    for qos in (0, 1, 2):
        plain.publish("web-paho/x", b"." * 70_000, qos)
        web.publish("plain-paho/x", b"." * 70_000, qos)
    assert [(m.qos, len(m.payload)) for m in web.get(3)] == [(qos, 70_000) for qos in (0, 1, 2)]
    assert [(m.qos, len(m.payload)) for m in plain.get(3)] == [(qos, 70_000) for qos in (0, 1, 2)]


# aiomqtt


@both_versions
def test_aiomqtt(broker: Broker, version: int) -> None:
    protocol = aiomqtt.ProtocolVersion.V5 if version == V5 else aiomqtt.ProtocolVersion.V31

    async def main() -> list[tuple[str, bytes, int]]:
        will = aiomqtt.Will(f"aio/{version}/will", b"gone", 1)
        watch = aiomqtt.Client("127.0.0.1", broker.port, protocol=protocol, identifier=f"aio-watch-{version}")
        async with watch:
            await watch.subscribe(f"aio/{version}/#", 2)
            mortal = aiomqtt.Client(
                "127.0.0.1", broker.port, protocol=protocol, identifier=f"aio-mortal-{version}", will=will
            )
            async with mortal:
                for qos in (0, 1, 2):
                    await mortal.publish(f"aio/{version}/{qos}", str(qos), qos)
                await mortal.unsubscribe("never")
                with pytest.raises(aiomqtt.MqttError):
                    broker.kick(f"aio-mortal-{version}")
                    async for _ in mortal.messages:
                        pass
            got = []
            async for message in watch.messages:
                got.append((str(message.topic), message.payload, message.qos))
                if len(got) == 4:
                    return got
        raise AssertionError("the messages ended")

    got = asyncio.run(asyncio.wait_for(main(), WAIT_S))
    assert got == [(f"aio/{version}/{qos}", str(qos).encode(), qos) for qos in (0, 1, 2)] + [
        (f"aio/{version}/will", b"gone", 1)
    ]


# mosquitto_pub and mosquitto_sub


class MosquittoSub:
    """mosquitto_sub as a process that has subscribed."""

    def __init__(self, *arguments: str | Path):
        command = ["mosquitto_sub", "-d", "-W", str(WAIT_S), *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        self.debug: list[str] = []
        for line in self.process.stdout:
            self.debug.append(line)
            if line.startswith("Subscribed "):
                return
        raise AssertionError(self.debug)

    def lines(self) -> list[str]:
        """What it printed until it ended by itself."""
        text, _ = self.process.communicate(timeout=WAIT_S)
        assert self.process.returncode == 0, text
        return [line for line in text.splitlines() if not line.startswith(("Client ", "Subscribed "))]


def mosquitto_pub(*arguments: str | Path) -> None:
    subprocess.run(["mosquitto_pub", *map(str, arguments)], check=True, timeout=WAIT_S, capture_output=True)


@needs_mosquitto
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_mosquitto_clients(broker: Broker, certificates: Certificates, version: str, secure: bool) -> None:
    where: list[str | Path] = ["-V", version, "-p", str(broker.tls_port if secure else broker.port)]
    if secure:
        where += ["--cafile", certificates.ca, "-h", "localhost"]
    root = f"mosquitto/{version}/{secure}"
    sub = MosquittoSub(*where, "-q", "2", "-t", f"{root}/#", "-C", "4", "-F", "%t %q %r %p")
    for qos in ("0", "1", "2"):
        mosquitto_pub(*where, "-t", f"{root}/{qos}", "-q", qos, "-m", "hello")
    mosquitto_pub(*where, "-t", f"{root}/kept", "-q", "1", "-m", "stays", "-r")
    assert sub.lines() == [*(f"{root}/{qos} {qos} 0 hello" for qos in "012"), f"{root}/kept 1 0 stays"]
    late = ["mosquitto_sub", *map(str, where), "-t", f"{root}/kept", "-C", "1", "-F", "%r %p", "-W", str(WAIT_S)]
    assert subprocess.run(late, capture_output=True, text=True, timeout=WAIT_S, check=True).stdout == "1 stays\n"
    mosquitto_pub(*where, "-t", f"{root}/kept", "-r", "-n")


@needs_mosquitto
def test_mosquitto_options_of_version_5(broker: Broker) -> None:
    where = ["-V", "mqttv5", "-p", str(broker.port)]
    properties = ["-D", "subscribe", "user-property", "filter", "unit = 'celsius'"]
    sub = MosquittoSub(*where, "-q", "1", "-t", "m5/#", "-C", "1", "-F", "%t %P %C %R %D %E %p", *properties)
    for unit in ("kelvin", "celsius"):
        given = [
            ("user-property", "unit", unit),
            ("content-type", "text/plain"),
            ("response-topic", "m5-answers"),
            ("correlation-data", "17"),
            ("message-expiry-interval", "60"),
        ]
        mosquitto_pub(*where, "-t", "m5/x", "-q", "1", "-m", "21", *(w for g in given for w in ("-D", "publish", *g)))
    assert sub.lines() == ["m5/x unit:celsius text/plain m5-answers 17 60 21"]


@needs_mosquitto
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_sessions_and_wills(broker: Broker, version: str) -> None:
    where = ["-V", version, "-p", str(broker.port)]
    root = f"ms/{version}"
    kept = ["-i", f"ms-{version}", "-c", "-q", "2", *(["-x", "300"] if version == "mqttv5" else [])]
    subprocess.run(["mosquitto_sub", *where, *kept, "-t", f"{root}/#", "-E"], check=True, timeout=WAIT_S)
    mortal = MosquittoSub(
        *where, "-t", "nothing", "--will-topic", f"{root}/will", "--will-payload", "gone", "--will-qos", "1"
    )
    for qos in ("1", "2"):
        mosquitto_pub(*where, "-t", f"{root}/{qos}", "-q", qos, "-m", "x", "--repeat", "3")
    mortal.process.send_signal(signal.SIGKILL)
    mortal.process.wait(WAIT_S)
    command = ["mosquitto_sub", *where, *kept, "-t", f"{root}/#", "-C", "7", "-W", str(WAIT_S), "-v"]
    got = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True).stdout.splitlines()
    assert got == [f"{root}/1 x"] * 3 + [f"{root}/2 x"] * 3 + [f"{root}/will gone"]


@needs_mosquitto
@pytest.mark.skipif(shutil.which("mosquitto_rr") is None, reason="mosquitto_rr is not installed")
def test_mosquitto_request_and_response(broker: Broker, make_paho: Callable[..., Paho]) -> None:
    server = make_paho("rr-server")
    server.connect()
    server.subscribe(("rr/request", 1))

    def answer() -> None:
        (request,) = server.get()
        assert request.properties is not None
        data = request.properties.CorrelationData
        server.publish(request.properties.ResponseTopic, b"answer", 1, CorrelationData=data)

    thread = threading.Thread(target=answer)
    thread.start()
    command = [
        "mosquitto_rr",
        "-V",
        "mqttv5",
        "-p",
        str(broker.port),
        "-t",
        "rr/request",
        "-e",
        "rr/response",
        "-q",
        "1",
    ]
    command += ["-m", "question", "-D", "publish", "correlation-data", "4711", "-W", str(WAIT_S)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    thread.join(WAIT_S)
    assert found.stdout == "answer\n"


# MQTT.js in a browser

SCRIPT = """
async ([url, version, name]) => {
  const options = {protocolVersion: version, clientId: name, clean: false, reconnectPeriod: 100, connectTimeout: 20000};
  if (version === 5) options.properties = {sessionExpiryInterval: 300};
  window.got = []; window.connects = []; window.closes = 0;
  const client = window.client = mqtt.connect(url, options);
  client.on("connect", answer => window.connects.push(answer.sessionPresent));
  client.on("close", () => window.closes++);
  client.on("message", (topic, payload, packet) => window.got.push([topic, payload.toString(), packet.qos, packet.retain]));
  await new Promise((done, fail) => { client.once("connect", done); client.once("error", fail); });
  const granted = await client.subscribeAsync({[`js/${version}/in/#`]: {qos: 2}});
  return granted.map(each => each.qos);
}
"""
PUBLISH = """
async version => {
  for (const qos of [0, 1, 2]) await window.client.publishAsync(`js/${version}/out/${qos}`, "from the page", {qos});
}
"""


@pytest.fixture(scope="module")
def mqtt_js(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MQTT.js as it is published, in the user's cache; skips where it cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "surecast-tests"
    script = cache / "mqtt.min.js"
    if script.exists():
        return script
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("npm")
    try:
        subprocess.run(["npm", "pack", "mqtt@5", "--silent"], cwd=folder, check=True, timeout=60, capture_output=True)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"MQTT.js cannot be fetched: {error}")
    with tarfile.open(next(folder.glob("mqtt-*.tgz"))) as archive:
        packed = archive.extractfile("package/dist/mqtt.min.js")
        assert packed is not None
        cache.mkdir(parents=True, exist_ok=True)
        script.write_bytes(packed.read())
    return script


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=chromium, headless=True, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.mark.parametrize("version", [4, 5])
def test_mqtt_js_in_a_browser(
    broker: Broker, make_paho: Callable[..., Paho], mqtt_js: Path, browser: Any, version: int
) -> None:
    other = make_paho(f"js-other-{version}")
    other.connect()
    other.subscribe((f"js/{version}/out/#", 2))
    other.publish(f"js/{version}/in/kept", "kept", 1, retain=True)
    page = browser.new_page()
    page.set_default_timeout(WAIT_S * 1000)
    page.set_content("<title>a page</title>")
    page.add_script_tag(path=mqtt_js)
    assert page.evaluate(SCRIPT, [f"ws://127.0.0.1:{broker.web_port}/mqtt", version, f"js-{version}"]) == [2]
    for qos in (0, 1, 2):
        other.publish(f"js/{version}/in/{qos}", "to the page", qos)
    page.evaluate(PUBLISH, version)
    out = [(f"js/{version}/out/{qos}", b"from the page", qos, False) for qos in (0, 1, 2)]
    assert seen(other.get(3)) == out
    page.wait_for_function("() => window.got.length === 4")
    assert page.evaluate("() => window.got") == [
        [f"js/{version}/in/kept", "kept", 1, True],
        *([f"js/{version}/in/{qos}", "to the page", qos, False] for qos in (0, 1, 2)),
    ]
    broker.kick(f"js-{version}")
    page.wait_for_function("() => window.closes > 0")
    other.publish(f"js/{version}/in/later", "after the break", 2)
    page.wait_for_function("() => window.got.length >= 5")
    assert page.evaluate("() => window.got.slice(4)") == [[f"js/{version}/in/later", "after the break", 2, False]]
    assert page.evaluate("() => window.connects") == [False, True]
    page.evaluate(PUBLISH, version)
    assert seen(other.get(3)) == out
    other.publish(f"js/{version}/in/kept", "", 1, retain=True)
    page.evaluate("() => window.client.endAsync()")
    page.close()
