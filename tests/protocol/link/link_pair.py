"""Two link sessions over a connection that delivers in order, and that a test cuts, with a record of every frame."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from surecast.protocol.link import CONTROL, LinkAck, LinkHello, LinkSession, NumberedFrame

WINDOW = 40
FRAME_BYTES_MAX = 20


@dataclass
class End:
    """One broker's end: its session, what it put into it, what it received, and what became of its frames."""

    session: LinkSession[bytes]
    incarnation: int = 1
    put: int = 0
    sent: dict[int, list[bytes]] = field(default_factory=dict)
    received: dict[int, list[bytes]] = field(default_factory=dict)
    lost: list[bytes] = field(default_factory=list)
    came_after_all: int = 0
    died_with: int = 0
    held: deque[tuple[int, int]] = field(default_factory=deque)


class LinkPair:
    """Ends "a" and "b". Every frame has content of its own, so that a repetition or a gap is seen."""

    def __init__(self, random: Random, session: type[LinkSession[bytes]] = LinkSession):
        self.random = random
        self.kind = session
        self.ends = {name: End(session(1, WINDOW)) for name in "ab"}
        self.wire: dict[str, deque[NumberedFrame[bytes] | LinkAck]] | None = None

    def put(self, name: str) -> None:
        """One more frame for the other end, on one of two trees or the control lane."""
        end, lane = self.ends[name], self.random.choice((CONTROL, 0, 1))
        content = f"{name}{end.put}".encode().ljust(self.random.randrange(5, FRAME_BYTES_MAX), b".")
        end.put += 1
        end.sent.setdefault(lane, []).append(content)
        end.session.put(lane, len(content), content)

    def connect(self, *, heard: str = "ab") -> None:
        """Makes a connection; only the ends in `heard` hear the other's hello before it breaks, unless both do."""
        assert self.wire is None
        hellos: dict[str, LinkHello] = {name: end.session.hello() for name, end in self.ends.items()}
        for name in heard:
            end, other = self.ends[name], "ba"["ab".index(name)]
            resumption = end.session.connect(hellos[other])
            end.lost += [frame.content for frame in resumption.lost]
            end.came_after_all += resumption.came_after_all
            for frame in resumption.unsent:
                end.session.put(frame.lane, frame.size, frame.content)
        self.wire = {name: deque() for name in "ab"}
        if heard != "ab":
            for name in heard:
                self.wire[name].extend(self.ends[name].session.ready())
            self.cut()

    def cut(self) -> None:
        """Breaks the connection: all that is on it is gone."""
        for end in self.ends.values():
            end.session.disconnect()
        self.wire = None

    def write(self, name: str) -> None:
        """An end writes what it may."""
        assert self.wire is not None
        session = self.ends[name].session
        self.wire[name].extend(session.ready())
        if (ack := session.ack()) is not None:
            self.wire[name].append(ack)

    def arrive(self, name: str) -> None:
        """The other end gets the oldest thing that this one wrote."""
        assert self.wire is not None
        if not self.wire[name]:
            return
        message, other = self.wire[name].popleft(), self.ends["ba"["ab".index(name)]]
        if isinstance(message, LinkAck):
            other.session.take_ack(message)
        else:
            other.session.receive(message)
            other.received.setdefault(message.lane, []).append(message.content)
            other.held.append((message.lane, message.size))

    def release(self, name: str) -> None:
        """An end has dealt with the oldest frame that it holds."""
        end = self.ends[name]
        if end.held:
            end.session.release(*end.held.popleft())

    def expire(self, name: str) -> None:
        """An end gives up what it kept."""
        end = self.ends[name]
        end.lost += [frame.content for frame in end.session.expire()]

    def restart(self, name: str) -> None:
        """An end dies and starts anew; what the other received from it stays received, what it kept is gone."""
        assert self.wire is None
        end = self.ends[name]
        end.incarnation += 1
        end.lost += [frame.content for frame in end.session.expire()]
        end.session = self.kind(end.incarnation, WINDOW)
        end.held.clear()

    def step(self) -> None:
        """Does one thing at random."""
        name, draw = self.random.choice("ab"), self.random.random()
        if self.wire is None:
            if draw < 0.5:
                self.put(name)
            elif draw < 0.8:
                self.connect()
            elif draw < 0.87:
                self.connect(heard=name)
            elif draw < 0.94:
                self.expire(name)
            else:
                self.restart(name)
        elif draw < 0.3:
            self.put(name)
        elif draw < 0.55:
            self.write(name)
        elif draw < 0.85:
            self.arrive(name)
        elif draw < 0.97:
            self.release(name)
        else:
            self.cut()

    def settle(self) -> None:
        """Heals the link and lets everything arrive."""
        if self.wire is None:
            self.connect()
        for _ in range(10_000):
            for name in "ab":
                self.write(name)
                while self.wire and self.wire[name]:
                    self.arrive(name)
                while self.ends[name].held:
                    self.release(name)
            if not any(end.session.kept or self.waiting(end) for end in self.ends.values()):
                return
        raise AssertionError("the link does not come to rest")

    @staticmethod
    def waiting(end: End) -> int:
        return sum(end.session.waiting(lane) for lane in (CONTROL, 0, 1))

    def problems(self) -> list[str]:
        """What is wrong with what was received so far; nothing is, on a sound link."""
        problems = []
        for name, end in self.ends.items():
            other = self.ends["ba"["ab".index(name)]]
            for lane, sent in end.sent.items():
                received = other.received.get(lane, [])
                places = {content: place for place, content in enumerate(sent)}
                order = [places[content] for content in received]
                if order != sorted(set(order)):
                    problems.append(f"{name}, lane {lane}: repeated or out of order: {order}")
                missing = set(sent[: order[-1]] if order else []) - set(received) - set(end.lost)
                if missing:
                    problems.append(f"{name}, lane {lane}: {sorted(missing)} came not, and are not counted as lost")
            for lane in (0, 1):
                held = sum(size for on, size in end.held if on == lane)
                if held >= WINDOW + FRAME_BYTES_MAX:
                    problems.append(
                        f"{name}, lane {lane}: {held} bytes were taken and not dealt with, over all sessions"
                    )
        return problems
