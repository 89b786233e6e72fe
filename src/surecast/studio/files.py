"""Output files of figures: the suffix decides the format, and a file appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

from surecast.errors import ConfigurationError
from surecast.report.report_files import write_whole

__all__ = ["SUFFIXES", "checked_path", "write_atomically"]

SUFFIXES = (".html", ".svg", ".png")
WIDTH_PX_MIN, WIDTH_PX_MAX = 200, 10_000


def checked_path(path: Path | str, width: int) -> Path:
    """Returns the path if a figure of that width can be written there; raises an error that says what is possible if
    not."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigurationError(f"cannot draw to {path}: end its name in one of {', '.join(SUFFIXES)}")
    if path.is_dir():
        raise ConfigurationError(f"cannot draw to {path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ConfigurationError(f"cannot draw to {path}: the folder {path.parent} does not exist; create it first")
    if not WIDTH_PX_MIN <= width <= WIDTH_PX_MAX:
        raise ConfigurationError(f"a width of {width} pixels: choose between {WIDTH_PX_MIN} and {WIDTH_PX_MAX}")
    return path


def write_atomically(path: Path, content: bytes) -> Path:
    """Writes a picture or page so that a reader sees the old file or the whole new one."""
    write_whole(path, lambda file: file.write(content))
    return path
