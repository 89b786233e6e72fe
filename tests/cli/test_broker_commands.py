"""`surecast broker`, `passwd`, `pub` and `sub`, as a user calls them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S
from typer.testing import CliRunner

from surecast.broker.security import set_password
from surecast.cli.app import app
from surecast.errors import SurecastError

Run = Callable[..., subprocess.CompletedProcess[str]]
SURECAST = Path(sys.executable).parent / "surecast"


@pytest.fixture(autouse=True)
def _own_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[dict[str, int]]:
    """A broker with users, rules, an event log, WebSocket and HTTP; its ports by kind."""
    environment = dict(os.environ, COLUMNS="110", NO_COLOR="1")
    set_password(tmp_path / "users", "ann", "secret")
    (tmp_path / "acl").write_text("allow all # user=ann\nallow subscribe public/# anonymous\n", encoding="utf-8")
    command = [SURECAST, "broker", "--port", "0", "--websocket-port", "0", "--http-port", "0", "--folder", "state",
               "--durability", "os", "--users", "users", "--acl", "acl", "--event-log", "events",
               "--set", "listeners[1].anonymous=true", "--set", "http.token_file=token"]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    ports = {}
    for line in process.stderr:
        if found := re.search(r"(mqtt|ws|http)://127\.0\.0\.1:(\d+)", line):
            ports[found[1]] = int(found[2])
        if " started " in line:
            break
    yield ports
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    process.stderr.close()


def test_publish_and_subscribe(broker: dict[str, int], surecast: Run, surecast_process: Run, tmp_path: Path) -> None:
    ann = ("-p", str(broker["mqtt"]), "-u", "ann", "-P", "secret")
    done = surecast_process("pub", *ann, "-t", "public/a", "-m", "21.5", "-q", "1", "-r", "-D", "publish",
                            "user-property", "price", "31", "-D", "publish", "content-type", "text/plain")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    web = ("-p", str(broker["ws"]), "--ws")
    done = surecast_process("sub", *web, "-t", "public/#", "-C", "1", "-W", "10", "-F", "%t %p %q %r %l %P %C 100%%")
    assert done.stdout == "public/a 21.5 0 1 4 price:31 text/plain 100%\n"
    done = surecast("sub", *web, "-t", "public/#", "-C", "1", "-v", "--filter", "price > 30")
    assert done.stdout == "public/a 21.5\n"
    done = surecast("sub", *web, "-t", "public/#", "-W", "0.3", "--filter", "price > 40")
    assert (done.returncode, done.stdout) == (27, "")
    done = surecast("sub", *web, "-t", "public/#", "-C", "1", "-F", "%j")
    found = json.loads(done.stdout)
    assert (found["topic"], found["payload"], found["retain"]) == ("public/a", "21.5", 1)
    assert found["properties"]["user-properties"] == [{"price": "31"}]

    # A session is kept, lines are published to it, and they are there later.
    keep = (*ann, "-i", "keeper", "-c", "-q", "1", "-t", "lines")
    assert surecast("sub", *keep, "-E").returncode == 0
    lines = subprocess.run(
        [SURECAST, "pub", *ann, "-t", "lines", "-l", "-q", "2"], input="one\ntwo\n", text=True, check=False
    )
    assert lines.returncode == 0
    assert surecast("sub", *keep, "-C", "2").stdout == "one\ntwo\n"
    (tmp_path / "file").write_bytes(b"\x00\xff")
    assert surecast("pub", *ann, "-t", "lines", "-f", "file", "-q", "1", "-V", "311").returncode == 0
    assert surecast("sub", *keep, "-C", "1", "-F", "%x").stdout == "00ff\n"
    assert surecast("pub", *ann, "-t", "lines", "-m", "old", "-q", "2", "-V", "mqttv31").returncode == 0
    assert surecast("sub", *keep, "-C", "1", "-V", "31").stdout == "old\n"

    for arguments, message in (
        (("pub", *ann[:2], "-t", "a", "-n", "-q", "1"), "bad user name or password"),
        (("pub", *ann[:4], "-P", "no", "-t", "a", "-n"), "bad user name or password"),
        (("sub", *web, "-t", "#"), "subscribe to '#': the broker refused it: not authorized"),
        (("pub", *ann, "-t", "a"), "nothing to publish: give exactly one of"),
        (("pub", *ann, "-t", "a/+", "-m", "x"), "has a wildcard"),
        (("pub", *ann, "-t", "a", "-m", "x", "-D", "publish", "colour", "red"), "-D publish colour: write"),
        (("sub", *ann, "-t", "a", "-c"), "name one with -i"),
        (("sub", *web, "-t", "public/#", "-C", "1", "-F", "%z"), "%z is not known"),
        (("sub", *ann, "-t", "a", "--filter", "price >>"), "filter"),
        (
            ("pub", "-p", "1", "-t", "a", "-n"),
            "cannot connect: connection refused: is the broker running at 127.0.0.1:1?",
        ),
    ):
        result = CliRunner().invoke(app, arguments)  # in this process: there are many
        assert isinstance(result.exception, SurecastError), result.output
        assert message in str(result.exception)


def test_ask_a_running_broker(broker: dict[str, int], surecast: Run, tmp_path: Path) -> None:
    subscriber = subprocess.Popen(
        [SURECAST, "sub", "-p", str(broker["mqtt"]), "-u", "ann", "-P", "secret", "-i", "screen", "-t", "#", "-W", "20",
         "-C", "1"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    publish = ("pub", "-p", str(broker["mqtt"]), "-u", "ann", "-P", "secret", "-t", "a", "-r", "-m")
    surecast(*publish, "now")
    assert subscriber.communicate(timeout=PATIENCE_S)[0] == "now\n"
    done = surecast("broker", "status", "--folder", "state")
    assert done.returncode == 0, done.stderr
    assert re.search(r"matched +1 = 1 delivered \+ 0 dropped \+ 0 expired \+ 0 queued", done.stdout)

    def ask(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["broker", *arguments])
        return str(result.exception) if isinstance(result.exception, SurecastError) else result.output

    folder = ("--folder", str(tmp_path / "state"))
    status = json.loads(ask("status", *folder, "--json"))
    assert (status["durability"], status["retained"]) == ("os", 1)
    url = ("--url", f"http://127.0.0.1:{broker['http']}")
    assert "show the token" in ask("clients", *url)
    assert json.loads(ask("clients", *url, "--token-file", str(tmp_path / "token"), "--json"))["total"] == 0
    assert "client" in ask("sessions", *folder)
    assert status["uptime_s"] > 0
    assert "there is no client screen" in ask("kick", "screen", *folder)
    assert "no broker runs here" in ask("status", "--port", "1")


def test_check_a_configuration(surecast: Run, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("listeners: [{port: 1884}]\n", encoding="utf-8")
    (tmp_path / "bad.yaml").write_text("listeners:\n  - {port: 1884, host: 0.0.0.0}\ndurable: true\n", encoding="utf-8")
    done = surecast("broker", "--check-config", "good.yaml")
    assert (done.returncode, done.stdout) == (0, "good.yaml: ok\n")
    done = surecast("broker", "--check-config", "bad.yaml")
    assert done.returncode == 1
    assert done.stderr.startswith("bad.yaml:3: durable: is not a field of a configuration at this place")
    assert "--allow-anonymous-remote" in str(CliRunner().invoke(app, ["broker", "--host", "0.0.0.0"]).exception)
    assert "durability" in CliRunner().invoke(app, ["broker", "--help"]).output


def test_passwords_from_standard_input(tmp_path: Path) -> None:
    def passwd(*arguments: str, given: str = "") -> str:
        result = CliRunner().invoke(app, ["passwd", *arguments], input=given)
        return str(result.exception) if isinstance(result.exception, SurecastError) else result.output

    users = str(tmp_path / "users")
    assert passwd(users, "ann", given="secret\n") == "ann: added\n"
    assert passwd(users, "ann", given="other\n") == "ann: password changed\n"
    assert "the password is empty" in passwd(users, "bob")
    assert (tmp_path / "users").stat().st_mode & 0o777 == 0o600
    assert passwd(users, "ann", "--delete") == "ann: removed\n"
    assert "there is no user ann" in passwd(users, "ann", "--delete")
