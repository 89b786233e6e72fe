"""Overlays of real brokers and real clients: what is delivered, and what brokers that die or freeze cost."""

from __future__ import annotations

import json
import random
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.broker.overlay.conftest import Clients, Subscriber, announced, is_up, plan_for, until
from tests.patience import PATIENCE_S

from surecast.broker.overlay.local_overlay import LocalOverlay
from surecast.broker.overlay.overlay_cut import take_cut
from surecast.broker.replica.addresses import Address

Start = Callable[..., tuple[LocalOverlay, Clients]]

CHAIN = (("b1", "b2"), ("b2", "b3"))
STAR = (("hub", "b1"), ("hub", "b2"), ("b3", "hub"))
DIAMOND = (("b1", "b2"), ("b1", "b3"), ("b2", "b4"), ("b3", "b4"))
OVER_B2 = (("b1", "b2"), ("b2", "b4"), ("b1", "b3"))
SCHEMES = ("none", "buffering", "bypass", "bypass-buffering")


def balanced(overlay: LocalOverlay) -> list[str]:
    """Returns what does not add up at the brokers that run."""
    return [text for answer in overlay.ask_all("/accounts").values() for text in answer.get("problems", [])]


@pytest.mark.parametrize("scheme", ["none", "bypass-buffering"])
def test_a_chain_delivers_each_message_once_in_order_at_each_qos(scheme: str, start: Start) -> None:
    overlay, clients = start(plan_for(CHAIN, scheme))
    random_lengths = random.Random(7)
    subscribers = {qos: clients.subscribe("b3", f"s{qos}", "stock/#", qos) for qos in (0, 1, 2)}
    until(lambda: announced(overlay, "b1", "b2") == ["stock/# at QoS 2"], "demand at b1")
    publisher = clients.publish("b1", "p")
    payloads: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for number in range(300):
        qos = number % 3
        payload = b"%06d" % number + random_lengths.randbytes(random_lengths.choice([0, 1, 100, 3_000, 20_000]))
        payloads[qos].append(payload)
        publisher.publish(f"stock/{qos}", payload, qos)
    publisher.finish()
    for granted, subscriber in subscribers.items():
        until(lambda got=subscriber.got: len(got) >= 300, f"subscriber at QoS {granted}")
        for qos, wanted in payloads.items():
            assert subscriber.payloads(f"stock/{qos}") == wanted
            assert {got for topic, _, got in subscriber.got if topic == f"stock/{qos}"} == {min(qos, granted)}
    assert overlay.ask("b2", "/accounts")["received"] == 300
    assert balanced(overlay) == []


def test_a_tree_delivers_to_all_branches_that_want_it_and_to_no_other(start: Start) -> None:
    overlay, clients = start(plan_for(STAR, "buffering"))
    wants = {"b1": "news/#", "b2": "news/+/sport", "b3": "stock/#"}
    subscribers = {broker: clients.subscribe(broker, f"s-{broker}", topic, 1) for broker, topic in wants.items()}
    at_hub = clients.subscribe("hub", "s-hub", "#", 1)
    until(lambda: all(announced(overlay, "hub", broker) for broker in wants), "demand at the hub")
    until(lambda: announced(overlay, "b3", "hub") == ["# at QoS 1"], "demand at b3")
    publisher = clients.publish("b3", "p")
    for topic in ("news/eu/sport", "news/eu/arts", "stock/acme", "other"):
        publisher.publish(topic, topic.encode(), 1)
    publisher.finish()
    until(lambda: len(at_hub.got) == 4, "all events at the hub")
    until(lambda: len(subscribers["b1"].got) == 2, "events at b1")
    until(lambda: len(subscribers["b2"].got) == 1, "events at b2")
    assert subscribers["b3"].payloads() == [b"stock/acme"]
    assert overlay.ask("b2", "/accounts")["received"] == 1, "b2 is sent what it wants alone"


def drive(publisher: Any, seconds: float, faults: list[tuple[float, Callable[[], None]]]) -> None:
    """Publishes at QoS 1 and 2 in turn, some 200 a second, and lets things fail at their times."""
    begun, number, left = time.monotonic(), 0, sorted(faults, key=lambda fault: fault[0])
    while (elapsed_s := time.monotonic() - begun) < seconds:
        if left and elapsed_s >= left[0][0]:
            left.pop(0)[1]()
        qos = 1 + number % 2
        publisher.publish(f"stock/{qos}", b"%d" % number, qos)
        number += 1
        time.sleep(0.005)
    for _, fault in left:
        fault()


@pytest.mark.parametrize(
    ("links", "scheme", "fault"),
    [
        (CHAIN, "buffering", "killed"),
        (DIAMOND, "bypass-buffering", "frozen"),
        pytest.param(CHAIN, "buffering", "frozen", marks=pytest.mark.long),
        pytest.param(DIAMOND, "bypass-buffering", "killed", marks=pytest.mark.long),
    ],
)
def test_nothing_acknowledged_is_lost_when_the_broker_in_the_middle_fails(
    fault: str, links: tuple[tuple[str, str], ...], scheme: str, start: Start
) -> None:
    overlay, clients = start(plan_for(links, scheme, OVER_B2 if links is DIAMOND else ()))
    last = overlay.names[-1]
    subscriber = clients.subscribe(last, "s", "stock/#", 2)
    bystander = clients.subscribe("b1", "local", "stock/#", 1)
    until(lambda: announced(overlay, "b1", "b2") == ["stock/# at QoS 2"], "demand at b1")
    publisher = clients.publish("b1", "p")
    middle = overlay.processes["b2"]
    if fault == "killed":
        faults = [(1.0, lambda: overlay.kill("b2")), (3.0, lambda: overlay.start("b2"))]
    else:
        faults = [(1.0, lambda: middle.send_signal(signal.SIGSTOP)), (3.0, lambda: middle.send_signal(signal.SIGCONT))]
    counts: list[tuple[int, int]] = []  # of both subscribers: a second after the fault, and before the repair

    def count() -> None:
        counts.append((len(subscriber.got), len(bystander.got)))

    faults[1:1] = [(2.0, count), (2.9, count)]
    drive(publisher, 4.0, faults)
    publisher.finish()
    wanted = publisher.acknowledged()
    until(lambda: wanted <= set(subscriber.payloads()), "all acknowledged events")
    assert subscriber.doubled("stock/2") == []
    until(lambda: wanted <= set(bystander.payloads()), "all events at the client beside the publisher")
    (far, near), (far_later, near_later) = counts  # differences, as a busy machine publishes fewer in a second
    assert near_later > near + 10, "a client of the publisher's broker is served while the neighbour is down"
    if scheme == "bypass-buffering":
        assert far_later > far + 10, "events go around the broker that is down"
    assert balanced(overlay) == []


def test_accounts_of_all_brokers_add_up_while_messages_travel_and_a_broker_that_is_gone_is_named(
    start: Start, run_here: Callable[..., Any]
) -> None:
    overlay, clients = start(plan_for(CHAIN, "buffering"))
    clients.subscribe("b3", "s", "stock/#", 2)
    until(lambda: announced(overlay, "b1", "b2") == ["stock/# at QoS 2"], "demand at b1")
    publisher = clients.publish("b1", "p")
    cuts: list[dict[str, Any]] = []
    drive(publisher, 2.0, [(moment / 5, lambda: cuts.append(take_cut(overlay, overlay.names))) for moment in range(9)])
    publisher.finish()
    assert [cut["problems"] for cut in cuts] == [[]] * 9
    assert [cut["incomplete"] for cut in cuts] == [[]] * 9
    assert all(len([row for row in cut["links"] if row["received"] is not None]) == 4 for cut in cuts)
    assert max(row["sent"] for row in cuts[-1]["links"]) > 10, "events travelled while the cuts were taken"
    overlay.kill("b3")
    until(lambda: not is_up(overlay, "b2", "b3"), "b2 notices")
    done = run_here(["overlay", "accounts", str(overlay.path)])
    assert done.returncode == 0
    assert done.stdout.startswith("the accounts of all brokers that answer balance; no answer: b3")
    assert "not compared, b2 to b3: b3 has no report" in done.stdout


def test_what_waits_on_disk_survives_the_death_of_both_brokers(start: Start) -> None:
    overlay, clients = start(plan_for(CHAIN, "buffering"))
    subscriber = clients.subscribe("b3", "s", "stock/#", 1)
    until(lambda: announced(overlay, "b1", "b2") == ["stock/# at QoS 1"], "demand at b1")
    overlay.kill("b2")
    until(lambda: not is_up(overlay, "b1", "b2"), "b1 notices")
    publisher = clients.publish("b1", "p")
    for number in range(50):
        publisher.publish("stock/acme", b"%d" % number, 1)
    publisher.finish()
    before = overlay.ask("b1", "/links")["incarnation"]
    overlay.kill("b1")
    overlay.start("b1", "b2")
    overlay.wait_ready(PATIENCE_S)
    assert overlay.ask("b1", "/links")["incarnation"] > before
    until(lambda: len(set(subscriber.payloads())) == 50, "the events that waited")


def test_brokers_of_one_machine_use_unix_sockets_and_tcp_where_the_name_is_taken(start: Start) -> None:
    """Somebody has the name of the socket of b3's address before b3 starts."""
    with ExitStack() as stack:

        def take(address: Address) -> None:
            taken = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            taken.bind(f"\0surecast/{address}")

        overlay, clients = start(plan_for(CHAIN, "buffering"), before=lambda file: take(file.addresses("b3")[0]))
        addresses = {
            (broker, link["neighbour"]): link["address"]
            for broker in ("b1", "b2", "b3")
            for link in overlay.ask(broker, "/links")["links"]
        }
        assert addresses["b1", "b2"] == addresses["b2", "b1"] == "Unix socket"
        assert addresses["b2", "b3"] == str(overlay.file.addresses("b3")[0])
        assert addresses["b3", "b2"].startswith("127.0.0.1:")
        subscriber = clients.subscribe("b3", "s", "t", 1)
        until(lambda: announced(overlay, "b1", "b2"), "the demand at b1")
        clients.publish("b1", "p").publish("t", b"x", 1)
        until(lambda: subscriber.payloads() == [b"x"], "the message")


def test_without_buffering_a_cut_that_ends_in_time_loses_nothing(start: Start) -> None:
    overlay, clients = start(plan_for(CHAIN, "none"))
    subscriber = clients.subscribe("b3", "s", "stock/#", 1)
    until(lambda: announced(overlay, "b1", "b2") == ["stock/# at QoS 1"], "demand at b1")
    publisher = clients.publish("b1", "p")

    def gate(cut: bool) -> None:
        for broker, neighbour in (("b2", "b3"), ("b3", "b2")):
            overlay.ask(broker, "/gate", {"neighbour": neighbour, "cut": str(cut).lower()}, "POST")

    drive(publisher, 3.0, [(0.5, lambda: gate(True)), (2.0, lambda: gate(False))])
    publisher.finish()
    links = {link["neighbour"]: link for link in overlay.ask("b2", "/links")["links"]}
    assert links["b3"]["ups"] >= 2 or not links["b3"]["is_up"], "the cut was noticed"
    until(lambda: len(set(subscriber.payloads())) == len(publisher.sent), "all events")
    assert subscriber.doubled() == [], "a link that resumes repeats nothing"
    assert subscriber.payloads("stock/1") == sorted(subscriber.payloads("stock/1"), key=int)
    assert balanced(overlay) == []


def test_a_slow_and_lossy_link_keeps_order(start: Start) -> None:
    overlay, clients = start(plan_for(CHAIN, "bypass"))
    subscriber = clients.subscribe("b3", "s", "stock/#", 2)
    until(lambda: announced(overlay, "b1", "b2") == ["stock/# at QoS 2"], "demand at b1")
    overlay.ask("b2", "/gate", {"neighbour": "b3", "delay_s": 0.05, "loss": 0.02}, "POST")
    publisher = clients.publish("b1", "p")
    drive(publisher, 2.0, [])
    publisher.finish()
    until(lambda: len(subscriber.got) >= len(publisher.sent), "all events")
    for qos, topic in ((1, "stock/1"), (2, "stock/2")):  # a client hands out QoS 2 later than QoS 1
        assert subscriber.payloads(topic) == [b"%d" % number for number in range(qos - 1, len(publisher.sent), 2)]


def test_a_neighbour_that_takes_nothing_stops_no_local_client(start: Start) -> None:
    """Beyond what may wait for a frozen neighbour, publishers to it wait; those to local subscribers do not."""
    plan = plan_for(CHAIN, "buffering")
    overlay, clients = start(plan, custody=200, suspect="60s")
    clients.subscribe("b3", "far", "far/#", 1)
    near = clients.subscribe("b1", "near", "near/#", 1)
    until(lambda: announced(overlay, "b1", "b2") == ["far/# at QoS 1"], "demand at b1")
    overlay.processes["b2"].send_signal(signal.SIGSTOP)
    try:
        flood = clients.publish("b1", "flood")
        for number in range(2_000):
            flood.publish("far/a", b"%d" % number, 1)
        time.sleep(1.0)
        local = clients.publish("b1", "local")
        for number in range(100):
            local.publish("near/a", b"%d" % number, 1)
        until(lambda: len(near.got) == 100, "events of the local client")
    finally:
        overlay.processes["b2"].send_signal(signal.SIGCONT)
    flood.finish()


def test_the_event_log_says_when_links_came_and_went_and_what_was_lost(start: Start, tmp_path: Path) -> None:
    overlay, clients = start(plan_for(CHAIN, "none"), event_log={"folder": str(tmp_path / "events")})
    clients.subscribe("b3", "s", "#", 1)
    until(lambda: announced(overlay, "b1", "b2") == ["# at QoS 1"], "demand at b1")

    def links() -> list[tuple[Any, ...]]:
        lines = [
            json.loads(line)
            for path in sorted((tmp_path / "events" / "b1").glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        fields = ("type", "neighbour", "reason", "events")
        return [tuple(map(line.get, fields)) for line in lines if line["type"].startswith("link-")]

    assert links() == [("link-up", "b2", "new", None)]
    overlay.processes["b2"].send_signal(signal.SIGSTOP)
    publisher = clients.publish("b1", "p")
    for number in range(5):
        publisher.publish("t", b"%d" % number, 1)
    publisher.finish()
    until(lambda: len(links()) == 2, "b2 is suspected")
    overlay.kill("b2")  # it has read nothing of them
    overlay.start("b2")
    until(lambda: len(links()) == 3, "the link is up again")
    assert links()[1:] == [("link-down", "b2", "suspected", None), ("link-up", "b2", "new", 5)]
    overlay.ask("b1", "/gate", {"neighbour": "b2", "cut": "true"}, "POST")
    until(lambda: len(links()) == 4, "the link is cut")
    overlay.ask("b1", "/gate", {"neighbour": "b2"}, "POST")
    until(lambda: len(links()) == 5, "the link is up again")
    assert [kind for kind, *_ in links()[3:]] == ["link-down", "link-up"]
    assert links()[4][2:] == ("resumed", None)


@pytest.mark.parametrize("scheme", ["none", "bypass-buffering"])
def test_a_subscriber_anywhere_sees_the_latest_retained_message_whatever_failed(scheme: str, start: Start) -> None:
    overlay, clients = start(plan_for(CHAIN, scheme))
    watching = clients.subscribe("b3", "watching", "lamp/#", 1)
    publisher = clients.publish("b1", "p")

    def retain(topic: str, payload: bytes) -> None:
        publisher.client.publish(topic, payload, 1, retain=True).wait_for_publish(PATIENCE_S)

    def seen_at(broker: str) -> dict[str, bytes]:
        new = Subscriber(clients.connect(broker, f"new-{time.monotonic_ns()}", clean=True), "lamp/#", 1)
        time.sleep(0.2)
        return {topic: payload for topic, payload, _ in new.got}

    for number in range(20):
        retain(f"lamp/{number}", b"on")
    wanted = {f"lamp/{number}": b"on" for number in range(20)}
    until(lambda: all(seen_at(broker) == wanted for broker in ("b2", "b3")), "the lamps everywhere")
    until(lambda: len(watching.got) == 20, "the lamps at who watches")
    overlay.kill("b2")
    until(lambda: not is_up(overlay, "b1", "b2"), "b1 notices it")
    retain("lamp/3", b"off")
    retain("lamp/4", b"")
    clients.connect("b3", "q").publish("lamp/5", b"off", 1, retain=True).wait_for_publish(PATIENCE_S)
    overlay.start("b2")
    wanted |= {"lamp/3": b"off", "lamp/5": b"off"}
    del wanted["lamp/4"]
    until(lambda: all(seen_at(broker) == wanted for broker in ("b1", "b2", "b3")), "the same at all brokers")
    until(lambda: len(watching.got) == 23, "the changes at who watches")
    assert sorted(watching.got[20:])[0] == ("lamp/3", b"off", 1)
    time.sleep(0.5)
    assert len(watching.got) == 23


def test_each_message_of_a_shared_subscription_goes_to_one_member_whichever_broker_fails(start: Start) -> None:
    overlay, clients = start(plan_for(CHAIN, "buffering"))
    members = {home: clients.subscribe(home, f"m-{home}", "$share/workers/jobs/#", 2) for home in ("b1", "b3")}
    until(lambda: overlay.ask("b2", "/routes")["members"] == 2, "both members at b2")
    until(lambda: overlay.ask("b1", "/routes")["members"] == 2, "both members at b1")
    publishers = [clients.publish("b1", "p"), clients.publish("b2", "q")]

    def publish(begin: int, stop: int) -> None:
        for number in range(begin, stop):
            publishers[number % 2].publish(f"jobs/{number % 5}", b"%d" % number, 2)

    def served() -> list[bytes]:
        return sorted((payload for member in members.values() for payload in member.payloads()), key=int)

    publish(0, 200)
    until(lambda: len(served()) == 200, "the jobs at both members")
    assert min(len(member.got) for member in members.values()) > 50
    overlay.kill("b3")
    until(lambda: not is_up(overlay, "b2", "b3"), "b2 notices it")
    publish(200, 300)
    for publisher in publishers:
        publisher.finish()
    until(lambda: len(served()) == 300, "the jobs at the member that is left")
    overlay.start("b3")
    until(lambda: is_up(overlay, "b2", "b3"), "b3 is back")
    publish(300, 400)
    until(lambda: len(served()) == 400, "the jobs at both members")
    assert served() == [b"%d" % number for number in range(400)]
    assert balanced(overlay) == []


def test_what_a_member_that_leaves_has_not_acknowledged_goes_to_a_member_at_another_broker(start: Start) -> None:
    overlay, clients = start(plan_for(CHAIN, "none"))
    leaving = clients.connect("b1", "leaving", clean=True)
    leaving.manual_ack_set(True)
    got = Subscriber(leaving, "$share/workers/jobs", 1)
    until(lambda: overlay.ask("b3", "/routes")["members"] == 1, "the member at b3")
    publisher = clients.publish("b3", "p")
    for number in range(20):
        publisher.publish("jobs", b"%d" % number, 1)
    until(lambda: len(got.got) == 20, "the jobs at the member that leaves")
    staying = clients.subscribe("b2", "staying", "$share/workers/jobs", 1)
    until(lambda: overlay.ask("b1", "/routes")["members"] == 2, "the other member at b1")
    leaving.disconnect()
    until(lambda: len(staying.got) == 20, "the jobs at the member that stays")
    assert staying.payloads() == [b"%d" % number for number in range(20)]
    assert overlay.ask("b1", "/accounts")["unclaimed"] == 0


def test_the_will_of_a_client_whose_broker_is_killed_reaches_subscribers_elsewhere(start: Start) -> None:
    overlay, clients = start(plan_for(CHAIN, "none"))
    watch = clients.subscribe("b3", "watch", "gone/#", 1)
    until(lambda: announced(overlay, "b1", "b2") == ["gone/# at QoS 1"], "demand at b1")
    clients.connect("b1", "ann", clean=True, will="gone/ann")
    overlay.kill("b1")
    until(lambda: not is_up(overlay, "b2", "b1"), "b2 notices it")
    assert watch.got == []
    overlay.start("b1")
    until(lambda: watch.got, "the will")
    time.sleep(0.5)
    assert watch.payloads() == [b"gone"]


def test_a_client_of_mqtt_5_is_sent_to_the_broker_of_its_session(start: Start) -> None:
    overlay, _ = start(plan_for(CHAIN, "none"), sessions="send-home")

    def connect(broker: str) -> tuple[str, str | None, bool]:
        """Returns the reason of the CONNACK, the server reference, and whether there was a session."""
        answers: list[tuple[str, str | None, bool]] = []
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id="ann", protocol=paho.MQTTv5)

        def answered(_client: Any, _data: Any, flags: Any, reason: Any, properties: Any) -> None:
            answers.append((str(reason), getattr(properties, "ServerReference", None), flags.session_present))

        client.on_connect = answered
        wanted = Properties(PacketTypes.CONNECT)
        wanted.SessionExpiryInterval = 1_000
        host, _, port = overlay.file.mqtt_address(broker).rpartition(":")
        client.connect(host, int(port), clean_start=False, properties=wanted)
        client.loop_start()
        until(lambda: answers, f"an answer of {broker}")
        client.disconnect()
        client.loop_stop()
        return answers[0]

    assert connect("b1") == ("Success", None, False)
    until(lambda: overlay.ask("b3", "/routes")["homes"] == 1, "the session at b3")
    assert connect("b3") == ("Use another server", overlay.file.mqtt_address("b1"), False)
    assert connect("b1") == ("Success", None, True)
    assert connect("b3") == ("Success", None, False), "it comes again within a minute"
