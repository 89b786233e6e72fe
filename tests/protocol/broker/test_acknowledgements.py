"""Every kind of acknowledgement against every state of a message (MQTT 3.1.1, section 4.8; 5.0, sections 4.3, 4.13).

The right one goes on. One for a message that is not there is out of date and does nothing. One of another kind than the
message waits for breaks the protocol: the connection ends, in 5.0 with 0x82, and the message stays for the next one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.protocol.broker.conftest import Client, MakeWorld

from surecast.protocol.mqtt import (
    V5,
    V311,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
)

STATES = ("nothing", "qos 1", "qos 1 alone", "qos 2", "qos 2 released", "qos 1 to resend", "qos 2 to resend")
ACKS: dict[str, Callable[[int], Packet | bytes]] = {
    "PUBACK": Puback,
    "PUBACK run": lambda identifier: b"\x40\x02\xff\xff" + bytes((0x40, 2, *identifier.to_bytes(2, "big"))),
    "PUBACK refused": lambda identifier: Puback(identifier, ReasonCode.UNSPECIFIED_ERROR),
    "PUBREC": Pubrec,
    "PUBREC refused": lambda identifier: Pubrec(identifier, ReasonCode.UNSPECIFIED_ERROR),
    "PUBCOMP": Pubcomp,
}
GOES_ON, DONE, IGNORED, VIOLATES, UNKNOWN = "goes on", "done", "ignored", "violates", "unknown"
_QOS_1 = {"PUBACK": DONE, "PUBACK run": DONE, "PUBACK refused": DONE}
_QOS_2 = {"PUBREC": GOES_ON, "PUBREC refused": DONE}
RIGHT: dict[str, dict[str, str]] = {
    "nothing": {**dict.fromkeys(ACKS, IGNORED), "PUBREC": UNKNOWN},
    "qos 1": _QOS_1,
    "qos 1 alone": _QOS_1,
    "qos 2": _QOS_2,
    "qos 2 released": {"PUBREC": GOES_ON, "PUBCOMP": DONE},
    "qos 1 to resend": _QOS_1,
    "qos 2 to resend": _QOS_2,
}


def bring(client: Client, publisher: Client, state: str) -> int:
    """Brings a message to a state; its identifier."""
    if state == "nothing":
        client.online()
        return 7
    qos = int(state[4])
    is_alone = state.endswith("alone")  # of a session that ends with its connection nothing but a size is kept
    if is_alone:
        client.online()
    else:
        client.lasting()
    client.subscribe("t", qos)
    publisher.publish("t", b"message", qos)
    [message] = client.take()
    assert isinstance(message, Publish)
    if state.endswith("released"):
        client.send(Pubrec(message.packet_id))
        [release] = client.take()
        assert isinstance(release, Pubrel)
    if state.endswith("resend"):
        # The client has room for one message only now: this one waits to be sent again behind the other.
        publisher.publish("t", b"second", qos)
        [message] = client.take()
        assert isinstance(message, Publish)
        client.drop()
        client.connect(False, session_expiry_s=100, receive_maximum=1)
        assert client.session.resend[0].identifier == message.packet_id
        client.take()
    return message.packet_id


@pytest.mark.parametrize(
    ("version", "state", "ack"),
    [
        (version, state, ack)
        for version in (V311, V5)
        for state in STATES
        for ack in ACKS
        # MQTT 3.1.1 has no receive maximum, and no acknowledgement that refuses.
        if version == V5 or not (state.endswith("resend") or ack.endswith("refused"))
    ],
)
def test_what_an_acknowledgement_does(make_world: MakeWorld, version: int, state: str, ack: str) -> None:
    world = make_world()
    client, publisher = world.client("sub", version), world.client("pub", version).online()
    identifier = bring(client, publisher, state)
    outcome = RIGHT[state].get(ack, VIOLATES)
    accounts = world.broker.accounts().queued
    session = client.session
    client.send(ACKS[ack](identifier))
    heard = client.take()
    if outcome == VIOLATES:
        assert client.closed
        reasons = [packet.reason for packet in heard if isinstance(packet, Disconnect)]
        assert reasons == ([ReasonCode.PROTOCOL_ERROR] if version == V5 else [])
        if session.persistent:
            assert identifier in session.inflight, "it is still owed to the client"
        assert world.broker.counters.protocol_errors == 1
        return
    assert client.ping(), outcome
    assert world.broker.accounts().queued == accounts - (outcome == DONE)
    releases = [packet.reason for packet in heard if isinstance(packet, Pubrel)]
    if outcome == UNKNOWN and version == V5:
        assert releases == [ReasonCode.PACKET_IDENTIFIER_NOT_FOUND]
    else:
        assert len(releases) == (outcome in (GOES_ON, UNKNOWN))


def test_what_comes_before_a_wrong_one_in_a_run_counts(make_world: MakeWorld, version: int) -> None:
    world = make_world()
    client, publisher = world.client("sub", version).lasting(), world.client("pub", version).online()
    client.subscribe("one", 1)
    client.subscribe("two", 2)
    for n in range(3):
        publisher.publish("one", b"%d" % n, 1)
    publisher.publish("two", b"", 2)
    publisher.publish("one", b"after", 1)
    identifiers = [packet.packet_id for packet in client.take() if isinstance(packet, Publish)]
    client.send(b"".join(bytes((0x40, 2, *each.to_bytes(2, "big"))) for each in identifiers))
    assert client.closed
    assert list(client.session.inflight) == identifiers[3:]


@pytest.mark.parametrize("identifier", [1, 2])
def test_pubrel_of_an_unknown_message_is_answered(make_world: MakeWorld, version: int, identifier: int) -> None:
    client = make_world().client("pub", version).online()
    client.publish("t", b"", 2, packet_id=1)
    client.take()
    client.send(Pubrel(identifier))
    [answer] = client.take()
    assert isinstance(answer, Pubcomp)
    known = identifier == 1 or version == V311
    assert answer.reason is (ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
