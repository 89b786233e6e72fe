"""The interface of an application that lives inside a replicated broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

__all__ = ["Application", "Publication"]

Publication = tuple[str, bytes, bool]
"""A topic, a payload, and whether the message is to be retained."""


class Application(Protocol):
    """A deterministic state machine that hears messages and publishes others.

    Every replica runs it on the same messages in the same order, so it must not look at a clock, draw random numbers or
    raise. What it publishes is sent by every replica to the subscribers that are connected there; an application does
    not hear what applications publish.
    """

    @property
    def name(self) -> str:
        """Under which its state is kept; no two applications of a group have the same."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topic filters of the messages it wants to hear."""

    @property
    def watched(self) -> str:
        """Prefix of the topic filters whose subscribers it wants to know of; empty for none."""

    def subscribed(self, topic_filter: str, is_held: bool) -> None:
        """Hears that a filter that begins with `watched` has subscriptions, or has none any more.

        Subscriptions are part of the state of the group, so it hears the same on every replica. After `restore` it
        hears of all that there are.
        """

    def published(self, topic: str, payload: bytes, time_us: int) -> Iterable[Publication]:
        """Hears a message, and says what to publish."""

    def tick(self, time_us: int) -> Iterable[Publication]:
        """The time of the log has moved on."""

    def snapshot(self) -> bytes:
        """The whole state. Equal states give equal bytes."""

    def restore(self, state: bytes) -> None:
        """Replaces the state by that of a snapshot; empty bytes are the initial state."""
