"""Tables that fit the width they are printed in."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from surecast.report.errors import listing

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

__all__: list[str] = []

_NAME_WIDTH = 24
"""Names longer than this are folded, at blanks."""


class FittedTable:
    """A table that shows as many of its columns as fit the width it is printed in, and names the others.

    The columns of `names` are always shown, and one more; a row may have a `style`.
    """

    def __init__(
        self,
        title: str,
        names: list[str],
        headers: list[str],
        rows: list[list[str]],
        caption: str = "",
        styles: list[str] | None = None,
    ):
        self.title = title
        self.names = names
        self.headers = headers
        self.rows = rows
        self.caption = caption
        self.styles = styles or [""] * len(rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich import box
        from rich.table import Table

        headers = self.names + self.headers
        widths = self._widths()
        # A column takes its width, a blank on either side and a rule; the frame takes one more.
        fitting = sum(total + 1 <= options.max_width for total in accumulate(width + 3 for width in widths))
        shown = max(fitting, len(self.names) + 1)
        left_out = f"not shown: {listing(headers[shown:], 20)}" if shown < len(headers) else ""
        table = Table(box=box.SIMPLE_HEAD)
        for i, header in enumerate(headers[:shown]):
            justify: Literal["left", "right"] = "left" if i < len(self.names) else "right"
            table.add_column(plain(header), justify=justify, width=widths[i], overflow="fold")
        for row, style in zip(self.rows, self.styles, strict=True):
            table.add_row(*(plain(text) for text in row[:shown]), style=style)
        yield plain(self.title, "italic")
        yield table
        for line in (self.caption, left_out):
            if line:
                yield plain(f"  {line}", "dim")
        yield plain("")

    def _widths(self) -> list[int]:
        from rich.cells import cell_len

        widths = []
        for i, header in enumerate(self.names + self.headers):
            cells = [row[i] for row in self.rows]
            words = [word for text in (header, *cells) for word in text.split()]
            longest = max((cell_len(text) for text in cells), default=0)
            word = max((cell_len(text) for text in words), default=1)
            widths.append(max(word, min(longest, _NAME_WIDTH)) if i < len(self.names) else max(word, longest))
        return widths


def plain(text: str, style: str = "") -> Text:
    """Returns text as it is: names are neither markup nor control sequences."""
    from rich.text import Text

    return Text(
        "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text), style
    )
