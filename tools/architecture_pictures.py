"""Draws the two pictures of docs/background/architecture.md as SVG: the packages, and the way of a publication."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 1000
MARGIN = 16
GAP = 12
LINE = 16
INK, SOFT, EDGE, ARROW = "#1d2733", "#4c5a67", "#9fb2c4", "#51667a"
PAPER, BAND, BOX = "#ffffff", "#f0f4f8", "#ffffff"
# Average widths of a character in pixels: 12 px sans-serif, 13 px monospace. Browsers differ, so these are generous.
TEXT_CHARACTER, CODE_CHARACTER = 6.4, 8.0
STYLE = (
    "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;font-size:12px}"
    ".name{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:13px;font-weight:600}"
    ".title{font-size:16px;font-weight:600}.stage{font-size:13px;font-weight:600}"
)


@dataclass(frozen=True)
class Box:
    """A package and its sentence."""

    name: str
    text: str


@dataclass(frozen=True)
class Step:
    """One step of a publication: the files that take it, and what they do."""

    files: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Stage:
    """Steps that happen at one place, or at one time."""

    title: str
    steps: tuple[Step, ...]


SINGLE = (
    Stage(
        "While bytes arrive, in one turn of the event loop",
        (
            Step(("broker/tcp.py", "broker/websocket.py"), "Receives bytes from the publisher."),
            Step(("broker/server.py",), "Gives the bytes and the time to the core, and plans the end of the turn."),
            Step(("protocol/mqtt/decode.py",), "Cuts the bytes into packets and checks them."),
            Step(("protocol/broker/core.py",), "Calls the handler of each packet."),
            Step(("protocol/broker/incoming.py",), "Checks access rules and QoS 2 duplicates; makes the message."),
            Step(("protocol/broker/routes.py",), "Looks up the subscriptions that match the topic and the content."),
            Step(
                ("protocol/broker/outgoing.py",),
                "Queues the message for each session; assigns packet identifiers; collects the bytes to send.",
            ),
            Step(("protocol/broker/state_journal.py",), "Writes to the journal what must survive a crash."),
        ),
    ),
    Stage(
        "At the end of the turn",
        (
            Step(
                ("broker/store.py", "broker/segment_store.py"),
                "Commits the journal: one write and one fdatasync for all messages of the turn.",
            ),
            Step(
                ("broker/shell.py",),
                "Only then sends: one write for each connection, PUBACK to the publisher, PUBLISH to subscribers.",
            ),
        ),
    ),
)
GROUP = (
    Stage(
        "At the replica of the publisher",
        (
            Step(("broker/tcp.py", "broker/group_server.py"), "Receives bytes from the publisher."),
            Step(
                ("protocol/group/front_end.py",),
                "Decodes packets. PINGREQ, passwords and keep-alive end here; the rest becomes numbered commands.",
            ),
            Step(
                ("broker/replica/node.py", "protocol/paxos/submissions.py"),
                "Sends the commands to the leader, and again if the leader changes.",
            ),
        ),
    ),
    Stage(
        "At the leader",
        (
            Step(
                ("protocol/paxos/leader.py", "protocol/paxos/log_values.py"),
                "Puts the commands of all replicas in a batch and proposes it for the next place in the log.",
            ),
            Step(("broker/replica/peers.py", "broker/replica/links.py"), "Carries the messages between replicas."),
        ),
    ),
    Stage(
        "At every replica",
        (
            Step(
                ("protocol/paxos/participant.py", "broker/segment_store.py"),
                "Accepts the proposal: the vote leaves when it is durable.",
            ),
            Step(
                ("protocol/paxos/replica.py",), "A majority has voted: the batch is chosen, and applied in log order."
            ),
            Step(
                ("protocol/group/machine.py",),
                "Gives the packets to its own broker core: the steps from core.py to outgoing.py on the left.",
            ),
        ),
    ),
    Stage(
        "At each replica that has clients",
        (Step(("broker/shell.py",), "Sends PUBACK where the publisher is and PUBLISH where subscribers are."),),
    ),
)


def packages_picture(layers: Sequence[Sequence[Box]]) -> str:
    """Returns the drawing of the layers, the topmost first; a package may import those in the rows below it."""
    parts: list[str] = []
    y = MARGIN
    for layer in layers:
        width = (WIDTH - 2 * MARGIN - GAP * (len(layer) - 1)) / len(layer)
        lines = [wrapped(box.text, width) for box in layer]
        height = 34 + LINE * max(map(len, lines))
        for index, (box, text) in enumerate(zip(layer, lines, strict=True)):
            x = MARGIN + index * (width + GAP)
            parts.append(rectangle(x, y, width, height, BAND))
            parts.append(label(x + 10, y + 20, box.name, "name"))
            parts += paragraph(x + 10, y + 38, text)
        y += height + GAP
    return document(y - GAP + MARGIN, "The packages of Surecast in layers", parts)


def way_picture() -> str:
    """Returns the drawing of a publication's way through the single broker and through a group."""
    width = (WIDTH - 2 * MARGIN - 2 * GAP) / 2
    left, left_end = column(MARGIN, width, "The single broker", SINGLE)
    right, right_end = column(MARGIN + width + 2 * GAP, width, "A group of replicas", GROUP)
    title = "The way of a publication through the single broker and through a group"
    return document(max(left_end, right_end) + MARGIN, title, [*left, *right])


def column(x: float, width: float, title: str, stages: Sequence[Stage]) -> tuple[list[str], float]:
    """Returns one way from top to bottom, and where it ends."""
    parts = [label(x, MARGIN + 14, title, "title")]
    y = float(MARGIN + 28)
    for number, stage in enumerate(stages):
        if number:
            parts.append(arrow(x + width / 2, y - GAP - 4, y))
        steps, end = stage_steps(x, y, width, stage)
        parts.append(rectangle(x, y, width, end - y, BAND))
        parts.append(label(x + 10, y + 20, stage.title, "stage"))
        parts += steps
        y = end + GAP + 4
    return parts, y - GAP - 4


def stage_steps(x: float, y: float, width: float, stage: Stage) -> tuple[list[str], float]:
    """Returns the boxes of a stage that begins at `y`, and where the stage ends."""
    parts: list[str] = []
    y += 30
    for index, step in enumerate(stage.steps):
        if index:
            parts.append(arrow(x + width / 2, y - GAP, y))
        names = textwrap.wrap(", ".join(step.files), int((width - 40) / CODE_CHARACTER), break_on_hyphens=False)
        lines = wrapped(step.text, width - 20)
        height = 12 + LINE * (len(names) + len(lines))
        parts.append(rectangle(x + 10, y, width - 20, height, BOX))
        parts += [label(x + 20, y + 18 + LINE * n, name, "name") for n, name in enumerate(names)]
        parts += paragraph(x + 20, y + 18 + LINE * len(names), lines)
        y += height + GAP
    return parts, y - GAP + 10


def wrapped(text: str, width: float) -> list[str]:
    """Returns a sentence in lines that fit a box; the marks of code are left out."""
    return textwrap.wrap(text.replace("`", ""), int((width - 20) / TEXT_CHARACTER))


def document(height: float, title: str, parts: Sequence[str]) -> str:
    """Returns a whole SVG file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{ARROW}"/></marker></defs>\n'
    )
    background = f'<rect width="{WIDTH}" height="{height:.0f}" rx="8" fill="{PAPER}"/>'
    return head + "\n".join([background, *parts]) + "\n</svg>\n"


def rectangle(x: float, y: float, width: float, height: float, fill: str) -> str:
    """Returns a box."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} rx="6" fill="{fill}" stroke="{EDGE}"/>'


def label(x: float, y: float, text: str, kind: str) -> str:
    """Returns one line of text of a kind."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" fill="{INK}">{escape(text)}</text>'


def paragraph(x: float, y: float, lines: Sequence[str]) -> list[str]:
    """Returns lines of plain text below each other."""
    return [
        f'<text x="{x:.1f}" y="{y + LINE * number:.1f}" fill="{SOFT}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]


def arrow(x: float, top: float, bottom: float) -> str:
    """Returns an arrow downwards."""
    return (
        f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="{ARROW}" stroke-width="1.4" '
        'marker-end="url(#head)"/>'
    )
