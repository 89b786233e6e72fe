"""The style sheet and the script of every page."""

from __future__ import annotations

from surecast.studio.style import DARK, FONT_STACK, LIGHT, css_variables

__all__ = ["SCRIPT", "style_sheet"]

_STYLE = """
:root { color-scheme: light; LIGHT }
@media screen and (prefers-color-scheme: dark) { :root:not([data-theme=light]) { color-scheme: dark; DARK } }
:root[data-theme=dark] { color-scheme: dark; DARK }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.5rem clamp(.9rem, 4vw, 2.5rem) 3rem; max-width: 75rem;
  background: var(--surface); color: var(--ink); font: 1rem/1.55 FONTS; }
h1 { font-size: clamp(1.35rem, 1rem + 1.6vw, 1.9rem); line-height: 1.2; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
h3, h4, h5, h6 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
a { color: var(--accent); }
.subtitle { color: var(--muted); margin: 0 0 1rem; max-width: none; }
figure { margin: 1rem 0; }
figcaption { color: var(--muted); font-size: .92rem; max-width: 52rem; margin-top: .6rem; }
.plot { width: 100%; height: clamp(var(--least), calc(min(100vw, 72rem) * var(--ratio)), max(46rem, var(--least)));
  position: relative; }
.plot .textpoint text { paint-order: stroke; stroke: var(--surface); stroke-width: 3px; stroke-linejoin: round; }
.table { overflow: auto; max-height: 34rem; margin: 1rem 0; border: 1px solid var(--grid); border-radius: .4rem; }
.table:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .6rem .8rem; }
th, td { text-align: left; padding: .4rem .8rem; border-top: 1px solid var(--grid); vertical-align: top; }
td, thead th { white-space: nowrap; }
td:last-child { white-space: normal; min-width: 9rem; }
tbody th { font-weight: 600; overflow-wrap: break-word; min-width: 7rem; }
thead th { position: sticky; top: 0; background: var(--panel); color: var(--muted); font-weight: 600; }
.number { text-align: right; }
.downloads, footer { color: var(--muted); font-size: .9rem; }
footer { margin-top: 2.5rem; padding-top: .8rem; border-top: 1px solid var(--grid); }
@media (max-width: 40rem) { .plot { height: max(var(--least), calc(100vw * var(--ratio) + 20rem)); } }
@media print {
  @page { margin: 14mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .plot { max-width: 100%; overflow: hidden; break-inside: avoid; }
  .table { overflow: visible; max-height: none; }
  thead th { position: static; }
  tr, figure { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; }
  .downloads, .modebar { display: none !important; }
}
"""

# The figures of the page are drawn from their data in the colours of the theme, and drawn again when the theme changes,
# by the reader's system or by the button of the page if it has one, and before printing: Plotly wants plain colours.
# Only listed buttons are shown: Plotly's own choice includes one that sends the figure to its maker. On a narrow screen
# texts are smaller. After each drawing, names that lie on others or on marks move
# a line up or down, or are hidden; those of the top-most trace choose first.
SCRIPT = """
"use strict";
(() => {
  const root = document.documentElement;
  const plots = [...document.querySelectorAll(".plot")];
  const specs = plots.map(plot => JSON.parse(document.getElementById(plot.id + "-data").textContent));
  const paint = (value, isColour, css) => {
    if (typeof value === "string") {
      const name = isColour && /^var[(](--[a-z0-9-]+)[)]$/.exec(value);
      return name ? css.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map(item => paint(item, isColour, css));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, paint(item, /color/.test(key), css)]));
  };
  const coarse = matchMedia("(pointer: coarse)").matches;
  const config = {
    responsive: true, displaylogo: false, scrollZoom: false, displayModeBar: coarse ? false : "hover",
    showSendToCloud: false, plotlyServerURL: "", typesetMath: false,
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg" },
  };
  const touching = (a, b, room) =>
    a.left < b.right - room && b.left < a.right - room && a.top < b.bottom - room && b.top < a.bottom - room;
  const declutter = plot => {
    const edge = plot.getBoundingClientRect(), kept = [];
    const markers = [...plot.querySelectorAll(".scatterlayer .point")]
      .filter(point => point.style.opacity !== "0").map(point => point.getBoundingClientRect())
      .filter(box => box.width > 9);
    for (const trace of [...plot.querySelectorAll(".scatterlayer .trace")].reverse()) {
      if (!trace.querySelector(".point")) continue; // texts without marks are those of bars
      for (const text of trace.querySelectorAll(".textpoint text")) {
        text.style.transform = "";
        const home = text.getBoundingClientRect();
        const aside = Math.max(0, home.right - edge.right) - Math.max(0, edge.left - home.left);
        const free = (aside ? [-1, 1] : [0, -1, 1]).map(step => step * home.height).find(up => {
          text.style.transform = `translate(${-aside}px, ${up}px)`;
          const box = text.getBoundingClientRect();
          const taken = kept.some(other => touching(box, other, 1.5)) || markers.some(other => touching(box, other, 3));
          if (!taken) kept.push(box);
          return !taken;
        });
        text.style.visibility = free === undefined ? "hidden" : "";
      }
    }
  };
  const narrowed = layout => {
    layout.margin.l = Math.min(layout.margin.l, 8);
    for (const axis of [layout.xaxis, layout.yaxis]) {
      if (axis.title) axis.title.font.size = 11;
      axis.tickfont.size = 10.5;
    }
    if (!layout.xaxis.tickvals) layout.xaxis.nticks = 6;
    layout.legend.font.size = 10.5;
    for (const note of layout.annotations) note.font.size = 10.5;
  };
  const draw = onPaper => {
    const css = getComputedStyle(root);
    plots.forEach((plot, i) => {
      const { data, layout } = paint(specs[i], false, css);
      const narrow = !onPaper && plot.clientWidth < 560;
      if (onPaper) Object.assign(layout, { width: 680, height: parseFloat(plot.style.getPropertyValue("--least")) });
      else layout.autosize = true;
      if (coarse || narrow) layout.dragmode = false;
      if (narrow) {
        narrowed(layout);
        if (layout.showlegend) layout.margin.b += 9 * data.filter(trace => trace.showlegend).length;
      }
      const shrink = onPaper ? 0.85 : Math.min(1, Math.max(0.6, plot.clientWidth / 800));
      for (const { marker } of data) {
        const fit = size => Math.max(2.5, size * shrink);
        if (marker?.size) marker.size = Array.isArray(marker.size) ? marker.size.map(fit) : fit(marker.size);
      }
      plot.querySelector("noscript")?.remove();
      const first = !plot.classList.contains("js-plotly-plot");
      Plotly.react(plot, data, layout, config).then(() => declutter(plot));
      if (first) plot.on("plotly_afterplot", () => declutter(plot));
    });
  };
  const button = document.getElementById("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
  const show = () => {
    if (button) button.textContent = isDark() ? "Light" : "Dark";
    draw(false);
  };
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; show(); });
  }
  dark.addEventListener("change", show);
  let before;
  addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; draw(true); });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    show();
  });
  show();
})();
"""


def style_sheet() -> str:
    """Returns the style sheet, with the colours of both themes as variables."""
    sheet = _STYLE.replace("LIGHT", css_variables(LIGHT)).replace("DARK", css_variables(DARK))
    return sheet.replace("FONTS", FONT_STACK)
