"""The page of the tour: one HTML file with its figures, their numbers, its style and its script inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Final

from surecast.studio.page import (
    Table,
    csv_text,
    html_figure,
    html_save_link,
    html_table,
    html_text,
    plain_values,
    render_document,
)
from surecast.tour.stage_content import (
    Block,
    CheckedClaim,
    CheckedClaims,
    Code,
    Picture,
    Result,
    SavedTable,
    Text,
    Tile,
)

__all__ = ["STYLE", "render_tour"]

_ROWS_SHOWN: Final = 200
"""Rows of a table that stand on the page; all of them are in what can be saved."""


def render_tour(results: Sequence[Result], subtitle: str, about: str, following: Sequence[tuple[str, str]]) -> str:
    """Returns the whole page. `following` are commands to try next, each with its purpose.

    >>> failed = Result("plan", "Plan", "Where?", "failed", 0.5, why="there is <no> disk")
    >>> "there is &lt;no&gt; disk" in render_tour([failed], "one stage", "", [])
    True
    """
    body: list[str] = []
    figures = 0
    for number, result in enumerate(results, start=1):
        text, figures = _stage(result, number, figures)
        body.append(text)
    links = "".join(_link(result, number) for number, result in enumerate(results, start=1))
    header = (
        '<div class="top"><h1>The Surecast tour</h1>'
        '<button id="theme" type="button" hidden aria-label="Switch between light and dark">Dark</button></div>'
        f'<p class="subtitle">{html_text(subtitle)}</p><nav>{links}</nav>'
    )
    body.append(_following(following))
    footer = html_text(about)
    return render_document("The Surecast tour", header, body, has_figures=True, style=STYLE, footer=footer)


def _link(result: Result, number: int) -> str:
    took = f"{result.seconds:.1f} s" if result.state == "done" else result.state
    return (
        f'<a href="#{html_text(result.name)}" class="s{number}" style="--stage: {_colour(number)}">'
        f"<b>{number}. {html_text(result.title)}</b><span>{html_text(took)}</span></a>"
    )


def _colour(number: int) -> str:
    return f"var(--series-{(0, 6, 1, 2, 3)[(number - 1) % 5]})"


def _stage(result: Result, number: int, figures: int) -> tuple[str, int]:
    """Returns the HTML of a stage; `figures` counts those before it."""
    state = f'<span class="state {result.state}">{result.state}, {result.seconds:.1f} s</span>'
    parts = [
        f'<section class="stage s{number}" id="{html_text(result.name)}">',
        f'<h2><span class="number-of">{number}</span>{html_text(result.title)}{state}</h2>',
        f'<p class="question">{html_text(result.question)}</p>',
    ]
    if result.why:
        parts.append(f'<p class="why"><strong>{result.state.capitalize()}.</strong> {html_text(result.why)}</p>')
    if result.outcome is not None:
        parts.append(f'<p class="lead">{html_text(result.outcome.lead)}</p>')
        parts.append(f'<div class="tiles">{"".join(map(_tile, result.outcome.tiles))}</div>')
        for block in result.outcome.blocks:
            figures += isinstance(block, Picture)
            parts.append(_block(block, figures))
    parts.append("</section>")
    return "\n".join(parts), figures


def _tile(tile: Tile) -> str:
    more = f"<span>{html_text(tile.more)}</span>" if tile.more else ""
    return f'<div class="tile"><span>{html_text(tile.label)}</span><strong>{html_text(tile.value)}</strong>{more}</div>'


def _block(block: Block, number: int) -> str:
    match block:
        case Text(text, heading):
            return (f"<h3>{html_text(heading)}</h3>" if heading else "") + f"<p>{html_text(text)}</p>"
        case SavedTable():
            return _numbers(block, block.table.caption)
        case Picture(chart, numbers):
            heading, below = html_text(chart.title), _numbers(numbers, "The numbers behind it")
            return f"<h3>{heading}</h3>{html_figure(chart, number)}{below}"
        case CheckedClaims(title, verdicts):
            return f'<h3>{html_text(title)}</h3><ul class="checks">{"".join(map(_verdict, verdicts))}</ul>'
        case Code(title, text, name):
            return (
                f"<h3>{html_text(title)}</h3><pre><code>{escape(text)}</code></pre>"
                f'<p class="downloads">Save it as {html_save_link(name, "text/yaml", text)}.</p>'
            )


def _verdict(verdict: CheckedClaim) -> str:
    kind = "open" if verdict.holds is None else "yes" if verdict.holds else "no"
    return f'<li class="{kind}">{html_text(verdict.claim)}<span>{html_text(verdict.evidence)}</span></li>'


def _numbers(numbers: SavedTable, summary: str) -> str:
    table, name = numbers.table, numbers.name
    rows = [[plain_values(cell, 8) for cell in row] for row in table.rows]
    records = json.dumps({"columns": list(table.header), "rows": rows}, separators=(",", ":"))
    saved_csv = html_save_link(f"{name}.csv", "text/csv", csv_text(Table(table.header, rows, "")))
    saved_json = html_save_link(f"{name}.json", "application/json", records)
    saved = f'<p class="downloads">Save the numbers as {saved_csv} or {saved_json}.</p>'
    shown = html_table(table, figures=5, rows_max=_ROWS_SHOWN)
    if not numbers.folded:
        return shown + saved
    left = len(table.rows) - _ROWS_SHOWN
    rest = f"<p>And {left:,} more rows, which are in the files.</p>" if left > 0 else ""
    return f"<details><summary>{html_text(summary)}</summary>{shown}{rest}</details>{saved}"


def _following(commands: Sequence[tuple[str, str]]) -> str:
    if not commands:
        return ""
    items = "".join(
        f"<li>{html_text(purpose)}<br><code>{html_text(command)}</code></li>" for command, purpose in commands
    )
    return f'<section class="stage next" id="next"><h2>What to try next</h2><ul>{items}</ul></section>'


STYLE: Final = """
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
body { max-width: 68rem; }
.top { display: flex; gap: 1rem; align-items: flex-start; justify-content: space-between; }
.top h1 { font-size: clamp(1.6rem, 1.1rem + 2.4vw, 2.5rem); letter-spacing: -.02em; }
.top .subtitle { font-size: 1.05rem; max-width: 46rem; }
#theme { flex: none; font: inherit; font-size: .85rem; color: var(--ink); background: var(--panel); cursor: pointer;
  border: 1px solid var(--grid); border-radius: 2rem; padding: .35rem .9rem; }
#theme:focus-visible, nav a:focus-visible, summary:focus-visible { outline: 2px solid var(--accent);
  outline-offset: 2px; }
nav { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1.2rem 0 .5rem; }
nav a { display: block; text-decoration: none; color: var(--ink); background: var(--panel); border-radius: .6rem;
  padding: .6rem .8rem; border: 1px solid var(--grid); border-top: 3px solid var(--stage); }
nav a:hover { border-color: var(--stage); }
nav b { display: block; }
nav span { color: var(--muted); font-size: .82rem; }
.stage { --stage: var(--series-0); margin-top: 2.6rem; padding-top: .4rem; border-top: 3px solid var(--stage); }
.s2 { --stage: var(--series-6); } .s3 { --stage: var(--series-1); } .s4 { --stage: var(--series-2); }
.s5 { --stage: var(--series-3); }
.stage > h2 { font-size: 1.55rem; margin: .6rem 0 .1rem; letter-spacing: -.01em; }
.stage h3 { font-size: 1.08rem; margin: 2rem 0 .3rem; }
.number-of { color: var(--stage); margin-right: .5rem; }
.question { color: var(--muted); margin: 0 0 .6rem; font-style: italic; }
.lead { font-size: 1.06rem; max-width: 50rem; }
.state { display: inline-block; vertical-align: middle; font-size: .78rem; font-weight: 600; letter-spacing: 0;
  margin-left: .6rem; padding: .1rem .6rem; border-radius: 1rem; border: 1px solid currentColor; color: var(--muted); }
.state.failed { color: var(--accent); } .state.skipped { color: var(--muted); } .state.done { color: var(--series-2); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .7rem; margin: 1rem 0 .4rem; }
.tile { background: var(--panel); border-radius: .6rem; padding: .7rem .9rem; border: 1px solid var(--grid); }
.tile span { display: block; color: var(--muted); font-size: .82rem; }
.tile strong { display: block; font-size: 1.5rem; line-height: 1.25;
  font-variant-numeric: tabular-nums; color: var(--stage); overflow-wrap: anywhere; }
figcaption { font-size: .95rem; }
td, thead th { white-space: normal; min-width: 4.5rem; } td:last-child:not(.number) { min-width: 15rem; }
.why { border-left: 4px solid var(--accent); background: var(--panel); padding: .7rem 1rem; border-radius: .2rem; }
.checks { list-style: none; padding: 0; margin: .6rem 0 1rem; }
.checks li { position: relative; padding: .5rem .8rem .5rem 2.6rem; margin: .4rem 0;
  background: var(--panel); max-width: none; border: 1px solid var(--grid); border-radius: .5rem; }
.checks li::before { position: absolute; left: .8rem; top: .45rem; font-weight: 700; font-size: 1.1rem; }
.checks .yes::before { content: "\\2713"; color: var(--series-2); }
.checks .no::before { content: "\\2717"; color: var(--accent); }
.checks .open::before { content: "\\2248"; color: var(--series-5); }
.checks span { color: var(--muted); font-size: .92rem; display: block; }
details { margin: .4rem 0 .2rem; } .downloads { margin: .2rem 0 1rem; }
summary { cursor: pointer; color: var(--muted); font-size: .92rem; }
pre { background: var(--panel); border: 1px solid var(--grid); border-radius: .5rem; padding: .8rem 1rem;
  overflow: auto; max-height: 28rem; font: .84rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.next li { margin: .45rem 0; } .next code { font-size: .9rem; background: var(--panel); padding: .1rem .35rem;
  border-radius: .3rem; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .plot { height: max(calc(var(--least) * .92), 21rem); }
  th, td { padding: .35rem .55rem; }
  .tiles { grid-template-columns: 1fr 1fr; } .tile strong { font-size: 1.2rem; }
  nav { grid-template-columns: 1fr 1fr; }
}
@media print {
  #theme, details { display: none; }
  .stage + .stage { break-before: page; margin-top: 0; } .next.next { break-before: auto; margin-top: 2rem; }
  nav { grid-template-columns: repeat(5, 1fr); } nav a { padding: .3rem .5rem; }
  .tiles { grid-template-columns: repeat(4, 1fr); } .tile { padding: .4rem .6rem; } .tile strong { font-size: 1.1rem; }
  .tiles, .checks li, pre { break-inside: avoid; }
  pre { max-height: none; white-space: pre-wrap; font-size: 7.5pt; overflow: visible; }
  .plot { height: var(--least); }
}
"""
