"""Ports for servers that are started again: nobody else gets one while its server is down."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from surecast.broker import free_ports as module
from surecast.broker.free_ports import free_port, free_ports
from surecast.errors import ConfigurationError


def test_they_are_below_those_of_outgoing_connections() -> None:
    below = module._ephemeral_from()
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(module._LOWEST <= port < below for port in ports)


def test_one_that_is_taken_or_excluded_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_port()
    monkeypatch.setattr(module, "_LOWEST", first)
    monkeypatch.setattr(module, "_ephemeral_from", lambda: first + 3)
    assert first not in free_ports(1, {first})
    with socket.create_server(("127.0.0.1", first)):
        assert first not in free_ports(1)


def test_where_there_are_not_enough_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ephemeral_from", lambda: module._LOWEST + 2)
    with pytest.raises(ConfigurationError, match="3 free ports between 10000 and 10002 were not found"):
        free_ports(3)


@pytest.mark.parametrize(
    ("text", "below"), [("32768\t60999\n", 32768), ("1024 60999", 65_536), ("?", 32768), ("", 32768)]
)
def test_the_system_says_where_those_begin(
    text: str, below: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EPHEMERAL", tmp_path / "range")
    (tmp_path / "range").write_text(text)
    assert module._ephemeral_from() == below
