"""Administration of a running broker: its answers about itself, and the changes that can be asked of it.

| request | answer |
|---|---|
| `GET /healthz` | 200 as long as the broker runs |
| `GET /readyz` | 200 if clients can connect, 503 otherwise |
| `GET /metrics` | figures for Prometheus |
| `GET /status` | the accounts, sizes and listeners |
| `GET /clients`, `GET /sessions` | connections; sessions with their accounts, the longest queue first (`limit`) |
| `GET /targets` | sessions with a response target: what was decided, and how it is kept (`limit`) |
| `POST /kick?client=ID` | closes a client's connection; with `end_session=true` its session ends too |
| `POST /kick?client=ID&user=NAME` | the same, where several users have a client of that identifier |
| `GET /log?offset=N&limit=M` | records of the event log |
| `GET /links`, `/routes`, `/accounts` | of a broker of an overlay: its links, the demand behind them, its accounts |
| `POST /gate?neighbour=NAME` | of one with `gates`: cuts a link (`cut=true`), delays it (`delay_s`), loses (`loss`) |

The first three are open to all. The others are for whoever can open the local socket, or shows the token; the log also
for users who are named as its readers.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from surecast import __version__
from surecast.broker.admin_http import AdminRequest, Response, json_response
from surecast.broker.authenticator import Authenticator
from surecast.broker.event_log import EventLogError, OffsetAhead, OffsetGone, read_from
from surecast.broker.listeners import Listener
from surecast.broker.shell import Shell
from surecast.broker.target_view import target_counts, target_view
from surecast.errors import UserError
from surecast.protocol.broker import Connection, Session
from surecast.protocol.mqtt import V5, V31, V311

__all__ = ["Admin", "View"]

_VERSIONS = {V31: "3.1", V311: "3.1.1", V5: "5.0"}
_LIMIT = 1_000
_LIMIT_MAX = 10_000
_Answer = Callable[[AdminRequest], Response]
_POST = ("/kick", "/gate")
View = Callable[[Mapping[str, str]], dict[str, Any]]
"""A view for administrators beside those that every broker has: returns it for a query, or raises UserError."""


class _RequestError(Exception):
    """A request is wrong; the message says why."""


class Admin:
    """Answers requests about one broker."""

    def __init__(
        self,
        name: str,
        server: Shell,
        metrics: Callable[[], bytes],
        listeners: list[Listener],
        *,
        is_ready: Callable[[], bool],
        state_folder: Path | None = None,
        log_folder: Path | None = None,
        token: str | None = None,
        authenticator: Authenticator | None = None,
        log_readers: frozenset[str] = frozenset(),
        executor: Executor | None = None,
        views: Mapping[str, View] | None = None,
    ):
        self._name = name
        self._server = server
        self._metrics_text = metrics
        self._listeners = listeners
        self._is_ready = is_ready
        self._state_folder = state_folder
        self._log_folder = log_folder
        self._token = token
        self._authenticator = authenticator
        self._log_readers = log_readers
        self._executor = executor
        self._open: dict[str, _Answer] = {"/healthz": self._health, "/readyz": self._ready, "/metrics": self._metrics}
        self._closed: dict[str, _Answer] = {
            "/status": self._status,
            "/clients": self._clients,
            "/sessions": self._sessions,
            "/targets": self._targets,
            "/kick": self._kick,
            **{path: partial(_answer, view) for path, view in (views or {}).items()},
        }

    async def handle(self, request: AdminRequest) -> Response:
        """Answers one request."""
        wanted = "POST" if request.path in _POST else "GET"
        if request.method != wanted and not (wanted == "GET" and request.method == "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} takes {wanted}", {"Allow": wanted})
        try:
            if request.path in self._open:
                return self._open[request.path](request)
            if request.path == "/log":
                return await self._log(request)
            if request.path not in self._closed:
                return _refusal(
                    HTTPStatus.NOT_FOUND, "there is nothing here; see /status, /clients, /sessions, /targets, /log"
                )
            if not self._is_administrator(request):
                return _unauthorised() if self._token is not None else _local_only()
            return self._closed[request.path](request)
        except _RequestError as error:
            return _refusal(HTTPStatus.BAD_REQUEST, str(error))

    # Authentication of requests.

    def _is_administrator(self, request: AdminRequest) -> bool:
        if request.is_local:
            return True
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        return (
            self._token is not None
            and kind.lower() == "bearer"
            and hmac.compare_digest(given.strip().encode(), self._token.encode())
        )

    async def _may_read_log(self, request: AdminRequest) -> bool:
        if self._is_administrator(request):
            return True
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic" or self._authenticator is None:
            return False
        try:
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        # The password is looked at even where the name is wrong: the time says nothing.
        is_right = await self._authenticator.check(name, password.encode(), request.address)
        return bool(is_right) and name in self._log_readers

    # What is answered.

    def _health(self, request: AdminRequest) -> Response:
        return Response(200, b"ok\n")

    def _ready(self, request: AdminRequest) -> Response:
        if not self._is_ready():
            return Response(503, b"not ready\n")
        alarms = "".join(
            f"{kind} alarm, publishers have to wait: {text}\n" for kind, text in self._server.alarms.items()
        )
        return Response(200, f"ready\n{alarms}".encode())

    def _metrics(self, request: AdminRequest) -> Response:
        return Response(200, self._metrics_text(), "text/plain; version=0.0.4; charset=utf-8")

    def _status(self, request: AdminRequest) -> Response:
        broker = self._server.broker
        counters, accounts, store = broker.counters, broker.accounts(), self._server.store
        statistics = store.statistics()
        sessions = broker.sessions.by_key
        return json_response(
            {
                "name": self._name,
                "version": __version__,
                "ready": self._is_ready(),
                "uptime_s": round(self._server.uptime_s, 3),
                "durability": store.durability,
                "folder": None if self._state_folder is None else str(self._state_folder),
                "listeners": [
                    {
                        "name": listener.name,
                        "kind": listener.spec.kind,
                        "addresses": listener.addresses,
                        "connections": listener.connection_limit.connections,
                        "turned_away": dict(listener.connection_limit.turned_away),
                    }
                    for listener in self._listeners
                ],
                "sessions": len(sessions),
                "connected": sum(1 for session in sessions.values() if session.connection is not None),
                "subscriptions": broker.routes.count,
                "retained": len(broker.retained),
                "accounts": accounts.as_dict(),
                "published": counters.published,
                "bytes_received": counters.bytes_in,
                "bytes_sent": counters.bytes_out,
                "refused": counters.refused,
                "unauthorised": counters.unauthorised,
                "protocol_errors": counters.protocol_errors,
                "limited": dict(counters.limited + self._server.limited),
                "alarms": self._server.alarms,
                "store": {
                    "keys": statistics.live_keys,
                    "bytes": statistics.log_bytes,
                    "commits": statistics.commits,
                    "warnings": list(store.warnings),
                },
            }
        )

    def _clients(self, request: AdminRequest) -> Response:
        now = self._server.time_s()
        open_ones = [c for c in self._server.broker.connections.values() if c.session is not None]
        limit = _number(request, "limit", _LIMIT, _LIMIT_MAX)
        found = sorted(open_ones, key=lambda c: c.connected_at)[:limit]
        return json_response({"total": len(open_ones), "clients": [_client(each, now) for each in found]})

    def _sessions(self, request: AdminRequest) -> Response:
        broker, now = self._server.broker, self._server.time_s()
        broker.routes.settle()
        limit = _number(request, "limit", _LIMIT, _LIMIT_MAX)
        sessions = sorted(broker.sessions.by_key.values(), key=lambda s: (-s.queued, s.client))
        return json_response({"total": len(sessions), "sessions": [_session(each, now) for each in sessions[:limit]]})

    def _targets(self, request: AdminRequest) -> Response:
        now = self._server.time_s()
        limit = _number(request, "limit", _LIMIT, _LIMIT_MAX)
        watched = [each for each in self._server.broker.sessions.by_key.values() if each.target is not None]
        chosen = sorted(watched, key=lambda each: (each.client, each.user))[:limit]
        views = [target_view(each, each.target, now) for each in chosen if each.target is not None]
        return json_response({"total": len(watched), **target_counts(watched), "targets": views})

    def _kick(self, request: AdminRequest) -> Response:
        client, user = request.query.get("client", ""), request.query.get("user")
        named = self._server.broker.sessions.named(client)
        if user is not None:
            named = [session for session in named if session.user == user]
        if not named:
            whose = "" if user is None else f" of the user {user}" if user else " without a user"
            return _refusal(HTTPStatus.NOT_FOUND, f"there is no client {client}{whose}")
        if len(named) > 1:
            users = ", ".join(session.user or "(none)" for session in named)
            text = f"{client} is a client of several users: {users}; say which with user=NAME, empty for none"
            return _refusal(HTTPStatus.CONFLICT, text)
        session = named[0]
        end_session = request.query.get("end_session") == "true"
        if session.connection is None and not end_session:
            return _refusal(HTTPStatus.CONFLICT, f"{client} is not connected; its session can be ended")
        self._server.kick(session.key, end_session)
        return json_response({"kicked": client, "user": session.user or None})

    async def _log(self, request: AdminRequest) -> Response:
        if not await self._may_read_log(request):
            return _unauthorised()
        if self._log_folder is None:
            return _refusal(HTTPStatus.NOT_FOUND, "this broker writes no event log; see event_log in its configuration")
        offset = _number(request, "offset", 0, 1 << 62)
        limit = max(1, _number(request, "limit", _LIMIT, _LIMIT_MAX))
        try:
            records = await asyncio.get_running_loop().run_in_executor(
                self._executor, read_from, self._log_folder, offset, limit
            )
        except OffsetGone as error:
            data = {"error": str(error), "first_available": error.first_available}
            return json_response(data, HTTPStatus.GONE)
        except OffsetAhead as error:
            return json_response({"error": str(error), "next_offset": error.next_offset}, 416)
        except EventLogError as error:
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        next_offset = int(records[-1]["offset"]) + 1 if records else offset
        return json_response({"records": records, "next_offset": next_offset})


def _answer(view: View, request: AdminRequest) -> Response:
    try:
        return json_response(view(request.query))
    except UserError as error:
        return _refusal(HTTPStatus.BAD_REQUEST, str(error))


def _refusal(status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> Response:
    return json_response({"error": text}, status, headers)


def _unauthorised() -> Response:
    text = "show the token: Authorization: Bearer ..."
    return _refusal(HTTPStatus.UNAUTHORIZED, text, {"WWW-Authenticate": 'Bearer, Basic realm="surecast"'})


def _local_only() -> Response:
    text = "administration is at the local socket only; http.token_file opens it to whoever shows the token"
    return _refusal(HTTPStatus.FORBIDDEN, text)


def _number(request: AdminRequest, name: str, default: int, most: int) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise _RequestError(f"{name} is {text!r}; write a whole number")
    return min(int(text), most)


def _client(connection: Connection, now: float) -> dict[str, Any]:
    session = connection.session
    assert session is not None
    return {
        "client": session.client,
        "user": connection.user or None,
        "address": connection.origin.peer,
        "listener": connection.origin.listener,
        "version": _VERSIONS[connection.connect.version] if connection.connect is not None else None,
        "connected_s": round(now - connection.connected_at, 3),
        "silent_s": round(now - connection.heard_at, 3),
        "queued": session.queued,
        "congested": connection.congested,
    }


def _session(session: Session, now: float) -> dict[str, Any]:
    return {
        "client": session.client,
        "user": session.user or None,
        "connected": session.connection is not None,
        "persistent": session.persistent,
        "ends_in_s": None if math.isinf(session.ends_at) else round(max(0.0, session.ends_at - now), 1),
        "subscriptions": len(session.subscriptions),
        "inflight": len(session.inflight),
        "waiting": len(session.waiting),
        "bytes_queued": session.bytes_queued,
        "accounts": session.accounts.as_dict(),
    }
