"""Finds the policies for response targets in a process of its own, so that no client waits for the numbers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final, Protocol

from surecast.extras import missing_extra
from surecast.protocol.broker.response_target import Decision
from surecast.protocol.broker.targets import Question

__all__ = ["COMMAND", "DecisionTaker", "TargetAdviser", "decision_of", "question_line"]

COMMAND: Final = (sys.executable, "-m", "surecast.prediction.dropping.decisions")
_PACKAGES: Final = ("numpy", "scipy", "numba")
_ANSWER_S: Final = 30.0
_IDLE_S: Final = 60.0
_AGAIN_S: Final = 60.0
_REASON_MAX: Final = 500


class DecisionTaker(Protocol):
    """The broker that asked."""

    def take_decision(self, key: str, revision: int, decision: Decision) -> None:
        """A decision has been found."""


class TargetAdviser:
    """Asks the process one question after the other, in a thread. Both begin with the first question, and end when
    there has been none for a minute.

    A process that dies or takes too long is replaced; the question then has the answer that no policy was found.
    """

    def __init__(self, taker: DecisionTaker, command: Sequence[str] = COMMAND):
        self._taker = taker
        self._command = tuple(command)
        self._waiting: dict[str, Question] = {}
        self._asked: dict[str, tuple[int, float]] = {}
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def ask(self, questions: Iterable[Question]) -> None:
        """Has decisions found, unless they are being found already; the loop that runs now hears of them."""
        now = time.monotonic()
        with self._lock:
            for question in questions:
                revision, asked_s = self._asked.get(question.key, (0, 0.0))
                if revision == question.revision and now - asked_s < _AGAIN_S:
                    continue
                self._asked[question.key] = (question.revision, now)
                self._waiting[question.key] = question
            if not self._waiting or self._is_stopped:
                return
            self._lock.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, args=(asyncio.get_running_loop(),), name="targets", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Ends the process and the thread."""
        with self._lock:
            self._is_stopped = True
            self._waiting.clear()
            self._lock.notify()
            thread, process = self._thread, self._process
        if process is not None:
            process.kill()
        if thread is not None:
            thread.join(_ANSWER_S)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while (question := self._next()) is not None:
                decision = decision_of(self._answer(question))
                if not self._is_stopped:
                    loop.call_soon_threadsafe(self._take, question, decision)
        finally:
            self._end_process()

    def _next(self) -> Question | None:
        """Returns what is to be asked next; None when the thread is to end."""
        with self._lock:
            self._lock.wait_for(lambda: self._waiting or self._is_stopped, _IDLE_S)
            if self._waiting:
                return self._waiting.pop(next(iter(self._waiting)))
            self._thread = None
            return None

    def _take(self, question: Question, decision: Decision) -> None:
        with self._lock:
            if self._asked.get(question.key, (0, 0.0))[0] == question.revision:
                del self._asked[question.key]
        self._taker.take_decision(question.key, question.revision, decision)

    def _answer(self, question: Question) -> dict[str, Any]:
        missing = next((package for package in _PACKAGES if find_spec(package) is None), None)
        if missing is not None:
            return {"error": f"this broker computes no policies: {missing_extra(missing)}"}
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(_ANSWER_S, self._process.kill)
        timer.start()
        with suppress(OSError, ValueError):
            self._process.stdin.write(question_line(question))
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline() or b"null")
            if isinstance(answer, dict):
                timer.cancel()
                return answer
        timer.cancel()
        self._end_process()
        return {"error": "the process that computes policies failed"}

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):
                process.communicate()


def question_line(question: Question) -> bytes:
    """Returns a question as the process reads it."""
    target, seen = question.target, question.estimates
    data = {
        "key": question.key,
        "revision": question.revision,
        "time_s": target.time_s,
        "quantile": target.quantile,
        "success_min": target.success_min,
        "policy": target.policy,
        "on": list(seen.on),
        "off": list(seen.off),
        "arrival_per_s": seen.arrival_per_s,
        "arrived": seen.arrived,
        "service_per_s": seen.service_per_s,
        "served": seen.served,
    }
    return json.dumps(data).encode() + b"\n"


def decision_of(answer: dict[str, Any]) -> Decision:
    """Returns the decision in an answer; one that is an error meets no target, and says why."""
    if "error" in answer:
        return Decision(reason=str(answer["error"])[:_REASON_MAX])
    fields = {name: answer[name] for name in Decision.__dataclass_fields__ if name in answer}
    fields["reason"] = str(answer.get("reason", ""))[:_REASON_MAX]
    return Decision(**fields)
