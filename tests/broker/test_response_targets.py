"""Response targets with real clients: the answer to SUBSCRIBE, an administrator's view, and a process that fails."""

from __future__ import annotations

import asyncio
import queue
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from surecast.broker.admin_client import ask
from surecast.broker.target_adviser import TargetAdviser, question_line
from surecast.protocol.broker.period_monitor import PeriodMonitor, Prior
from surecast.protocol.broker.response_target import Decision, ResponseTarget
from surecast.protocol.broker.targets import Question

PRIORS = {"limits.connected_prior": "20s", "limits.disconnected_prior": "20s"}
WAIT_S = 60.0


@contextmanager
def subscriber(port: int, *user: tuple[str, str]) -> Iterator[tuple[list[int], dict[str, str], str]]:
    """Connects with a lasting session and subscribes with user properties: reason codes, answer and reason string."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="sam", protocol=paho.MQTTv5)
    client.on_subscribe = lambda _c, _u, _m, reasons, properties: answers.put((reasons, properties))
    lasting = Properties(PacketTypes.CONNECT)
    lasting.SessionExpiryInterval = 1_000
    client.connect("127.0.0.1", port, properties=lasting)
    client.loop_start()
    wanted = Properties(PacketTypes.SUBSCRIBE)
    wanted.UserProperty = list(user)
    client.subscribe("t", options=SubscribeOptions(qos=1), properties=wanted)
    reasons, properties = answers.get(timeout=WAIT_S)
    try:
        yield (
            [reason.value for reason in reasons],
            dict(getattr(properties, "UserProperty", [])),
            getattr(properties, "ReasonString", ""),
        )
    finally:
        client.disconnect()
        client.loop_stop()


def test_paho_hears_how_its_target_is_kept(running: Callable[..., Any], tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(PRIORS) as service:
            port = service.listeners[0].port

            def talk() -> tuple[Any, Any, Any]:
                with subscriber(port, ("surecast-response-mean-ms", "7000")) as (reasons, answer, _):
                    assert reasons == [1]
                    view = ask(tmp_path / "admin.sock", "/targets")
                required = (("surecast-response-mean-ms", "0.001"), ("surecast-response-required", "1"))
                with subscriber(port, *required) as refused:
                    return answer, view, refused

            answer, view, (reasons, _, why) = await asyncio.to_thread(talk)
        assert answer["surecast-policy"] == "optimal"
        assert answer["surecast-policy-parameter"].startswith("threshold ")
        assert int(answer["surecast-response-expected-ms"]) == pytest.approx(7000, abs=1)
        assert int(answer["surecast-response-high-ms"]) > 7000, "little is known of the client yet"
        (target,) = view["targets"]
        assert (view["total"], target["client"], target["can_be_met"]) == (1, "sam", True)
        assert target["seen"]["connected_mean_s"] == pytest.approx(20.0, rel=0.5)
        assert reasons == [0x97]
        assert "if nothing joins while the subscriber is away; ask for no less" in why

    asyncio.run(scenario())


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto_sub (Debian: mosquitto-clients)")
def test_mosquitto_sub_asks_for_a_target_by_user_properties(running: Callable[..., Any], tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(PRIORS) as service:
            port = str(service.listeners[0].port)
            options = [
                "-V",
                "5",
                "-h",
                "127.0.0.1",
                "-p",
                port,
                "-i",
                "kim",
                "-c",
                "-q",
                "1",
                "-t",
                "t",
                "-x",
                "100",
                "-E",
            ]
            for name, value in (("surecast-response-ms", "9000"), ("surecast-response-quantile", "0.9")):
                options += ["-D", "subscribe", "user-property", name, value]
            process = await asyncio.create_subprocess_exec("mosquitto_sub", *options)
            assert await asyncio.wait_for(process.wait(), WAIT_S) == 0
            view = await asyncio.to_thread(ask, tmp_path / "admin.sock", "/targets")
        assert view["targets"][0]["target"] == "90 % within 9 s"

    asyncio.run(scenario())


class Taker:
    """A broker that collects decisions."""

    def __init__(self) -> None:
        self.decisions: asyncio.Queue[tuple[str, int, Decision]] = asyncio.Queue()

    def take_decision(self, key: str, revision: int, decision: Decision) -> None:
        self.decisions.put_nowait((key, revision, decision))


def question(key: str, revision: int = 1) -> Question:
    return Question(key, revision, ResponseTarget(7.0), PeriodMonitor().estimates(0.0, Prior(20.0, 20.0)))


@pytest.mark.parametrize("code", ["import sys; sys.exit(1)", "input(); print('no JSON')", "input(); print('[1]')"])
def test_a_process_that_fails_leaves_no_question_without_an_answer(code: str) -> None:
    async def scenario() -> None:
        taker = Taker()
        adviser = TargetAdviser(taker, (sys.executable, "-c", code))
        adviser.ask([question("a"), question("b", 7)])
        for wanted in (("a", 1), ("b", 7)):
            key, revision, decision = await asyncio.wait_for(taker.decisions.get(), WAIT_S)
            assert (key, revision) == wanted
            assert (decision.policy, decision.is_met) == ("none", False)
            assert decision.reason == "the process that computes policies failed"
        adviser.stop()

    asyncio.run(scenario())


def test_a_question_is_asked_once_and_a_newer_one_instead_of_it() -> None:
    async def scenario() -> None:
        code = "import sys, json\nfor line in sys.stdin: print(json.dumps({'reason': line[:60]}), flush=True)"
        taker = Taker()
        adviser = TargetAdviser(taker, (sys.executable, "-c", code))
        for _ in range(3):
            adviser.ask([question("a", 1)])
        adviser.ask([question("a", 2)])
        heard = [(await asyncio.wait_for(taker.decisions.get(), WAIT_S))[:2]]
        while heard[-1] != ("a", 2):
            heard.append((await asyncio.wait_for(taker.decisions.get(), WAIT_S))[:2])
        adviser.ask([question("a", 3)])
        heard.append((await asyncio.wait_for(taker.decisions.get(), WAIT_S))[:2])
        assert heard in ([("a", 1), ("a", 2), ("a", 3)], [("a", 2), ("a", 3)])
        assert taker.decisions.empty()
        adviser.stop()

    asyncio.run(scenario())


def test_the_process_answers_line_by_line() -> None:
    command = [sys.executable, "-m", "surecast.prediction.dropping.decisions"]
    lines = question_line(question("a")) + b"no question\n" + question_line(question("b", 5))
    done = subprocess.run(command, input=lines, capture_output=True, check=True, timeout=WAIT_S)
    first, second, third = done.stdout.splitlines()
    assert b'"optimal"' in first
    assert b'"error"' in second
    assert b'"key": "b", "revision": 5' in third
