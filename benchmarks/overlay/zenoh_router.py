"""A Zenoh router as a process of its own.

    python -m benchmarks.overlay.zenoh_router OWN gossip|quiet [NEIGHBOUR ...]

OWN and each NEIGHBOUR are `tcp/127.0.0.1:PORT`. The router is the one of the package `eclipse-zenoh`, with its defaults
except for discovery: no multicast, and gossip scouting only if it is asked for.
"""

from __future__ import annotations

import json
import signal
import sys


def main(own: str, gossip: bool, neighbours: list[str]) -> None:
    """Routes until SIGTERM."""
    import zenoh

    config = zenoh.Config()
    for key, value in (
        ("mode", "router"),
        ("listen/endpoints", [own]),
        ("connect/endpoints", neighbours),
        ("scouting/multicast/enabled", False),
        ("scouting/gossip/enabled", gossip),
    ):
        config.insert_json5(key, json.dumps(value))
    session = zenoh.open(config)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    session.close()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(sys.argv[1], sys.argv[2] == "gossip", sys.argv[3:])
