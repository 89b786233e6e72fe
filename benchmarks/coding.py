"""Speed of coding, beside galois, zfec and raptorq on the same data, one core each.

    python benchmarks/coding.py --peers PYTHON

PYTHON is an interpreter that has them (`pip install galois zfec raptorq numpy` in an environment of its own; none of
them is needed by Surecast). Without it those are measured that can be imported here. It takes about half a minute.

An event is n packets of 1024 bytes; redundancy is a quarter. The work is the same for all:

- encode: make n/4 coded packets of the n plain ones;
- recode: make 1 fresh combination of n coded packets. zfec and raptorq cannot: zfec's row is one coded block out of n
  blocks, which is as many products;
- decode: get the event from 3n/4 plain packets and n/4 coded ones;
- decode all: get it from n coded packets and no plain one.

Rates are MB of event a second (recode: MB of packets made). `arrays` is the compiled kernel on arrays, as galois is
used; `objects` is what a program calls, bytes in and bytes out as with zfec and raptorq: vectors are drawn, every
packet is looked at for whether it is innovative. `wire` adds headers and checksums to `objects`.
zfec has 256 blocks at most, plain and coded: n = 204 is as far as it goes, and 128 where all are coded.
raptorq's code is another one (fountain code, linear in n); it draws its own packets.
All take turns; processor time is measured, and the least of the rounds counts. Every result is compared with the
event, and the payloads of galois, which has the same field, with ours.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

PACKET_BYTES = 1024
SIZES = (16, 64, 204, 256)
TASKS = ("encode", "recode", "decode", "decode all")
OURS = ("arrays", "objects", "wire")
PEERS = ("galois", "zfec", "raptorq")
ROUND_S = 0.04

Work = Callable[[], Any]
Prepared = tuple[Work, Callable[[Any], str]]
"""What is timed, and what tells of its result: a digest where it can be compared, else an empty text."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def event(n: int) -> Any:
    """The plain packets of the event, one a row."""
    return np.random.default_rng(n).integers(0, 256, (n, PACKET_BYTES), dtype=np.uint8)


def factors(n: int, rows: int) -> Any:
    """Coefficients; where these were not independent, decoding would fail."""
    return np.random.default_rng([n, rows]).integers(1, 256, (rows, n), dtype=np.uint8)


def same(result: bytes, expected: bytes) -> str:
    if result != expected:
        raise SystemExit("a result is not the event that was coded")
    return digest(result)


# Surecast


def ours(style: str, task: str, n: int) -> Prepared | None:
    if style == "arrays":
        return our_arrays(task, n)
    from surecast.protocol.coding import CodingSettings, EventDecoder, EventEncoder, Recoder, encode

    settings = CodingSettings(packets=n, packet_bytes=PACKET_BYTES)
    data = event(n).tobytes()
    encoder = EventEncoder(1, data, settings, seed=1)
    encoder.coded(1)
    spare = encoder.coded(n + 3)
    finish: Callable[[Any], Any] = (
        (lambda packet: encode(packet, settings)) if style == "wire" else (lambda packet: packet)
    )
    if task == "encode":
        return lambda: [finish(packet) for packet in encoder.coded(n // 4)], lambda _: ""
    if task == "recode":
        recoder = Recoder(settings)
        for packet in spare:
            recoder.add(packet)
        return lambda: finish(recoder.packet(7)), lambda _: ""
    packets = [*encoder.plain()[n // 4 :], *spare[: n // 4 + 3]] if task == "decode" else spare
    sent = [finish(packet) for packet in packets]

    def decode() -> bytes:
        decoder = EventDecoder(settings)
        take = decoder.receive if style == "wire" else decoder.add
        for each in sent:
            if take(each) and decoder.complete:
                break
        return decoder.data()

    return decode, lambda result: same(result, data)


def our_arrays(task: str, n: int) -> Prepared | None:
    from surecast.protocol.coding.field_kernels import combine

    rows = event(n).view(np.uint64)
    if task in ("encode", "recode"):
        coefficients = factors(n, n // 4 if task == "encode" else 1)
        out = np.empty((len(coefficients), rows.shape[1]), dtype=np.uint64)
        return lambda: combine(coefficients, rows, 8, out), lambda _: digest(out.tobytes())
    return None


# The others


def galois_work(galois: Any, task: str, n: int) -> Prepared | None:
    field = galois.GF(2**8)
    plain = field(event(n))
    if task in ("encode", "recode"):
        coefficients = field(factors(n, n // 4 if task == "encode" else 1))
        return lambda: coefficients @ plain, lambda result: digest(np.asarray(result, dtype=np.uint8).tobytes())
    lost = n // 4 if task == "decode" else n
    coefficients = field(factors(n, lost))
    coded = coefficients @ plain
    known = plain[lost:]

    def decode() -> Any:
        right = coded + coefficients[:, lost:] @ known if lost < n else coded
        return np.linalg.inv(coefficients[:, :lost]) @ right

    return decode, lambda result: same(
        np.asarray(result, dtype=np.uint8).tobytes(), np.asarray(plain[:lost], dtype=np.uint8).tobytes()
    )


def zfec_work(zfec: Any, task: str, n: int) -> Prepared | None:
    coded = n if task == "decode all" else n // 4
    if n + coded > 256:
        return None
    plain = tuple(row.tobytes() for row in event(n))
    encoder = zfec.Encoder(n, n + coded)
    numbers = tuple(range(n, n + coded))
    if task == "encode":
        return lambda: encoder.encode(plain, numbers), lambda _: ""
    if task == "recode":
        return lambda: encoder.encode(plain, (n,)), lambda _: ""
    blocks = (*encoder.encode(plain, numbers), *plain[coded:])
    places = (*numbers, *range(coded, n))
    decoder = zfec.Decoder(n, n + coded)
    return lambda: decoder.decode(blocks, places), lambda result: same(b"".join(result), b"".join(plain))


def raptorq_work(raptorq: Any, task: str, n: int) -> Prepared | None:
    data = event(n).tobytes()
    if task == "encode":
        return lambda: raptorq.Encoder.with_defaults(data, PACKET_BYTES + 4).get_encoded_packets(n // 4), lambda _: ""
    if task == "recode":
        return None
    packets = raptorq.Encoder.with_defaults(data, PACKET_BYTES + 4).get_encoded_packets(n // 4 + 2)
    packets = packets[n // 4 :]
    if task == "decode all":
        packets = raptorq.Encoder.with_defaults(data, PACKET_BYTES + 4).get_encoded_packets(n + 2)[n:]

    def decode() -> bytes:
        decoder = raptorq.Decoder.with_defaults(len(data), PACKET_BYTES + 4)
        for packet in packets:
            found = decoder.decode(packet)
            if found is not None:
                return bytes(found)
        raise SystemExit("raptorq could not decode")

    return decode, lambda result: same(result, data)


# Measuring


class Contestants:
    """Returns the cases that can be measured in this process, prepared once."""

    def __init__(self) -> None:
        self._modules: dict[str, Any] = {}
        for name in PEERS:
            with contextlib.suppress(ImportError):
                self._modules[name] = import_module(name)
        self._prepared: dict[tuple[str, str, int], tuple[Prepared, int, str] | None] = {}

    def measure(self, name: str, task: str, n: int) -> tuple[float, str] | None:
        """Seconds for the work, and the digest of its result."""
        key = (name, task, n)
        if key not in self._prepared:
            prepared = self._prepare(name, task, n)
            if prepared is None:
                self._prepared[key] = None
            else:
                work, tell = prepared
                told = tell(work())
                start = time.process_time()
                work()
                once_s = time.process_time() - start
                self._prepared[key] = (prepared, max(1, int(ROUND_S / max(once_s, 1e-6))), told)
        ready = self._prepared[key]
        if ready is None:
            return None
        (work, _), times, told = ready
        start = time.process_time()
        for _ in range(times):
            work()
        return (time.process_time() - start) / times, told

    def _prepare(self, name: str, task: str, n: int) -> Prepared | None:
        if name in OURS:
            return ours(name, task, n)
        if name not in self._modules:
            return None
        return {"galois": galois_work, "zfec": zfec_work, "raptorq": raptorq_work}[name](self._modules[name], task, n)


class Worker:
    """The same in another interpreter, asked line by line."""

    def __init__(self, python: str):
        self._process = subprocess.Popen(
            [python, __file__, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def measure(self, name: str, task: str, n: int) -> tuple[float, str] | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, task, n]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the interpreter of --peers ended while it measured {name} ({task}, n = {n})")
        answer = json.loads(line)
        return None if answer is None else (answer[0], answer[1])

    def close(self) -> None:
        self._process.communicate()


def serve() -> None:
    """Answers the questions of another interpreter."""
    contestants = Contestants()
    for line in sys.stdin:
        name, task, n = json.loads(line)
        print(json.dumps(contestants.measure(name, task, n)), flush=True)


def compare(measure_peer: Callable[[str, str, int], tuple[float, str] | None], rounds: int) -> None:
    here = Contestants()
    head = "".join(f"{name:>9}" for name in (*OURS, *PEERS))
    print(f"{'MB/s':<11}{'n':>4}{head}   best of arrays and objects / galois, objects / zfec, objects / raptorq")
    for task in TASKS:
        for n in SIZES:
            least: dict[str, float] = {}
            told: dict[str, str] = {}
            for _ in range(rounds):
                for name in (*OURS, *PEERS):
                    found = here.measure(name, task, n) if name in OURS else measure_peer(name, task, n)
                    if found is not None:
                        least[name] = min(found[0], least.get(name, found[0]))
                        told[name] = found[1]
            if "arrays" in told and told.get("galois", told["arrays"]) != told["arrays"]:
                raise SystemExit(f"galois and the kernel disagree on {task}, n = {n}")
            print(row(task, n, least), flush=True)


def row(task: str, n: int, least: dict[str, float]) -> str:
    size = PACKET_BYTES * (1 if task == "recode" else n)
    rates = "".join(f"{size / least[name] / 1e6:9.1f}" if name in least else f"{'-':>9}" for name in (*OURS, *PEERS))
    best = min(least[name] for name in ("arrays", "objects") if name in least)
    bases = {"galois": best, "zfec": least["objects"], "raptorq": least["objects"]}
    ratios = ", ".join(f"{least[name] / base:.1f}" if name in least else "-" for name, base in bases.items())
    return f"{task:<11}{n:>4}{rates}   {ratios}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the coding of Surecast with that of other packages.")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has galois, zfec and raptorq")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        # One core for both processes: only one of them works at a time.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if arguments.worker:
        serve()
    elif arguments.peers:
        worker = Worker(arguments.peers)
        compare(worker.measure, arguments.rounds)
        worker.close()
    else:
        compare(Contestants().measure, arguments.rounds)


if __name__ == "__main__":
    main()
