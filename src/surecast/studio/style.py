"""One look for every figure of Surecast: colours, fonts and sizes, for light and for dark.

The series colours are told apart by people with any of the common colour deficiencies (after Okabe and Ito), and
every series has a marker shape of its own as well. A chart names its colours by number or by role; a page has them as
CSS variables such as ``var(--ink)``, so one figure serves light, dark and print.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

__all__ = [
    "DARK",
    "FONT_STACK",
    "LIGHT",
    "SYMBOLS",
    "Theme",
    "clean",
    "colours_of",
    "css_colour",
    "css_variables",
    "shorten",
    "theme_for",
]

FONT_STACK = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "pentagon", "star")
"""The shapes of points, by the number of their colour."""
_BIDI = {chr(c) for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)}


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of one appearance. `series` tells groups apart; `ramp` runs from low to high."""

    surface: str
    panel: str
    ink: str
    muted: str
    grid: str
    accent: str
    physical: str
    overlay: str
    steady: str
    series: tuple[str, ...]
    ramp: tuple[str, ...]

    def colour(self, colour: int | str) -> str:
        """Returns a colour of the series by its number, or another one by its name."""
        chosen: str = getattr(self, colour) if isinstance(colour, str) else self.series[colour % len(self.series)]
        return chosen


LIGHT = Theme(
    surface="#ffffff",
    panel="#f5f7fa",
    ink="#1a2130",
    muted="#566071",
    grid="#e2e6ec",
    accent="#c2410c",
    physical="#c3cad5",
    overlay="#26365a",
    steady="#8794a8",
    series=("#0072b2", "#d55e00", "#008f68", "#b8578f", "#2f93cc", "#7a3b00", "#8470f0", "#3d1e6d", "#a01c4b"),
    ramp=("#ffe066", "#f5b13d", "#a3a76e", "#4f8f8f", "#2b6a9b", "#1d3f7d"),
)
DARK = Theme(
    surface="#12161e",
    panel="#1b212c",
    ink="#e9edf4",
    muted="#a3aebf",
    grid="#2a323f",
    accent="#ff9a5c",
    physical="#3d4859",
    overlay="#c8d6f2",
    steady="#7b8799",
    series=("#4fa8e0", "#f0884a", "#35c79b", "#e08fc0", "#93cff2", "#f4e04d", "#8878f5", "#a8623c", "#c93a5c"),
    ramp=("#ffe066", "#f5b13d", "#b1b374", "#62a5a3", "#3f86c4", "#3563b8"),
)


_OWN_COLOURS: Final = {
    label: number
    for group in (
        (
            "flooding", "peer-to-peer simple", "peer-to-peer identity", "peer-to-peer covering", "peer-to-peer merging",
            "hierarchical simple", "hierarchical identity", "hierarchical covering", "hierarchical merging",
        ),
        ("periodic-subscription", "buffering", "bypass", "bypass-buffering"),
        ("tree", "tree-retransmission", "gossip", "coding", "coding-gossip"),
        ("probabilistic", "finite-buffer", "expiry", "exponential-expiry", "", "", "optimal"),
        ("predicted", "simulated", "same draws", "measured"),
    )
    for number, label in enumerate(group)
    if label
}  # fmt: skip
"""The colour that something has on all charts."""


def colours_of(labels: Sequence[str]) -> dict[str, int]:
    """Returns the number of the colour of each label: its own, or the next that none of the others has.

    >>> colours_of(["my scheme", "buffering", "bypass"])
    {'buffering': 1, 'bypass': 2, 'my scheme': 0}
    """
    own = {label: _OWN_COLOURS[label] for label in labels if label in _OWN_COLOURS}
    if len(set(own.values())) < len(own):
        own = {}
    free = [number for number in range(len(LIGHT.series)) if number not in own.values()] or [0]
    rest = [label for label in labels if label not in own]
    return own | {label: free[i % len(free)] for i, label in enumerate(rest)}


def theme_for(dark: bool) -> Theme:
    """Returns the dark theme or the light one."""
    return DARK if dark else LIGHT


def css_variables(theme: Theme) -> str:
    """Returns the theme as CSS declarations.

    >>> css_variables(LIGHT)[:20]
    '--surface: #ffffff; '
    """
    names: list[str] = []
    for field in fields(theme):
        value = getattr(theme, field.name)
        if isinstance(value, str):
            names.append(f"--{field.name}: {value};")
        else:
            names.extend(f"--{field.name}-{i}: {colour};" for i, colour in enumerate(value))
    return " ".join(names)


def css_colour(colour: int | str) -> str:
    """Returns the CSS variable of a colour of the theme.

    >>> css_colour(2), css_colour("ink")
    ('var(--series-2)', 'var(--ink)')
    """
    return f"var(--{colour})" if isinstance(colour, str) else f"var(--series-{colour % len(LIGHT.series)})"


def clean(text: str) -> str:
    """Returns a name that any format can carry: control, surrogate and direction-changing characters replaced.

    >>> clean("a\\x00b\\nc")
    'a\\ufffdb c'
    """
    spaced = (" " if c in "\n\r\t\u2028\u2029" else c for c in text)
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") or c in _BIDI else c for c in spaced)


def shorten(text: str, length: int) -> str:
    """Returns a cleaned name of at most `length` characters.

    >>> shorten("rather-long-name", 10)
    'rather-lo…'
    """
    text = clean(text)
    return text if len(text) <= length else text[: length - 1] + "…"
