"""The bytes and the text of a topology file, within limits, and how its fields are read."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from surecast.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BYTES_MAX", "COORDINATE_MAX", "TopologyFile", "open_source"]

BYTES_MAX = 64 * 2**20
COORDINATE_MAX = 1e9
"""Far beyond any map's unit, and small enough that sums and squares of coordinates stay finite."""

_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_MARK = "\ufeff"


@dataclass(frozen=True)
class TopologyFile:
    """An open file: `name` as the user gave it, `data` decompressed."""

    name: str
    data: bytes

    def fail(self, message: str, line: int | None = None) -> TopologyError:
        return TopologyError(message, self.name, line)

    @property
    def stem(self) -> str:
        """The file's name in lower case, without its folder and without `.gz`."""
        return Path(self.name).name.lower().removesuffix(".gz")

    @cached_property
    def text(self) -> str:
        """The text of the file, which must be UTF-8."""
        try:
            text = self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise self.fail(
                f"not text: byte 0x{self.data[error.start]:02x} is not UTF-8; expected a text file", line
            ) from None
        if "\0" in text:
            raise self.fail(
                "not text: it holds NUL bytes; expected a text file", text.count("\n", 0, text.index("\0")) + 1
            )
        return text.removeprefix(_UTF8_MARK).replace("\r\n", "\n").replace("\r", "\n")

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yields the number and content of every line that is not blank."""
        text, start, number = self.text, 0, 0
        while start <= len(text):
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
            number += 1
            if stripped := text[start:end].strip():
                yield number, stripped
            start = end + 1

    def number(self, text: str, quantity: str, line: int | None) -> float:
        """Returns a finite number; raises an error that names the expected `quantity` otherwise."""
        try:
            value = float(text)
        except ValueError:
            raise self.fail(f"expected {quantity}, a number, and found {text[:40]!r}", line) from None
        if not math.isfinite(value):
            raise self.fail(f"expected {quantity}, a finite number, and found {text[:40]!r}", line)
        return value

    def count(self, text: str, quantity: str, line: int | None) -> int:
        """Returns a whole number of zero or more; raises an error otherwise."""
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise self.fail(f"expected {quantity}, a whole number, and found {text[:40]!r}", line)
        return int(text)

    def position(self, x: str, y: str, line: int | None) -> tuple[float, float]:
        """Returns two coordinates of any meaning."""
        coordinates = self.number(x, "an x coordinate", line), self.number(y, "a y coordinate", line)
        for value in coordinates:
            if abs(value) > COORDINATE_MAX:
                raise self.fail(f"the coordinate {value:g} is too large; the limit is {COORDINATE_MAX:g}", line)
        return coordinates

    def degrees(self, longitude: str, latitude: str, line: int | None) -> tuple[float, float]:
        """Returns a longitude and a latitude in degrees."""
        lon, lat = self.number(longitude, "a longitude", line), self.number(latitude, "a latitude", line)
        if abs(lon) > 180 or abs(lat) > 90:
            raise self.fail(
                f"longitude {lon:g} and latitude {lat:g} are not a place on Earth; expected -180..180 and -90..90", line
            )
        return lon, lat


def open_source(path: Path) -> TopologyFile:
    """Returns the decompressed content of a file; raises a TopologyError with the reason if there is none."""
    name = str(path)
    try:
        if path.is_dir():
            raise TopologyError("is a folder; give a topology file", name)
        if path.exists() and not path.is_file():
            raise TopologyError("is not a regular file; give a topology file", name)
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TopologyError(f"cannot be opened: {reason.lower()}; check the path", name) from None
    if len(data) > BYTES_MAX:
        raise TopologyError(f"larger than {BYTES_MAX // 2**20} MiB, which is the limit", name)
    if data.startswith(_GZIP_MAGIC):
        data = _decompress(name, data)
    elif name.lower().endswith((".gz", ".tgz")):
        raise TopologyError("its name says gzip, but it is not compressed; rename it or compress it", name)
    if not data.strip():
        raise TopologyError("the file is empty; expected a topology", name)
    return TopologyFile(name, data)


def _decompress(name: str, data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            content = file.read(BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TopologyError(f"damaged or cut off gzip file ({error}); fetch it again", name) from None
    if len(content) > BYTES_MAX:
        raise TopologyError(f"larger than {BYTES_MAX // 2**20} MiB when decompressed, which is the limit", name)
    return content
