"""Clients that others wrote, as programs: mosquitto_pub and mosquitto_sub, and MQTT.js in a browser."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

NUMBERS = itertools.count()
needs_mosquitto = pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto-clients is not installed")


def seen(messages: list[Any]) -> list[tuple[str, bytes, int, bool]]:
    return [(message.topic, message.payload, message.qos, message.retain) for message in messages]


# mosquitto_pub and mosquitto_sub


class MosquittoSub:
    """mosquitto_sub as a process that has subscribed; the broker says when, since its own output is buffered."""

    def __init__(self, live_broker: Any, *arguments: str | Path):
        name = f"mosquitto-{next(NUMBERS)}"
        command = ["mosquitto_sub", "-i", name, "-W", str(PATIENCE_S), *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        end = time.monotonic() + PATIENCE_S
        while not live_broker.has_subscribed(name):
            assert time.monotonic() < end, name
            time.sleep(0.02)

    def lines(self) -> list[str]:
        """What it printed until it ended by itself."""
        text, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, text
        return text.splitlines()


def mosquitto_pub(*arguments: str | Path) -> None:
    subprocess.run(["mosquitto_pub", *map(str, arguments)], check=True, timeout=PATIENCE_S, capture_output=True)


@needs_mosquitto
@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_mosquitto_clients(live_broker: Any, certificates: Any, version: str, secure: bool) -> None:
    where: list[str | Path] = ["-V", version, "-p", str(live_broker.tls_port if secure else live_broker.port)]
    if secure:
        where += ["--cafile", certificates.ca, "-h", "localhost"]
    root = f"mosquitto/{version}/{secure}"
    sub = MosquittoSub(live_broker, *where, "-q", "2", "-t", f"{root}/#", "-C", "4", "-F", "%t %q %r %p")
    for qos in ("0", "1", "2"):
        mosquitto_pub(*where, "-t", f"{root}/{qos}", "-q", qos, "-m", "hello")
    mosquitto_pub(*where, "-t", f"{root}/kept", "-q", "1", "-m", "stays", "-r")
    assert sub.lines() == [*(f"{root}/{qos} {qos} 0 hello" for qos in "012"), f"{root}/kept 1 0 stays"]
    late = ["mosquitto_sub", *map(str, where), "-t", f"{root}/kept", "-C", "1", "-F", "%r %p", "-W", str(PATIENCE_S)]
    assert subprocess.run(late, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout == "1 stays\n"
    mosquitto_pub(*where, "-t", f"{root}/kept", "-r", "-n")


@needs_mosquitto
def test_mosquitto_options_of_version_5(live_broker: Any) -> None:
    where = ["-V", "mqttv5", "-p", str(live_broker.port)]
    properties = ["-D", "subscribe", "user-property", "filter", 'unit = "celsius"']
    sub = MosquittoSub(
        live_broker, *where, "-q", "1", "-t", "m5/#", "-C", "1", "-F", "%t %P %C %R %D %E %p", *properties
    )
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
def test_mosquitto_sessions_and_wills(live_broker: Any, version: str) -> None:
    where = ["-V", version, "-p", str(live_broker.port)]
    root = f"ms/{version}"
    kept = ["-i", f"ms-{version}", "-c", "-q", "2", *(["-x", "300"] if version == "mqttv5" else [])]
    subprocess.run(["mosquitto_sub", *where, *kept, "-t", f"{root}/#", "-E"], check=True, timeout=PATIENCE_S)
    mortal = MosquittoSub(
        live_broker,
        *where,
        "-t",
        "nothing",
        "--will-topic",
        f"{root}/will",
        "--will-payload",
        "gone",
        "--will-qos",
        "1",
    )
    for qos in ("1", "2"):
        mosquitto_pub(*where, "-t", f"{root}/{qos}", "-q", qos, "-m", "x", "--repeat", "3")
    mortal.process.kill()
    mortal.process.communicate(timeout=PATIENCE_S)
    command = ["mosquitto_sub", *where, *kept, "-t", f"{root}/#", "-C", "7", "-W", str(PATIENCE_S), "-v"]
    got = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout.splitlines()
    # It shows a message of QoS 2 when it is released, so that order holds within each QoS.
    assert [line for line in got if "/2 " not in line] == [f"{root}/1 x"] * 3 + [f"{root}/will gone"]
    assert [line for line in got if "/2 " in line] == [f"{root}/2 x"] * 3


@needs_mosquitto
@pytest.mark.skipif(shutil.which("mosquitto_rr") is None, reason="mosquitto_rr is not installed")
def test_mosquitto_request_and_response(live_broker: Any, make_paho: Callable[..., Any]) -> None:
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
        str(live_broker.port),
        "-t",
        "rr/request",
        "-e",
        "rr/response",
        "-q",
        "1",
    ]
    command += ["-m", "question", "-D", "publish", "correlation-data", "4711", "-W", str(PATIENCE_S)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    thread.join(PATIENCE_S)
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
  client.on("message", (topic, payload, packet) =>
    window.got.push([topic, payload.toString(), packet.qos, packet.retain]));
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
        subprocess.run(
            ["npm", "pack", "mqtt@5", "--silent"], cwd=folder, check=True, timeout=PATIENCE_S, capture_output=True
        )
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
    live_broker: Any, make_paho: Callable[..., Any], mqtt_js: Path, browser: Any, version: int
) -> None:
    other = make_paho(f"js-other-{version}")
    other.connect()
    other.subscribe((f"js/{version}/out/#", 2))
    other.publish(f"js/{version}/in/kept", "kept", 1, retain=True)
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    page.set_content("<title>a page</title>")
    page.add_script_tag(path=mqtt_js)
    assert page.evaluate(SCRIPT, [f"ws://127.0.0.1:{live_broker.web_port}/mqtt", version, f"js-{version}"]) == [2]
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
    live_broker.kick(f"js-{version}")
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
