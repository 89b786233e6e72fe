"""Overlays one of whose brokers is a group of replicas: real processes, real clients, leaders that are killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.overlay.conftest import Clients, Subscriber, announced, certificate, is_up, plan_for, until
from tests.broker.overlay.test_link_security import changed_copy
from tests.broker.overlay.test_overlay_processes import CHAIN, balanced, drive

from surecast.broker.event_log import read_from
from surecast.broker.overlay.local_overlay import LocalOverlay
from surecast.broker.overlay.overlay_cut import take_cut
from surecast.broker.overlay.overlay_file import OverlayFileError, load_overlay
from surecast.broker.overlay.overlay_writing import write_overlay
from surecast.errors import ConfigurationError

Start = Callable[..., tuple[LocalOverlay, Clients]]


def test_killing_the_leader_in_the_middle_of_an_overlay_loses_nothing(
    start: Start, run_here: Callable[..., Any], tmp_path: Path
) -> None:
    events = tmp_path / "events"
    overlay, clients = start(plan_for(CHAIN, "buffering"), groups={"b2": 3}, event_log={"folder": str(events)})
    before, incarnation = overlay.leader("b2"), overlay.ask("b2", "/links")["incarnation"]
    assert before is not None
    follower = next(at for at, name in enumerate(overlay.processes_of("b2")) if name != before)
    far = clients.subscribe("b3", "far", "stock/#", 2)
    inside = clients.subscribe("b2", "inside", "stock/#", 2, replica=follower)
    until(lambda: announced(overlay, "b1", "b2") == ["stock/# at QoS 2"], "demand at b1")
    publisher, second = clients.publish("b1", "p"), clients.publish("b2", "q", replica=follower)
    second.publish("stock/2", b"from the group", 2)
    drive(publisher, 4.0, [(1.0, lambda: overlay.kill(before)), (2.5, lambda: overlay.start(before))])
    publisher.finish()
    second.finish()
    wanted = publisher.acknowledged() | {b"from the group"}
    for subscriber in (far, inside):
        until(lambda subscriber=subscriber: wanted <= set(subscriber.payloads()), "all acknowledged events")
        assert subscriber.doubled("stock/2") == []
    until(lambda: overlay.leader("b2") is not None, "a leader")
    assert overlay.ask("b2", "/links")["incarnation"] == incarnation
    until(lambda: is_up(overlay, "b2", "b1") and is_up(overlay, "b2", "b3"), "links of the new leader")
    assert balanced(overlay) == []
    cut = take_cut(overlay, overlay.brokers)
    assert (cut["problems"], cut["incomplete"]) == ([], [])
    leader = overlay.leader("b2")
    assert leader is not None
    records = read_from(events / "b2" / leader.rpartition("-")[2], 0, 100_000)
    ups = {(r["neighbour"], r["reason"], r.get("events")) for r in records if r["type"] == "link-up"}
    assert ups == {("b1", "resumed", None), ("b3", "resumed", None)}, "the new leader went on with the links"
    for name in ("b1", "b3"):
        (hop,) = overlay.ask(name, "/accounts")["hops"]
        assert hop["lost"] == 0
    assert run_here(["overlay", "status", str(overlay.path)]).returncode == 0
    assert run_here(["overlay", "accounts", str(overlay.path)]).returncode == 0


def test_a_group_that_stands_still_goes_on_with_what_was_in_custody(start: Start) -> None:
    overlay, clients = start(plan_for((("b1", "b2"),), "buffering"), groups={"b2": 3})
    inside = clients.subscribe("b2", "inside", "#", 1)
    until(lambda: announced(overlay, "b1", "b2") == ["# at QoS 1"], "demand at b1")
    publisher = clients.publish("b1", "p")
    for name in overlay.processes_of("b2"):
        overlay.kill(name)
    for number in range(20):
        publisher.publish("t", b"%d" % number, 1)
    publisher.finish()  # b1 answers for them
    overlay.start()
    until(lambda: publisher.acknowledged() <= set(inside.payloads()), "what was in custody")


@pytest.mark.parametrize(
    ("groups", "words"),
    [({"b9": 3}, "there is no such broker"), ({"b2": 2}, "another odd number"), ({"b2": 1}, "another odd number")],
)
def test_groups_that_cannot_be_are_refused(groups: dict[str, int], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=words):
        write_overlay(tmp_path / "overlay.yaml", "test", plan_for(CHAIN, "none"), groups=groups)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  founding:", "  link: 127.0.0.1:7999\n  founding:", "a group has none of its own"),
        ("  founding:", "  data: there\n  founding:", "a group has none of its own"),
        ("  - id: 2\n", "  - id: 1\n", "1 stands there twice"),
        ("durability: os", "durability: memory", "must not forget their votes"),
        ("  founding:", "  http: {port: 9000}\n  founding:", "a group has none of its own"),
    ],
)
def test_mistakes_about_replicas_are_named(old: str, new: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    write_overlay(path, "test", plan_for(CHAIN, "none"), groups={"b2": 3}, options={"durability": "os"})
    text = path.read_text()
    assert old in text, text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(OverlayFileError, match=words):
        load_overlay(path)


def test_a_replica_whose_data_are_gone_does_not_start_and_the_others_go_on(start: Start) -> None:
    overlay, _ = start(plan_for((("b1", "b2"),), "buffering"), groups={"b2": 3})
    victim = next(name for name in overlay.processes_of("b2") if name != overlay.leader("b2"))
    overlay.kill(victim)
    for file in overlay.state_folder(victim).iterdir():
        file.unlink()
    overlay.start(victim)
    until(lambda: victim in overlay.ended(), "its end")
    assert overlay.ended()[victim] == 3
    assert "there are no data" in overlay.log_file(victim).read_text()
    assert is_up(overlay, "b2", "b1")


def test_a_replica_with_another_plan_is_not_let_in(tmp_path: Path) -> None:
    path, plans = tmp_path / "overlay.yaml", [plan_for(CHAIN, "buffering", epoch=epoch) for epoch in (1, 2)]
    write_overlay(path, "test", plans[0], groups={"b2": 3}, options={"durability": "os", "log": {"level": "info"}})
    other = changed_copy(path, tmp_path / "other", {"epoch: 1": "epoch: 2", plans[0].hash: plans[1].hash})
    with LocalOverlay(path) as here, LocalOverlay(other) as there:
        here.start("b2-1", "b2-2")
        there.start("b2-3")
        words = f"this group goes by epoch 1 of the plan with the hash {plans[0].hash}, not by epoch 2"
        until(lambda: words in there.log_file("b2-3").read_text(), "the refusal at the replica")
        until(lambda: here.leader("b2") is not None, "a leader of the others")
        assert there.leader("b2") is None


def test_links_of_a_group_have_certificates(certificates: Path, start: Start) -> None:
    overlay, clients = start(plan_for((("b1", "b2"),), "buffering"), groups={"b2": 3}, certificates=certificates)
    inside = clients.subscribe("b2", "inside", "#", 1)
    until(lambda: announced(overlay, "b1", "b2") == ["# at QoS 1"], "demand at b1")
    publisher = clients.publish("b1", "p")
    publisher.publish("t", b"before", 1)
    until(lambda: b"before" in inside.payloads(), "an event over the link")
    leader = overlay.leader("b2")
    assert leader is not None
    overlay.kill(leader)
    publisher.publish("t", b"after", 1)
    rest = Subscriber(clients.connect("b2", "inside", replica=1 if leader.endswith("1") else 0), "#", 1)
    until(lambda: b"after" in rest.payloads(), "an event over the link of the new leader")
    overlay.close()
    path = overlay.path
    path.write_text(path.read_text().replace(f"secret_file: {path.with_suffix('.secret').name}\n", ""))
    with pytest.raises(OverlayFileError, match="replicas trust each other by a secret"):
        load_overlay(path)


def test_who_has_no_certificate_is_no_neighbour_of_a_group(certificates: Path, start: Start) -> None:
    overlay, _ = start(plan_for((("b1", "b2"),), "none"), groups={"b2": 3}, certificates=certificates)
    overlay.kill("b1")
    certificate(certificates, "b1", "b3")
    overlay.start("b1")
    words = "the certificate is that of b3, not of b1"
    until(
        lambda: any(words in overlay.log_file(name).read_text() for name in overlay.processes_of("b2")), "the refusal"
    )
    assert not is_up(overlay, "b2", "b1")
