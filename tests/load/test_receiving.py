"""Deliveries cut anywhere, of any size, are taken one by one."""

from __future__ import annotations

import itertools
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.load import BrokerAccess, LoadPlan
from surecast.load.publication_encoder import PublicationEncoder
from surecast.load.receiving import ReceivedShare, _Subscriber
from surecast.protocol.mqtt import V5, V311, PacketDecoder, Pingresp, Puback, encode


class Connection:
    """The end of a pair of sockets, as a subscriber's connection."""

    def __init__(self, access: BrokerAccess, end: socket.socket):
        self.name, self.access, self.socket = "s0", access, end

    def ended(self, data: bytes = b"") -> Exception:
        return ConnectionError(data)


class Loop:
    def add(self, client: object) -> None:
        """Takes no part: the test reads."""

    def watch_room(self, client: object, wanted: bool) -> None:
        raise AssertionError("there is room")


class Run:
    def __init__(self, plan: LoadPlan):
        self.plan, self.share, self.dues_ns = plan, ReceivedShare(), list[int]()

    def note(self, dues_ns: tuple[int, ...], late_us: tuple[int, ...], size: int) -> None:
        assert len(dues_ns) == len(late_us)
        self.dues_ns += dues_ns


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 3_000), max_size=30), st.booleans(), st.integers(1, 40))
@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1])
def test_every_delivery_is_taken_once_and_acknowledged(
    version: int, qos: int, cuts: list[int], varying: bool, count: int
) -> None:
    access = BrokerAccess("localhost", 1, version)
    plan = LoadPlan(access, qos=qos, size_max_bytes=300 if varying else 0)
    encoder = PublicationEncoder(plan, 5, 0)
    data = b"".join(encoder.encode(number + 1 if qos else 0, number, number + 100, 0) for number in range(count))
    data += encode(Pingresp(), version) + encoder.encode(count + 1 if qos else 0, count, count + 100, 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.settimeout(5.0)
        run = Run(plan)
        subscriber = _Subscriber(Loop(), Connection(access, ours), run, 0)  # type: ignore[arg-type]
        buffer = bytearray(plan.buffer_bytes)
        places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
        for begin, end in itertools.pairwise(places):
            theirs.sendall(data[begin:end])
            subscriber.handle(buffer, memoryview(buffer))
        assert run.dues_ns == [number + 100 for number in range(count + 1)]
        assert (subscriber.check.distinct, subscriber.check.disordered, subscriber.check.duplicates) == (
            count + 1,
            0,
            0,
        )
        if qos:
            answers = PacketDecoder(version=version, side="server").feed(theirs.recv(1 << 16))
            assert answers == [Puback(number + 1) for number in range(count + 1)]
