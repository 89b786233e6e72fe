"""The look: readable on both grounds, and the same in pictures and pages."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from surecast.studio.chart import Axis, Chart, Line, Names, Points, RuleLine, Span
from surecast.studio.matplotlib_picture import MARKERS
from surecast.studio.page_assets import SCRIPT, style_sheet
from surecast.studio.plotly_figure import figure_data
from surecast.studio.style import DARK, LIGHT, SYMBOLS, Theme, colours_of, css_variables


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_and_marks_stand_out_from_their_ground(theme: Theme) -> None:
    for text in (theme.ink, theme.muted, theme.accent):
        assert contrast(text, theme.surface) >= 4.5  # WCAG 2.2, 1.4.3
        assert contrast(text, theme.panel) >= 4.5
    for mark in (*theme.series, theme.overlay, theme.steady):
        assert contrast(mark, theme.surface) >= 3.0  # WCAG 2.2, 1.4.11


def test_both_themes_name_the_same_colours() -> None:
    names = [re.findall(r"--[a-z0-9-]+", css_variables(theme)) for theme in (LIGHT, DARK)]
    assert names[0] == names[1]
    assert len(LIGHT.series) == len(MARKERS) == len(SYMBOLS)


def test_every_colour_a_figure_names_is_one_of_the_page() -> None:
    xy = np.array([[1.0, 2.0]])
    chart = Chart(
        [
            Line("a", [1.0, 2.0], [1.0, 2.0]),
            Points("b", [1.0], [2.0], shades=[0.5]),
            Names(["c"], xy, radii_px=[4.0], sides=["middle right"], quiet=True),
        ],
        title="t",
        x=Axis("x"),
        y=Axis("y"),
        rules=[RuleLine("r", 1.5, colour="accent")],
        spans=[Span(1.0, 2.0)],
    )
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", f"{figure_data(chart)}{style_sheet()}"))
    assert {"--series-0", "--ramp-0", "--accent", "--muted"} <= used
    known = set(re.findall(r"(--[a-z0-9-]+):", css_variables(LIGHT))) | {"--ratio", "--least"}
    assert used <= known


def test_the_page_does_not_offer_to_send_figures_away() -> None:
    assert "showSendToCloud: false" in SCRIPT
    assert 'plotlyServerURL: ""' in SCRIPT


def test_the_same_thing_has_the_same_colour_on_all_charts() -> None:
    alone, among = colours_of(["bypass"]), colours_of(["mine", "bypass", "buffering", "yours"])
    assert alone["bypass"] == among["bypass"]
    assert len(set(among.values())) == 4
    assert colours_of(["mine"]) == {"mine": 0}


def test_the_nine_routing_algorithms_differ_in_colour() -> None:
    from surecast.prediction.capacity.capacity_model import ALGORITHMS

    assert len(set(colours_of(ALGORITHMS).values())) == len(ALGORITHMS) == len(LIGHT.series)


def difference(a: str, b: str) -> float:
    """The distance of two colours in CIELAB, after a colour deficiency without the red (or green) cones."""
    return min(math.dist(lab(seen(a, missing)), lab(seen(b, missing))) for missing in SEEN)


SEEN = {
    # Machado, Oliveira and Fernandes 2009, severity 1: protanopia and deuteranopia, on linear light
    "red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def seen(colour: str, missing: str) -> list[float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return [min(1.0, max(0.0, sum(w * c for w, c in zip(row, linear, strict=True)))) for row in SEEN[missing]]


def lab(linear: list[float]) -> list[float]:
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    x, y, z = (sum(w * c for w, c in zip(row, linear, strict=True)) / n for row, n in zip(rows, white, strict=True))
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return [116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_series_are_told_apart_with_a_colour_deficiency(theme: Theme) -> None:
    pairs = [(a, b) for i, a in enumerate(theme.series) for b in theme.series[:i]]
    assert min(difference(a, b) for a, b in pairs) > 8.0
