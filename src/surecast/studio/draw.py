"""A drawing of a system: the broker overlay, on its physical network if it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.studio.files import checked_path, write_atomically
from surecast.studio.style import theme_for

if TYPE_CHECKING:
    from pathlib import Path

    from surecast.scenario.system import System

__all__ = ["draw_system"]


def draw_system(
    system: System, path: Path | str, *, title: str | None = None, width: int = 1800, dark: bool = False
) -> Path:
    """Draws the system to a file and returns its path; the suffix decides the kind of file.

    ``.html`` is an interactive page in one file that needs no network, with tables of brokers and links below the
    figure; ``.svg`` and ``.png`` are pictures. `title` replaces the system's name. `width` is that of a PNG in
    pixels. `dark` draws on a dark ground; a page follows its reader's setting unless `dark` is set. The file
    appears whole or not at all.

    >>> from tempfile import TemporaryDirectory
    >>> from surecast.scenario import build, parse_text
    >>> overlay = "{brokers: [{name: east}, {name: west}], links: [[east, west]]}"
    >>> system = build(parse_text(f"surecast: 1\\nname: two brokers\\noverlay: {overlay}"))
    >>> with TemporaryDirectory() as folder:
    ...     draw_system(system, f"{folder}/a.svg").name
    'a.svg'
    """
    path = checked_path(path, width)
    from surecast.studio.scene import build_scene

    scene = build_scene(system, title)
    suffix = path.suffix.lower()
    if suffix == ".html":
        from surecast.studio.scene_page import scene_page

        return write_atomically(path, scene_page(scene, system, dark=dark).encode())
    from surecast.studio.scene_picture import scene_picture

    return write_atomically(path, scene_picture(scene, suffix, width, theme_for(dark)))
