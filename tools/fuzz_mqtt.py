"""Throws damaged MQTT traffic at the decoder for as long as it is told to.

    python tools/fuzz_mqtt.py --minutes 10 [--seed 1]
    python tools/fuzz_mqtt.py --case 1:4711        # one case again
    python tools/fuzz_mqtt.py --live --minutes 10  # at a broker over sockets
    python tools/fuzz_mqtt.py --cost --minutes 10  # what input costs, not what it means

The invariant: any bytes, in any chunking, either parse or raise the protocol error, and chunking does not change the
result. Besides, the short cut for PUBLISH reads what the plain way reads, what was read can be written and read again,
and no more bytes are held than the limit allows. A failure prints its case, which is all it depends on, and its input.

The cost of input must grow as its length: packets in a random pattern that is repeated four times as often may cost
four times as much, with some allowance, and not sixteen times. Executed lines are counted, which is the same on every
machine; what the interpreter does inside a line is seen by the processor time, with a wide bound and several tries.

A live broker must answer nothing but MQTT, close what is wrong, and serve a well-behaved client all the while.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from surecast.broker.free_ports import free_port
from surecast.client import Client, ClientError
from surecast.protocol.mqtt import (
    ALLOWED_REASONS,
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    PacketError,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Side,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)
from surecast.protocol.mqtt.properties import PROPERTIES, WILL, ValueType

LIMIT = 600
LINES_MAX = 5.0
SECONDS_MAX = 8.0
TEXTS = ["", "a", "topic", "é𪛔", "\ufeff", "x" * 130]
TOPICS = ["a", "a/b", "/", "house/hall/light", "$SYS/x", "é/𪛔", "t" * 140]
FILTERS = [*TOPICS, "#", "+", "a/+/#", "$share/g/a/#"]


@dataclass(frozen=True, slots=True)
class Case:
    """One input: a stream of bytes, and how it is cut."""

    version: int | None
    side: Side
    data: bytes
    chunks: tuple[bytes, ...]


class Maker:
    """Makes packets from a generator of random numbers."""

    def __init__(self, rng: random.Random, version: int, side: Side):
        self.rng, self.version, self.side = rng, version, side

    def properties(self, place: int) -> Properties:
        rng = self.rng
        if self.version == V311 or rng.random() < 0.3:
            return Properties()
        values: dict[str, object] = {}
        for line in PROPERTIES.values():
            if place in line.carriers and rng.random() < 0.3:
                values[line.name] = self.value(line.name, line.kind)
        return Properties(**values)  # type: ignore[arg-type]

    def value(self, name: str, kind: ValueType) -> object:
        rng = self.rng
        if kind is ValueType.PAIR:
            return tuple((rng.choice(TEXTS), rng.choice(TEXTS)) for _ in range(rng.randint(1, 3)))
        if kind is ValueType.VARIABLE:
            return (rng.choice([1, 127, 128, 268_435_455]),)
        if kind is ValueType.TEXT:
            return rng.choice(TOPICS if name == "response_topic" else TEXTS)
        if kind is ValueType.BINARY:
            return rng.randbytes(rng.randint(0, 5))
        if kind is ValueType.FLAG:
            return rng.random() < 0.5
        return rng.randint(0, 1) if kind is ValueType.BYTE else rng.randint(1, 65_535)

    def reason(self, name: str) -> ReasonCode:
        return self.rng.choice(list(ALLOWED_REASONS[name].values()))

    def connect(self) -> Connect:
        rng = self.rng
        will = Will(rng.choice(TOPICS), rng.randbytes(3), rng.randrange(3), rng.random() < 0.5, self.properties(WILL))
        user = rng.choice([None, "user"])
        password = b"secret" if user and rng.random() < 0.5 else None
        given = self.properties(PacketType.CONNECT)
        return Connect(
            rng.choice(TEXTS), rng.random() < 0.5, 60, user, password, rng.choice([None, will]), given, self.version
        )

    def publish(self) -> Publish:
        rng = self.rng
        qos = rng.randrange(3)
        given = self.properties(PacketType.PUBLISH) if rng.random() < 0.4 else Properties()
        payload = rng.randbytes(rng.choice([0, 1, 20, 125, 200]))
        packet_id, dup = (rng.randint(1, 65_535), rng.random() < 0.5) if qos else (0, False)
        return Publish(rng.choice(TOPICS), payload, qos, rng.random() < 0.5, dup, packet_id, given)

    def packet(self) -> Packet:
        rng, packet_id = self.rng, self.rng.randint(1, 65_535)
        if rng.random() < 0.5:
            return self.publish()
        kinds: list[type[Puback | Pubrec | Pubrel | Pubcomp]] = [Puback, Pubrec, Pubrel, Pubcomp]
        kind = rng.choice(kinds)
        name = kind.__name__.upper()
        wanted = SubscriptionRequest(rng.choice(FILTERS), rng.randrange(3), False, rng.random() < 0.5, rng.randrange(3))
        makers: list[Callable[[], Packet]] = [
            lambda: kind(packet_id, self.reason(name), self.properties(PacketType[name])),
            lambda: Disconnect(self.reason("DISCONNECT"), self.properties(PacketType.DISCONNECT)),
        ]
        if self.version == V5:
            makers.append(lambda: Auth(self.reason("AUTH"), self.properties(PacketType.AUTH)))
        if self.side == "server":
            makers += [
                lambda: Subscribe(packet_id, (wanted,) * rng.randint(1, 3), self.properties(PacketType.SUBSCRIBE)),
                lambda: Unsubscribe(packet_id, (rng.choice(FILTERS),), self.properties(PacketType.UNSUBSCRIBE)),
                Pingreq,
            ]
        else:
            makers += [
                lambda: Connack(False, self.reason("CONNACK"), self.properties(PacketType.CONNACK)),
                lambda: Suback(packet_id, (self.reason("SUBACK"),), self.properties(PacketType.SUBACK)),
                lambda: Unsuback(packet_id, (self.reason("UNSUBACK"),), self.properties(PacketType.UNSUBACK)),
                Pingresp,
            ]
        return rng.choice(makers)()


def make_case(name: str) -> Case:
    """The case of a name; the name is all it depends on."""
    rng = random.Random(name)
    version: int = rng.choice([V311, V5])
    side: Side = rng.choice(["server", "server", "client"])
    maker = Maker(rng, version, side)
    opened = side == "client" or rng.random() < 0.6
    parts = [] if opened else [encode(maker.connect(), version)]
    parts += [encode(maker.packet(), version) for _ in range(rng.randint(1, 8))]
    data = bytearray(b"".join(parts))
    if rng.random() < 0.8:
        for _ in range(rng.choice([1, 1, 2, 5])):
            damage(rng, data)
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.choice([1, 2, 5, len(data)])))
    chunks = tuple(bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True))
    return Case(version if opened else None, side, bytes(data), chunks)


def damage(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(6)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    elif kind == 2:
        data[at:at] = rng.randbytes(rng.randint(1, 4))
    elif kind == 3:
        del data[at : at + rng.randint(1, 4)]
    elif kind == 4:
        data[at:at] = data[rng.randrange(len(data) + 1) :][: rng.randint(1, 30)]
    else:
        del data[at:]


def outcome(case: Case, chunks: tuple[bytes, ...], plain: bool = False) -> tuple[object, ...]:
    decoder = PacketDecoder(LIMIT, case.version, side=case.side, max_connect_size=LIMIT // 2)
    if plain:
        decoder._learn = lambda *_: None  # type: ignore[method-assign] # without topics there is no short cut
    packets: list[Packet] = []
    for chunk in chunks:
        try:
            packets += decoder.feed(chunk)
        except PacketError as error:
            packets += error.packets
            return packets, str(error), type(error), error.reason_code, error.version
        if decoder.held_bytes >= LIMIT:
            raise AssertionError(f"{decoder.held_bytes} bytes are held")
    return packets, decoder.held_bytes, decoder.version


def check(case: Case) -> None:
    """Raises an AssertionError, or what should never be raised."""
    whole = outcome(case, (case.data,))
    for name, other in (("cut", case.chunks), ("byte by byte", tuple(bytes((b,)) for b in case.data))):
        if outcome(case, other) != whole:
            raise AssertionError(f"{name}: {outcome(case, other)} instead of {whole}")
    if outcome(case, (case.data,), plain=True) != whole:
        raise AssertionError("the short cut reads something else than the plain way")
    version = case.version
    packets: list[Packet] = whole[0]  # type: ignore[assignment]
    for packet in packets:
        version = packet.version if isinstance(packet, Connect) else version
        assert version is not None
        again = PacketDecoder(version=None if isinstance(packet, Connect) else version, side=case.side)
        if again.feed(encode(packet, version)) != [packet]:
            raise AssertionError(f"{packet} does not come back")


def run(names: list[str]) -> bool:
    """Returns whether all of these cases hold; prints the first that does not."""
    for name in names:
        case = make_case(name)
        try:
            check(case)
        except Exception:
            traceback.print_exc()
            print(f"case {name}: version {case.version}, {case.side} side, bytes {case.data.hex(' ')}")
            print("cut as " + " | ".join(chunk.hex() for chunk in case.chunks))
            return False
    return True


def pattern(name: str) -> tuple[int, tuple[bytes, ...]]:
    """The version and the packets of a pattern; they are sound, since a broken one ends all cost."""
    rng = random.Random(f"cost {name}")
    version: int = rng.choice([V311, V5])
    maker = Maker(rng, version, "server")
    parts: list[bytes] = []
    for _ in range(rng.randint(2, 5)):
        part = encode(maker.packet(), version)
        with suppress(PacketError):  # a few are for servers to send
            PacketDecoder(version=version).feed(part)
            parts += [part] * rng.choice([1, 1, 2, 3])
    return version, tuple(parts) or (b"\xc0\0",)


def repeated(parts: tuple[bytes, ...], piece: int, count: int) -> list[bytes]:
    """A pattern `count` times over, in pieces of so many bytes; 0 is one piece."""
    data = b"".join(parts) * count
    piece = piece or len(data)
    return [data[at : at + piece] for at in range(0, len(data), piece)]


def decode(version: int, chunks: list[bytes]) -> None:
    """Reads a stream as a broker does, without the limits that keep a packet small."""
    decoder = PacketDecoder(version=version, max_user_properties=1 << 30, max_filters=1 << 30)
    for chunk in chunks:
        decoder.feed_batches(chunk)


def lines_of(call: Callable[[], None]) -> int:
    """Returns how many lines of Python a call executes."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def seconds_of(call: Callable[[], None]) -> float:
    """The least processor time of three calls."""
    times = []
    for _ in range(3):
        begun = time.thread_time()
        call()
        times.append(time.thread_time() - begun)
    return min(times)


def growth(version: int, make: Callable[[int], list[bytes]], count: int) -> tuple[float, float]:
    """Returns how many times as dear input becomes that is four times as long: in lines, and in processor time."""
    few, many = make(count), make(4 * count)
    lines = lines_of(lambda: decode(version, many)) / max(1, lines_of(lambda: decode(version, few)))
    few, many = make(10 * count), make(40 * count)
    seconds = 0.0
    for _ in range(5):  # a machine that does other things can only make it longer
        seconds = seconds_of(lambda: decode(version, many)) / max(1e-4, seconds_of(lambda: decode(version, few)))
        if seconds < SECONDS_MAX:
            break
    return lines, seconds


def run_cost(names: list[str]) -> bool:
    """Returns whether the cost of these patterns grows as their length; prints the first whose cost does not."""
    for name in names:
        version, parts = pattern(name)
        for piece in (0, 7):
            lines, seconds = growth(version, partial(repeated, parts, piece), 20)
            if lines > LINES_MAX or seconds > SECONDS_MAX:
                print(f"cost of case {name}, version {version}, pieces of {piece} bytes (0 is all):")
                print(f"four times the input takes {lines:.1f} times the lines and {seconds:.1f} times the time")
                print("repeated: " + b"".join(parts).hex(" "))
                return False
    return True


@dataclass(slots=True)
class Found:
    """The observations of an attack."""

    cases: int = 0
    closed: int = 0
    good_messages: int = 0


def make_live_case(name: str) -> Case:
    """A connection to a live broker: mostly a good CONNECT, so that the damage behind it gets further."""
    rng = random.Random(name)
    version: int = rng.choice([V311, V5])
    maker = Maker(rng, version, "server")
    data = bytearray(b"".join(encode(maker.packet(), version) for _ in range(rng.randint(1, 20))))
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        damage(rng, data)
    begin = encode(maker.connect(), version)
    kind = rng.random()
    if kind < 0.1:
        begin = rng.randbytes(rng.randint(1, 100))
    elif kind < 0.2:
        damaged = bytearray(begin)
        damage(rng, damaged)
        begin = bytes(damaged)
    whole = begin + bytes(data)
    cuts = sorted(rng.randint(0, len(whole)) for _ in range(rng.choice([0, 1, 5])))
    chunks = tuple(whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True))
    return Case(version if kind >= 0.2 else None, "server", whole, chunks)


async def attack(host: str, port: int, names: list[str], at_once: int = 8) -> Found:
    """Sends cases to a broker, while a good client publishes and must get what it publishes."""
    found, over = Found(), asyncio.Event()
    good = asyncio.ensure_future(_be_good(host, port, found, over))
    waiting = list(reversed(names))

    async def worker() -> None:
        while waiting and not good.done():
            await _attack_once(host, port, waiting.pop(), found)

    try:
        await asyncio.gather(*(worker() for _ in range(at_once)))
    finally:
        over.set()
        await good
    return found


async def _be_good(host: str, port: int, found: Found, over: asyncio.Event) -> None:
    async with Client(host, port, client_id="good") as client:
        await client.subscribe("good/#", qos=2)
        while not over.is_set() or not found.good_messages:
            number = found.good_messages
            await client.publish(f"good/{number % 10}", str(number).encode(), number % 3)
            message = await asyncio.wait_for(client.message(), 20)
            if (message.topic, message.payload) != (f"good/{number % 10}", str(number).encode()):
                raise AssertionError(f"the good client got {message} instead of number {number}")
            found.good_messages += 1
            await asyncio.sleep(0)


async def _attack_once(host: str, port: int, name: str, found: Found) -> None:
    case = make_live_case(name)
    reader, writer = await asyncio.open_connection(host, port)
    answer = b""
    try:
        for chunk in case.chunks:
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                while data := await reader.read(65_536):
                    answer += data
                found.closed += 1
    except OSError:
        found.closed += 1
    finally:
        writer.transport.abort()
    found.cases += 1
    if case.version is not None:
        try:
            PacketDecoder(version=case.version, side="client").feed(answer)
        except PacketError as error:
            raise AssertionError(f"case {name}: the broker answered {answer.hex(' ')}: {error}") from error


def run_live(seed: int, minutes: float) -> int:
    """Starts a broker and attacks it until the time is over."""
    port = free_port()
    command = [str(Path(sys.executable).parent / "surecast"), "broker", "--port", str(port), "--log-level", "error"]
    broker = subprocess.Popen(command)
    total = Found()
    try:
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            names = [f"{seed}:{number}" for number in range(total.cases, total.cases + 500)]
            try:
                found = asyncio.run(attack("127.0.0.1", port, names))
            except ClientError as error:
                if total.cases or broker.poll() is not None:
                    raise AssertionError(f"the good client failed within cases {names[0]} and {names[-1]}") from error
                time.sleep(0.1)  # the broker is not up yet
                continue
            total.cases += found.cases
            total.closed += found.closed
            total.good_messages += found.good_messages
    finally:
        broker.terminate()
        code = broker.wait(30)
    print(f"{total.cases} cases, {total.closed} closed by the broker, {total.good_messages} good messages; exit {code}")
    return 0 if code == 0 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--case", help="run this one case, as a failure printed it")
    parser.add_argument("--cost", action="store_true", help="check what input costs")
    parser.add_argument("--live", action="store_true", help="attack a broker over sockets")
    arguments = parser.parse_args()
    check_all = run_cost if arguments.cost else run
    if arguments.case:
        return 0 if check_all([arguments.case]) else 1
    print(f"seed {arguments.seed}")
    if arguments.live:
        return run_live(arguments.seed, arguments.minutes)
    end, done = time.monotonic() + 60 * arguments.minutes, 0
    while time.monotonic() < end:
        step = 10 if arguments.cost else 100
        if not check_all([f"{arguments.seed}:{n}" for n in range(done, done + step)]):
            return 1
        done += step
    print(f"{done} cases hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
