"""A link through a process of ours, which counts its bytes and can be cut."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time

from benchmarks.broker.contestants import HOST

__all__ = ["Relay"]

_READ = 1 << 18


class Relay:
    """Forwards connections to a port of this machine, in a thread, until it is closed."""

    def __init__(self, target: int):
        self._target = target
        self._listener = socket.create_server((HOST, 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.bytes = 0
        """Bytes forwarded, in both directions."""
        self.connected_at: float | None = None
        """When the first connection after `mend` came."""
        self._cut = self._ended = False
        self._other: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Ends all connections, and each new one at once."""
        self._cut = True
        until = time.perf_counter() + 2.0
        while self._other and time.perf_counter() < until:
            time.sleep(0.01)

    def mend(self) -> None:
        """Lets connections through again."""
        self.connected_at = None
        self._cut = False

    def close(self) -> None:
        """Ends the thread."""
        self._ended = True
        self._thread.join(2.0)
        self._listener.close()

    def _work(self) -> None:
        while not self._ended:
            if self._cut:
                self._drop(list(self._other))
            for key, _ in self._selector.select(0.01):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._other:
                    self._forward(key.fileobj)
        self._drop(list(self._other))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            near, _ = self._listener.accept()
            if self._cut:
                near.close()
                return
            try:
                far = socket.create_connection((HOST, self._target), timeout=1.0)
            except OSError:
                near.close()
                return
            if self.connected_at is None:
                self.connected_at = time.perf_counter()
            for one, other in ((near, far), (far, near)):
                one.settimeout(10.0)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._other[one] = other
                self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        try:
            data = source.recv(_READ)
            if data:
                self._other[source].sendall(data)
        except OSError:
            data = b""
        if data:
            self.bytes += len(data)
        else:
            self._drop([source])

    def _drop(self, ends: list[socket.socket]) -> None:
        for one in ends:
            other = self._other.pop(one, None)
            for end in (one, other):
                if end is not None:
                    self._other.pop(end, None)
                    with contextlib.suppress(KeyError, ValueError, OSError):
                        self._selector.unregister(end)
                    end.close()
