"""A broker's configuration: what it means, and what is said of a wrong one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.config import BrokerConfigError, default_admin_socket, load_config
from surecast.errors import ConfigurationError
from surecast.protocol.broker import BrokerSettings


def problems(text: str, folder: Path) -> list[str]:
    file = folder / "broker.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BrokerConfigError) as caught:
        load_config(file)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_nothing_at_all_is_a_broker_on_loopback_in_memory() -> None:
    config = load_config()
    (listener,) = config.listeners
    assert (listener.kind, listener.host, listener.wanted_port) == ("tcp", "127.0.0.1", 1883)
    assert config.state.chosen == "memory"
    assert config.settings == BrokerSettings()
    assert config.anonymous_at(listener)


def test_a_file_means_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("", encoding="utf-8")
    (tmp_path / "acl").write_text("# nothing\nallow all plant/# user=ann\n", encoding="utf-8")
    file = tmp_path / "broker.yaml"
    file.write_text(
        """
        name: plant
        listeners:
          - {name: inside, port: 1884, connection_rate_max: 500/s}
          - {kind: websocket, host: 0.0.0.0, path: /ws}
        state: {folder: state, durability: os}
        security: {users: users, acl: acl, rules: ["deny all secret/#"]}
        limits: {queue_messages: 500, queue_size: 2MB, overflow: reject, connect_timeout: 1500ms, keep_alive: 5min}
        event_log: {folder: events, retention_age: 7d}
        http: {port: 0, log_readers: [ann]}
        log: {format: json}
        drain: 2s
        """,
        encoding="utf-8",
    )
    config = load_config(file)
    assert config.state.folder == tmp_path / "state"  # paths start at the file
    assert config.settings.queue_bytes_max == 2_000_000
    assert config.settings.connect_timeout_s == 2  # a part of a second counts as one
    assert (config.settings.keep_alive_max_s, config.settings.overflow) == (300, "reject")
    assert [listener.label for listener in config.listeners] == ["inside", "websocket-8083"]
    assert not config.anonymous_at(config.listeners[1])
    assert config.event_log is not None
    assert config.event_log.retention_age == 7 * 86400.0


def test_flags_go_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "broker.yaml"
    file.write_text("listeners: [{port: 1884}]\nstate: {folder: here}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    config = load_config(file, {"listeners[0].port": 0, "listeners[1].port": 1, "event_log.folder": Path("there")})
    assert [listener.port for listener in config.listeners] == [0, 1]
    assert config.state.folder == tmp_path / "conf" / "here"
    assert config.event_log is not None
    assert config.event_log.folder == tmp_path / "there"  # where the command runs
    with pytest.raises(BrokerConfigError, match=r"command line: state\.durability: 'no' is not known here"):
        load_config(file, {"state.durability": "no"})
    with pytest.raises(BrokerConfigError, match="there is no such field to set"):
        load_config(file, {"listeners[7].port": 1})


def test_every_problem_is_found_at_once_with_its_line(tmp_path: Path) -> None:
    text = """listeners:
  - {port: 70000, kind: quic}
  - prot: 1883
limits:
  queue_size: 64
  connect_timeout: soon
  queue_messages: many
drain: -1s
"""
    assert problems(text, tmp_path) == [
        "broker.yaml:2: listeners[0].kind: 'quic' is not known here; "
        "write 'tcp', 'tls', 'websocket' or 'secure-websocket'",
        "broker.yaml:2: listeners[0].port: 70000 should be at most 65535",
        "broker.yaml:3: listeners[1].prot: is not a field of a configuration at this place; did you mean port?",
        "broker.yaml:5: limits.queue_size: 64 has no unit; write a size with its unit, such as 64B, 1kB or 16MiB",
        "broker.yaml:6: limits.connect_timeout: 'soon' is not a duration; "
        "write a duration with its unit, such as 250ms, 60s, 2h or 14d",
        'broker.yaml:7: limits.queue_messages: "many" should be a whole number',
        "broker.yaml:8: drain: '-1s' is negative; write a duration with its unit, such as 250ms, 60s, 2h or 14d",
    ]


def test_what_does_not_fit_together_is_found_too(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("allow all #\nforbid all #\n", encoding="utf-8")
    text = """listeners:
  - {port: 1}
  - {kind: tls, port: 2}
  - {port: 3, certificate: x.pem}
  - {port: 4, anonymous: false}
  - {port: 1, host: localhost}
state: {durability: full}
security:
  acl: acl
  users: nobody
  rules:
    - allow all a/#b
http: {log_readers: [ann]}
"""
    found = problems(text, tmp_path)
    assert [line.partition(": ")[2].partition(": ")[0] for line in found] == [
        "listeners[1].certificate",
        "listeners[2].certificate",
        "listeners[4]",
        "state.durability",
        "security.acl",
        "security.users",
        "security.rules[0]",
    ]
    assert found[4].startswith("broker.yaml:9: security.acl: acl:2: 'forbid' is not known here")
    assert "surecast passwd" in found[5]
    assert "has a '#' that is not its whole last level" in found[6]


def test_wrong_limits_of_listeners_and_clients_are_found_with_their_line(tmp_path: Path) -> None:
    text = """listeners:
  - port: 1
    limits: {queue_mesages: 3}
clients:
  - client: a*
    limits:
      overflow: explode
      packet_size: 12
      inflight: 70000
  - limits: {}
http: {key: nothing}
"""
    assert problems(text, tmp_path) == [
        "broker.yaml:3: listeners[0].limits.queue_mesages: is not a field of a configuration at this place; "
        "did you mean queue_messages?",
        "broker.yaml:7: clients[0].limits.overflow: 'explode' is not known here; "
        "write 'drop-new', 'drop-old', 'reject' or 'expire-first'",
        "broker.yaml:8: clients[0].limits.packet_size: 12 has no unit; "
        "write a size with its unit, such as 64B, 1kB or 16MiB",
        "broker.yaml:9: clients[0].limits.inflight: 70000 should be at most 65535",
    ]
    text = """listeners: [{port: 1, limits: {queue_size: 0.5B}}]
clients:
  - limits: {}
http: {key: nothing}
"""
    assert problems(text, tmp_path) == [
        "broker.yaml:1: listeners[0].limits: queue_bytes_max is 0; use a whole number of 1 or more",
        "broker.yaml:3: clients[0]: names no client; write client: or user: with a pattern such as sensor-*",
        "broker.yaml:4: http.certificate: a TLS listener needs a certificate; name PEM files as certificate: and key:",
    ]


def test_the_limits_of_a_file_reach_their_clients(tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text(
        """limits: {queue_messages: 10, publish_rate: 5/s}
listeners:
  - {name: a}
  - {name: b, port: 2, limits: {queue_messages: 20, queue_size: 1kB, receive_maximum: 3}}
clients:
  - {client: s-*, user: ann, limits: {queue_messages: 30}}
  - {client: s-*, limits: {queue_messages: 40, publish_rate: 0/s}}
""",
        encoding="utf-8",
    )
    table = load_config(tmp_path / "broker.yaml").limit_table()
    found = [
        table.resolve(*who) for who in (("a", "ann", "x"), ("b", "ann", "x"), ("b", "ann", "s-1"), ("a", "", "s-"))
    ]
    assert [each.queue_messages_max for each in found] == [10, 20, 30, 40]
    assert [each.publish_rate_per_s for each in found] == [5.0, 5.0, 0.0, 0.0]
    assert [each.receive_maximum for each in found] == [1_000, 3, 3, 1_000]
    assert found[1].queue_bytes_max == 1_000


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "*"])
def test_nobody_is_let_in_from_the_network_without_a_word(host: str, tmp_path: Path) -> None:
    with pytest.raises(BrokerConfigError, match="would let anybody in the network connect"):
        load_config(None, {"listeners[0].host": host})
    assert load_config(None, {"listeners[0].host": host, "security.allow_anonymous_remote": True})
    users = tmp_path / "users"
    users.write_text("", encoding="utf-8")
    assert load_config(None, {"listeners[0].host": host, "security.users": users})
    with pytest.raises(BrokerConfigError, match="would let anybody"):
        load_config(None, {"listeners[0].host": host, "security.users": users, "listeners[0].anonymous": True})
    with pytest.raises(BrokerConfigError, match="nobody could connect here"):
        load_config(None, {"listeners[0].host": host, "listeners[0].anonymous": False})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("- 1\n", "a configuration is a mapping of fields"),
        ("listeners: [{kind: websocket, path: mqtt}]\n", 'listeners[0].path: "mqtt" should begin with /'),
        ("a: [\n", "is not valid YAML"),
        ("name: x\nname: y\n", "is given twice, first in line 1"),
    ],
)
def test_a_file_that_is_no_configuration(text: str, message: str, tmp_path: Path) -> None:
    (found,) = problems(text, tmp_path)
    assert message in found
    assert "scenario" not in found


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.yaml: there is no such file"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize("page", ["broker-configuration.md", "group-configuration.md"])
def test_every_field_has_a_sentence(page: str, repository: Path) -> None:
    lines = (repository / "docs" / "reference" / page).read_text(encoding="utf-8").splitlines()
    fields = [line for line in lines if line.startswith("| `")]
    assert len(fields) > 20
    assert not [line for line in fields if len(line.split("|")[-2].split()) < 2]


def test_a_long_folder_has_its_socket_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert default_admin_socket(Path("/var/lib/surecast"), 1883) == Path("/var/lib/surecast/admin.sock")
    long = default_admin_socket(Path("/" + "x" * 120), 1883)
    assert long.parent.parent == Path("/run/user/7")
    assert default_admin_socket(None, 1884).name == "port-1884.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", "/" + "y" * 120)
    assert len(str(default_admin_socket(None, 1884))) < 100


def test_the_reference_page_is_up_to_date(repository: Path) -> None:
    command = [sys.executable, str(repository / "tools" / "broker_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
