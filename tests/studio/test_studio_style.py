"""The look: readable on both grounds, and the same in pictures and pages."""

from __future__ import annotations

import re

import pytest

from surecast.studio.page_assets import SCRIPT, style_sheet
from surecast.studio.style import DARK, LIGHT, MARKERS, SYMBOLS, Theme, css_variables, plotly_axis, plotly_layout


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
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", f"{plotly_layout()}{plotly_axis()}{style_sheet()}"))
    known = set(re.findall(r"(--[a-z0-9-]+):", css_variables(LIGHT))) | {"--ratio", "--least"}
    assert used <= known


def test_the_page_does_not_offer_to_send_figures_away() -> None:
    assert "showSendToCloud: false" in SCRIPT
    assert 'plotlyServerURL: ""' in SCRIPT
