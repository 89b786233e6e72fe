"""Who is let in at the link port: brokers of the overlay with the same plan, and nobody else."""

from __future__ import annotations

import random
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.overlay.conftest import Clients, announced, authority, certificate, is_up, plan_for, until
from tests.patience import PATIENCE_S

from surecast.broker.overlay.local_overlay import LocalOverlay
from surecast.broker.overlay.overlay_writing import write_overlay
from surecast.broker.replica.frames import frame

Start = Callable[..., tuple[LocalOverlay, Clients]]
PAIR = (("b1", "b2"),)
CHAIN = (("b1", "b2"), ("b2", "b3"))


def reason(overlay: LocalOverlay, broker: str, neighbour: str) -> str:
    links = overlay.ask(broker, "/links")["links"]
    return next(str(link["reason"]) for link in links if link["neighbour"] == neighbour)


def changed_copy(path: Path, folder: Path, changes: dict[str, str], secret: str = "") -> Path:
    """Returns a copy of an overlay's file, and of its secret, in another folder, with some of its text changed."""
    folder.mkdir()
    text = path.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    copy = folder / path.name
    copy.write_text(text)
    target = folder / path.with_suffix(".secret").name
    shutil.copy(path.with_suffix(".secret"), target)
    if secret:
        target.write_text(secret)
    return copy


STAR = (("b1", "b2"), ("b1", "b3"))


def plan_hash(**options: Any) -> str:
    return plan_for(CHAIN, "none", **options).hash


@pytest.mark.parametrize(
    ("changes", "secret", "message"),
    [
        ({}, "another secret of many words", "the secret is not that of this overlay"),
        ({"name: test": "name: other"}, "", "this is the overlay other, not test"),
        (
            {"epoch: 1": "epoch: 2", plan_hash(): plan_hash(epoch=2)},
            "",
            "the plans differ: epoch 1 at b1, 2 at b2; give all brokers the same file",
        ),
        (
            {"algorithm: covering": "algorithm: simple", plan_hash(): plan_hash(algorithm="simple")},
            "",
            f"the plans of epoch 1 differ: {plan_hash()} at b1, {plan_hash(algorithm='simple')} at b2",
        ),
    ],
)
def test_a_broker_that_does_not_belong_is_refused_with_the_reason_at_both_ends(
    changes: dict[str, str], secret: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "overlay.yaml"
    write_overlay(path, "test", plan_for(CHAIN, "none"), options={"durability": "os"})
    other = changed_copy(path, tmp_path / "other", changes, secret)
    with LocalOverlay(path) as here, LocalOverlay(other) as there:
        there.start("b2")
        there.wait_ready(PATIENCE_S)
        here.start("b1")
        here.wait_ready(PATIENCE_S)
        until(lambda: reason(here, "b1", "b2") == message or message in reason(here, "b1", "b2"), "the refusal at b1")
        assert message in here.log_file("b1").read_text()
        turned_away = there.ask("b2", "/links")["turned_away"]
        assert any(message in why for why in turned_away)
        assert message in there.log_file("b2").read_text()


def test_a_broker_at_the_address_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    overlay = write_overlay(path, "test", plan_for(CHAIN, "none"), options={"durability": "os"})
    swapped = {f"link: {overlay.broker('b2').link}": f"link: {overlay.broker('b3').link}"}
    wrong = changed_copy(path, tmp_path / "wrong", swapped | {
        f"name: b3\n  link: {overlay.broker('b3').link}": f"name: b3\n  link: {overlay.broker('b2').link}"
    })  # fmt: skip
    with LocalOverlay(path) as right, LocalOverlay(wrong) as other:
        right.start("b3")
        right.wait_ready(PATIENCE_S)
        other.start("b1")
        other.wait_ready(PATIENCE_S)
        until(lambda: "this is broker b3, not b2" in reason(other, "b1", "b2"), "the refusal at b1")


GARBAGE = [
    b"",
    b"\0" * 64,
    b"GET / HTTP/1.1\r\nHost: b2\r\n\r\n",
    b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
    frame(b"H{}"),
    frame(b"H" + b"[" * 4_000),
    frame(b'H{"version": 1, "overlay": 7}'),
    frame(b"P" + b"x" * 32),
    b"\xff\xff\xff\xff" * 16,
]


def test_garbage_at_the_link_port_harms_nobody(start: Start) -> None:
    overlay, clients = start(plan_for(PAIR, "bypass-buffering"))
    subscriber = clients.subscribe("b2", "s", "#", 1)
    until(lambda: announced(overlay, "b1", "b2") == ["# at QoS 1"], "demand at b1")
    publisher = clients.publish("b1", "p")
    address = overlay.file.addresses("b2")[0]
    draw = random.Random(3)
    idle = [socket.create_connection(address, 5.0) for _ in range(300)]  # some beyond what is let in
    for number, garbage in enumerate([*GARBAGE, *(draw.randbytes(draw.randrange(1, 9_000)) for _ in range(60))]):
        with socket.create_connection(address, 5.0) as sock:
            for at in range(0, len(garbage), 1_000):
                try:
                    sock.sendall(garbage[at : at + 1_000])
                except OSError:
                    break  # it was thrown out
        publisher.publish("a", b"%d" % number, 1)
    publisher.finish()
    until(lambda: len(set(subscriber.payloads())) == len(publisher.sent), "all events")
    for sock in idle:
        sock.close()
    assert is_up(overlay, "b1", "b2")
    assert overlay.ask("b1", "/links")["links"][0]["ups"] == 1, "the link never broke"
    assert overlay.ended() == {}


def test_links_are_tls_with_the_names_of_the_plan(certificates: Path, start: Start) -> None:
    overlay, clients = start(plan_for(CHAIN, "buffering"), certificates=certificates)
    subscriber = clients.subscribe("b3", "s", "#", 1)
    until(lambda: announced(overlay, "b1", "b2") == ["# at QoS 1"], "demand at b1")
    publisher = clients.publish("b1", "p")
    for number in range(100):
        publisher.publish("a", b"%d" % number * 500, 1)
    publisher.finish()
    until(lambda: len(subscriber.got) == 100, "all events")
    for name in overlay.names:  # renewed while everything runs: nothing is lost, and new connections use it
        certificate(certificates, name, name)
        overlay.processes[name].send_signal(signal.SIGHUP)
    until(lambda: all("reloaded" in overlay.log_file(name).read_text() for name in overlay.names), "reload")
    assert overlay.ask("b2", "/links")["links"][0]["ups"] == 1
    overlay.kill("b2")
    overlay.start("b2")
    overlay.wait_ready(PATIENCE_S)
    publisher.publish("a", b"after", 1)
    until(lambda: b"after" in subscriber.payloads(), "an event after the reload")


def test_a_certificate_that_is_damaged_is_not_taken_at_a_reload(certificates: Path, start: Start) -> None:
    overlay, _ = start(plan_for(PAIR, "none"), certificates=certificates)
    (certificates / "b2.pem").write_text("nothing")
    overlay.processes["b2"].send_signal(signal.SIGHUP)
    until(lambda: "reload failed, all stays as it was" in overlay.log_file("b2").read_text(), "the refusal")
    assert is_up(overlay, "b1", "b2")


@pytest.mark.parametrize(
    ("file", "name", "ca", "message"),
    [
        ("b1", "b3", "ca", "the certificate is that of b3, not of b1"),
        ("b2", "b3", "ca", "the certificate there is that of b3, not of b2"),
        ("b2", "b2", "stranger", "certificate verify failed"),
    ],
)
def test_a_wrong_certificate_is_refused(
    file: str, name: str, ca: str, message: str, certificates: Path, tmp_path: Path
) -> None:
    authority(certificates, "stranger")
    certificate(certificates, file, name, ca)
    path = tmp_path / "overlay.yaml"
    write_overlay(path, "test", plan_for(CHAIN, "none"), options={"durability": "os"}, certificates=certificates)
    with LocalOverlay(path) as overlay:
        overlay.start("b1", "b2")
        until(lambda: not overlay.ended() and message in _reason(overlay), "the refusal", PATIENCE_S)


def _reason(overlay: LocalOverlay) -> str:
    try:
        return reason(overlay, "b1", "b2")
    except Exception:  # it does not answer yet
        return ""


def test_brokers_without_their_certificates_do_not_start(certificates: Path, tmp_path: Path) -> None:
    (certificates / "b2.key").unlink()
    path = tmp_path / "overlay.yaml"
    write_overlay(path, "test", plan_for(PAIR, "none"), certificates=certificates)
    with LocalOverlay(path) as overlay:
        overlay.start("b2")
        until(overlay.ended, "its end")
        assert overlay.ended() == {"b2": 1}
        assert f"{certificates / 'b2.key'} is not there, or cannot be read" in overlay.last_words("b2")
