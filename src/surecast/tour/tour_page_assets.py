"""The style sheet of the tour's page, on top of that of all pages."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

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
