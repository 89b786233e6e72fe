"""The outcome of a load: messages in and out, losses, delays, and what the broker used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from surecast.load.load_plan import LoadPlan
from surecast.load.probing import ProbeShare
from surecast.load.process_times import ProcessUse
from surecast.load.receiving import ReceivedShare
from surecast.load.sending import SentShare
from surecast.load.storming import StormShare

__all__ = ["LoadOutcome"]


@dataclass(slots=True)
class LoadOutcome:
    """All figures of one load. Losses are counted over the whole run, rates and times while it was measured.

    `broker` is what the processes of the broker used meanwhile, where they are on this machine and were named.
    `left_behind` says what could not be removed from the broker afterwards.
    """

    plan: LoadPlan
    sent: SentShare
    received: ReceivedShare
    probes: ProbeShare | None = None
    storm: StormShare | None = None
    broker: ProcessUse | None = None
    left_behind: list[str] = field(default_factory=list)

    @property
    def sent_per_s(self) -> float:
        """Messages that publishers sent in a second."""
        return self.sent.sent_in_window / self.plan.seconds

    @property
    def delivered_per_s(self) -> float:
        """Deliveries that subscribers took in a second."""
        return self.received.in_window / self.plan.seconds

    @property
    def expected(self) -> int:
        """Deliveries that all messages sent should have."""
        streams = self.plan.streams
        return sum(count * self.plan.copies(streams[number][1]) for number, count in self.sent.streams.items())

    @property
    def lost(self) -> int:
        """Deliveries that did not come while there was time for them."""
        return self.expected - sum(self.received.distinct.values())

    @property
    def broker_us_per_message(self) -> float:
        """Processor time of the broker for one message that was sent, with all its deliveries."""
        if self.broker is None or not self.sent.sent_in_window:
            return math.nan
        return self.broker.processor_s / self.sent.sent_in_window * 1e6

    @property
    def broker_share(self) -> float:
        """Processors that the broker used on average; 1 is one core."""
        return math.nan if self.broker is None else self.broker.processor_s / self.plan.seconds

    @property
    def generator_s(self) -> float:
        """Processor time of the processes that published and subscribed."""
        return self.sent.processor_s + self.received.processor_s

    def problems(self) -> list[str]:
        """Returns in words what broke a promise of MQTT, or kept the load from being what was asked for."""
        sent, received = self.sent, self.received
        counts = [
            (self.lost, "delivery was lost", "deliveries were lost"),
            (received.disordered, "delivery came out of order", "deliveries came out of order"),
            (received.duplicates, "delivery came again", "deliveries came again"),
            (sent.unacknowledged, "message was never acknowledged", "messages were never acknowledged"),
            (sent.refused, "message was refused", "messages were refused"),
            (
                sent.withheld,
                "due message was never sent: the broker took no more",
                "due messages were never sent: the broker took no more",
            ),
            (self.probes.lost if self.probes else 0, "probe was lost", "probes were lost"),
            (sum(self.storm.failures.values()) if self.storm else 0, "connection failed", "connections failed"),
            (
                self.storm.withheld if self.storm else 0,
                "due connection was not tried: 1,000 were open",
                "due connections were not tried: 1,000 were open",
            ),
        ]
        return [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count] + self.left_behind

    @property
    def is_sound(self) -> bool:
        """Returns whether every message was sent and came, once at QoS 2 and 0, in order."""
        return not self.problems()

    def as_dict(self) -> dict[str, object]:
        """Returns all figures, for JSON."""
        sent, received, seconds = self.sent, self.received, self.plan.seconds
        figures: dict[str, object] = {
            "broker": str(self.plan.access),
            "seconds": seconds,
            "publishers": self.plan.publishers,
            "subscribers": self.plan.subscribers,
            "topics": self.plan.topics,
            "qos": self.plan.qos,
            "intended_per_s": self.plan.rate_per_s,
            "sent_per_s": self.sent_per_s,
            "delivered_per_s": self.delivered_per_s,
            "sent": sent.sent,
            "expected": self.expected,
            "lost": self.lost,
            "disordered": received.disordered,
            "duplicates": received.duplicates,
            "unclear": received.unclear,
            "unacknowledged": sent.unacknowledged,
            "refused": sent.refused,
            "withheld": sent.withheld,
            "messages_per_write": sent.sent / max(1, sent.writes),
            "deliveries_per_read": received.delivered / max(1, received.reads),
            "delivery_delay": received.delay.as_dict(),
            "delivery_times_thrown_away": received.thrown_away,
            "acknowledgement_delay": sent.acknowledgement.as_dict(),
            "lateness": sent.late.as_dict(),
            "generator_processor_s": self.generator_s,
            "problems": self.problems(),
        }
        if self.probes is not None:
            figures["probe_delay"] = self.probes.delay.as_dict()
            figures["probe_lateness"] = self.probes.late.as_dict()
            figures["probes"] = {name: getattr(self.probes, name) for name in ("sent", "lost", "thrown_away")}
        if self.storm is not None:
            figures["connection_delay"] = self.storm.delay.as_dict()
            figures["connections"] = {
                "tried": self.storm.tried,
                "accepted": self.storm.accepted,
                "withheld": self.storm.withheld,
                "failures": dict(self.storm.failures),
            }
        if self.broker is not None:
            figures["broker_use"] = {
                "processor_s": self.broker.processor_s,
                "cores": self.broker_share,
                "us_per_message": self.broker_us_per_message,
                "memory_bytes": self.broker.memory_bytes,
                "waits": self.broker.waits,
                "held_up_s": self.broker.held_up_s,
            }
        return figures


def merge_sent(shares: Iterable[SentShare]) -> SentShare:
    """Returns the sum of what publishing processes did."""
    total = SentShare()
    for share in shares:
        _add(total, share, ("sent", "sent_in_window", "payload_bytes", "writes", "withheld", "refused",
                            "unacknowledged", "written_off", "processor_s"))  # fmt: skip
        total.streams.update(share.streams)
        total.late.merge(share.late)
        total.acknowledgement.merge(share.acknowledgement)
    return total


def merge_received(shares: Iterable[ReceivedShare]) -> ReceivedShare:
    """Returns the sum of what subscribing processes got."""
    total = ReceivedShare()
    for share in shares:
        _add(total, share, ("delivered", "in_window", "wire_bytes", "disordered", "duplicates", "unclear", "reads",
                            "thrown_away", "processor_s"))  # fmt: skip
        total.distinct.update(share.distinct)
        total.delay.merge(share.delay)
    return total


def _add(total: object, share: object, names: Sequence[str]) -> None:
    for name in names:
        setattr(total, name, getattr(total, name) + getattr(share, name))
