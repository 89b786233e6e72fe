"""A cut through the accounts of a running overlay: begun at one broker, and put together of what all report."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from surecast.errors import ConfigurationError
from surecast.protocol.overlay.accounts_cut import balance
from surecast.protocol.overlay.overlay_frames import Marker

if TYPE_CHECKING:
    from surecast.broker.overlay.local_overlay import LocalOverlay
    from surecast.broker.overlay.overlay_group import OverlayGroupServer
    from surecast.broker.overlay.overlay_server import OverlayServer

__all__ = ["cut_of", "take_cut"]

_POLL_S: Final = 0.02


def cut_of(server: OverlayServer | OverlayGroupServer, begin: bool, name: str) -> dict[str, Any]:
    """Begins a cut at a broker and returns its name, or returns what the broker has to report of one by name."""
    if begin:
        marker = server.begin_cut()
        server.turn()
        return {"cut": f"{marker.initiator}:{marker.incarnation}:{marker.number}"}
    initiator, *numbers = name.rsplit(":", 2)
    if len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise ConfigurationError(f"{name!r} is no name of a cut; it has the form BROKER:INCARNATION:NUMBER")
    return {"cut": name, "report": server.overlay.node.cuts.report(Marker(initiator, *map(int, numbers)))}


def take_cut(overlay: LocalOverlay, running: list[str], timeout_s: float = 2.0) -> dict[str, Any]:
    """Begins a cut at the first of the brokers that run, and returns the balance of what all report of it in time.

    A broker behind a link that is down hears of it only when the link is back: its links are named, with why they are
    not compared.
    """
    name = overlay.ask(running[0], "/cut", {"begin": "true"})["cut"]
    until = time.monotonic() + timeout_s
    while True:
        answers = overlay.ask_all("/cut", {"of": name})
        reports = {broker: answer.get("report") for broker, answer in answers.items()}
        missing = [broker for broker in running if not (reports[broker] or {}).get("is_complete")]
        if not missing or time.monotonic() > until:
            return {"cut": name, **balance(reports), "incomplete": missing}
        time.sleep(_POLL_S)
