"""An extension of Griffe: the examples in docstrings become code blocks, which Markdown would take for quotations."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Examples(Extension):
    """Puts a fence around each example of a docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Changes the docstring of one object, if it has any."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Returns a docstring with a fence around each block of lines that begins with a prompt."""
    return EXAMPLE.sub(lambda block: f"\n```pycon\n{block[0]}\n```\n", text)
