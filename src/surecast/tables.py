"""Tables that fit the width they are printed in."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

__all__ = ["FittedTable", "plain"]

_NAME_WIDTH = 24
"""A text longer than this is wrapped at blanks, unless there is room for more."""
_NARROW_WIDTH = 14
"""A text is wrapped here, also after hyphens, where that saves a second block."""
_LEAST_WIDTH = 4
_CELL_WIDTH = 40
"""A cell under `headers` that is longer than this is a text: it is wrapped as well."""


class FittedTable:
    """A table that fits the width it is printed in and leaves nothing out.

    The columns of `names` hold text, which is wrapped where the width is short. The columns of `headers` hold figures,
    which are neither wrapped nor cut: those that do not fit beside the others follow in a block below, with the names
    again. A row may have a `style`.
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
        name_widths, blocks = self._layout(options.max_width)
        if self.title:
            yield plain(self.title, "italic")
        for block in blocks:
            yield self._block(name_widths, block)
        if self.caption:
            yield plain(f"  {self.caption}", "dim")
        yield plain("")

    def _block(self, name_widths: list[int], block: dict[int, int]) -> Table:
        """Returns a table of the names and of some columns of figures, given by index and width."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        widths = dict(enumerate(name_widths)) | block
        headers = self.names + self.headers
        for column, width in widths.items():
            is_text = column < len(self.names) or _longest(row[column] for row in self.rows) > max(width, _CELL_WIDTH)
            justify: Literal["left", "right"] = "left" if is_text else "right"
            table.add_column(plain(headers[column]), justify=justify, width=width, overflow="fold")
        for row, style in zip(self.rows, self.styles, strict=True):
            table.add_row(*(plain(_wrapped(row[column], width)) for column, width in widths.items()), style=style)
        return table

    def _layout(self, width_max: int) -> tuple[list[int], list[dict[int, int]]]:
        """Returns the widths of the names, and the blocks of figures: few blocks first, then wide names."""
        columns = [_Column(header, [row[i] for row in self.rows]) for i, header in enumerate(self.names + self.headers)]
        names, figures = columns[: len(self.names)], columns[len(self.names) :]
        figure_widths = [max(column.heading, min(column.longest, _CELL_WIDTH)) for column in figures]
        layouts = []
        for name_widths in (
            [max(column.word, min(column.longest, _NAME_WIDTH)) for column in names],
            [max(min(column.piece, _NAME_WIDTH), min(column.longest, _NARROW_WIDTH)) for column in names],
        ):
            widest = max(figure_widths, default=0)
            while _total([*name_widths, widest]) > width_max and max(name_widths, default=0) > _LEAST_WIDTH:
                name_widths[name_widths.index(max(name_widths))] -= 1
            layouts.append((name_widths, self._blocks(name_widths, figure_widths, width_max)))
        name_widths, blocks = min(layouts, key=lambda layout: len(layout[1]))
        spare = width_max - max(_total([*name_widths, *block.values()]) for block in blocks)
        for i in sorted(range(len(names)), key=lambda i: names[i].whole):
            more = max(0, min(spare, names[i].whole - name_widths[i]))
            name_widths[i], spare = name_widths[i] + more, spare - more
        for block in blocks:
            spare = width_max - _total([*name_widths, *block.values()])
            for i in block:  # headers on one line, where there is room
                more = max(0, min(spare, columns[i].header - block[i]))
                block[i], spare = block[i] + more, spare - more
        return name_widths, blocks

    def _blocks(self, name_widths: list[int], figure_widths: list[int], width_max: int) -> list[dict[int, int]]:
        """Returns the columns of figures of each block, with their widths."""
        blocks: list[dict[int, int]] = [{}]
        for i, width in enumerate(figure_widths, len(self.names)):
            if blocks[-1] and _total([*name_widths, *blocks[-1].values(), width]) > width_max:
                blocks.append({})
            blocks[-1][i] = max(1, min(width, width_max - _total(name_widths) - 2))
        return blocks


class _Column:
    """The widths that matter in a column of texts."""

    def __init__(self, header: str, cells: list[str]):
        self.header = _longest([header])
        self.heading = _longest(header.split())
        self.longest = max(self.heading, _longest(cells))
        self.whole = max(self.longest, self.header)
        self.word = _longest([word for text in (header, *cells) for word in text.split()])
        self.piece = _longest([piece for text in (header, *cells) for piece in re.split(r"(?<=-)|\s+", text)])


def _longest(texts: Iterable[str]) -> int:
    """Returns the width of the longest line of some texts."""
    from rich.cells import cell_len

    return max((cell_len(line) for text in texts for line in text.split("\n")), default=1)


def _total(widths: list[int]) -> int:
    """Returns the width of a table: a column takes its width, a blank and a divider; the left edge takes one more."""
    return sum(widths) + 2 * len(widths) + 1


def _wrapped(text: str, width: int) -> str:
    """Returns text with line ends at blanks and after hyphens, where it is longer than a width."""
    lines = (
        textwrap.wrap(line, width, break_long_words=False) or [""] if len(line) > width else [line]
        for line in text.split("\n")
    )
    return "\n".join(part for parts in lines for part in parts)


def plain(text: str, style: str = "") -> Text:
    """Returns text as it is: names are neither markup nor control sequences."""
    from rich.text import Text

    return Text(
        "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text), style
    )
