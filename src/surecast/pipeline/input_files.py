"""Input files cut into records, as Arrow batches: nothing is interpreted, and nothing is left out without a word.

A file of lines is read from where the last run stopped to the end of its last whole line, in ranges that may be read in
parallel. A compressed file or a JSON document is read whole, once. What cannot be read becomes a record with a
`problem`. Works on every file system that pyarrow knows, by path or by URL.
"""

from __future__ import annotations

import gzip
import io
import json
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from surecast.errors import ConfigurationError
from surecast.pipeline.formats import BROKER, UNKNOWN, Format, recognise

__all__ = [
    "RECORD_SCHEMA",
    "FileRange",
    "InputFile",
    "find_files",
    "ranges_between",
    "read_range",
    "readable_end",
    "source_of",
    "unread_bytes",
]

RECORD_SCHEMA: Final = pa.schema(
    [
        ("source", pa.string()),
        ("log", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("bytes", pa.int64()),
        ("text", pa.string()),
        ("problem", pa.string()),
    ]
)
RANGE_BYTES: Final = 32 << 20
BLOCK_BYTES: Final = 4 << 20
LINE_BYTES_MAX: Final = 4 << 20
"""A longer line is a problem: no format has such, and it would be held in memory."""
SHOWN_CHARACTERS: Final = 1000
SETTLE_S: Final = 600.0
"""A last line without its end is taken as whole when its file has not changed for so long."""
_HEAD_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of the input: where, how large, when changed, and the name of the log it belongs to."""

    path: str
    size_bytes: int
    modified_s: float
    folder: str


@dataclass(frozen=True, slots=True)
class FileRange:
    """The range that one task reads: the records that begin in [start, end) of a file whose whole lines end at
    `limit`."""

    path: str
    folder: str
    start: int
    end: int
    limit: int
    first: int
    """The offset at which the last run stopped: a record begins exactly there."""


def find_files(inputs: Iterable[str]) -> dict[str, InputFile]:
    """Returns all files below the inputs, by path; files whose name begins with a dot are skipped."""
    files: dict[str, InputFile] = {}
    for name in inputs:
        system, root = _open_system(name)
        info = system.get_file_info(root)
        if info.type == fs.FileType.NotFound:
            raise ConfigurationError(f"--input {name}: there is no such file or folder")
        if info.type == fs.FileType.Directory:
            infos = system.get_file_info(fs.FileSelector(root, recursive=True))
        else:
            infos, root = [info], str(PurePosixPath(root).parent)
        prefix = name.partition("://")[0] + "://" if "://" in name else ""
        for each in infos:
            relative = PurePosixPath(each.path).relative_to(root)
            if each.type != fs.FileType.File or any(part.startswith(".") for part in relative.parts):
                continue
            folder = str(relative.parent) if len(relative.parts) > 1 else PurePosixPath(root).name
            path = prefix + each.path
            files[path] = InputFile(path, each.size or 0, each.mtime_ns / 1e9 if each.mtime_ns else 0.0, folder)
    return files


def readable_end(file_info: InputFile, read_to: int, now_s: float | None = None) -> int:
    """Returns the position up to which a file can be read now: its end, or the end of its last whole line.

    `read_to` is what has been read of it before; the answer is below it only where the file has become shorter.
    """
    if file_info.size_bytes <= read_to or not file_info.size_bytes:
        return file_info.size_bytes
    kind = _format_of(file_info.path)
    if kind is None or not _by_lines(file_info.path, kind):
        return file_info.size_bytes
    age_s = (time.time() if now_s is None else now_s) - file_info.modified_s
    system, path = _open_system(file_info.path)
    with system.open_input_file(path) as file:
        end = file_info.size_bytes
        while end > read_to:
            start = max(read_to, end - 65536)
            block = file.read_at(end - start, start)
            is_settled = end == file_info.size_bytes and age_s > SETTLE_S and not kind.whole_lines_only
            if is_settled and not block.endswith(b"\n"):
                return file_info.size_bytes
            newline: int = block.rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return read_to


def source_of(path: str) -> str:
    """Returns the format of the records of a file, by name; `unknown` for one that has none."""
    kind = _format_of(path)
    return UNKNOWN if kind is None else kind.name


def unread_bytes(file_info: InputFile, read_to: int) -> int:
    """Returns how many bytes of a file are left for later: the beginning of a last line."""
    kind = _format_of(file_info.path)
    if kind is None or not _by_lines(file_info.path, kind):
        return 0
    whole_end = readable_end(file_info, read_to, now_s=file_info.modified_s)
    return max(0, file_info.size_bytes - max(whole_end, read_to))


def ranges_between(start: dict[str, int], end: dict[str, int], folders: dict[str, str]) -> list[FileRange]:
    """Returns the ranges to read from one state of the input, as path and bytes read, to a later one.

    >>> [(r.start, r.end) for r in ranges_between({"/a": 5}, {"/a": 9, "/b": 3}, {})]
    [(5, 9), (0, 3)]
    """
    ranges = []
    for path, limit in end.items():
        first = start.get(path, 0)
        folder = folders.get(path, PurePosixPath(path).parent.name)
        step = limit - first
        if step > RANGE_BYTES and (kind := _format_of(path)) is not None and _by_lines(path, kind):
            step = RANGE_BYTES
        if step < 0:
            ranges.append(FileRange(path, folder, first, limit, limit, first))
        elif step > 0:
            ranges += [
                FileRange(path, folder, offset, min(offset + step, limit), limit, first)
                for offset in range(first, limit, step)
            ]
    return ranges


def read_range(part: FileRange) -> Iterator[pa.RecordBatch]:
    """Yields the records of one range; a problem with the file is a record too."""
    try:
        kind = _format_of(part.path)
        if part.end < part.first:
            problem = (
                f"the file had {part.first} bytes when it was last read, and has {part.end}: what changed is not read"
            )
            yield _problem(part, kind, problem)
        elif kind is None:
            yield _problem(part, None, "the file has no format that is known")
        elif kind.reader == "document":
            yield from _document(part, kind)
        else:
            yield from _lines(part, kind)
    except FileNotFoundError:
        yield _problem(part, None, "the file was removed before it could be read")


def _lines(part: FileRange, format: Format) -> Iterator[pa.RecordBatch]:
    if not _by_lines(part.path, format):
        if part.first:
            yield _problem(part, format, "the compressed file changed after it was read: what changed is not read")
            return
        part = FileRange(part.path, part.folder, 0, 1 << 62, 1 << 62, 0)
    system, path = _open_system(part.path)
    position = part.start
    with system.open_input_file(path) as raw:
        file = _plain(raw, part.path)
        if part.start > part.first:  # the record at the border belongs to the range that it begins in
            file.seek(part.start - 1)
            position += len(file.readline()) - 1
        elif part.start:
            file.seek(part.start)
        try:
            for offset, lines in _whole_lines(file, position, part.end, part.limit):
                yield _batch(part, format, offset, lines)
        except (EOFError, OSError, zlib.error) as error:
            if not part.path.endswith(".gz") or isinstance(error, FileNotFoundError):
                raise
            yield _problem(part, format, f"the compressed data end or break after this place: {error}")


def _whole_lines(file: IO[bytes], position: int, end: int, limit: int) -> Iterator[tuple[int, list[bytes]]]:
    """Lists of lines with their ends, each with the position of its first; the last goes beyond `end` if it must."""
    rest = b""
    while position < end:
        offset = position + len(rest)
        block = file.read(min(BLOCK_BYTES, limit - offset)) if offset < limit else b""
        data = rest + block
        if not data:
            return
        parts = data.split(b"\n")
        lines, rest = [part + b"\n" for part in parts[:-1]], parts[-1]
        if not block and rest:
            lines.append(rest)
            rest = b""
        if len(rest) > LINE_BYTES_MAX:
            lines.append(rest + file.readline())
            rest = b""
        whole = []
        first = position
        for line in lines:
            if position >= end:
                break
            whole.append(line)
            position += len(line)
        if whole:
            yield first, whole


def _batch(part: FileRange, format: Format, position: int, lines: list[bytes]) -> pa.RecordBatch:
    raw = pa.array(lines, pa.binary())
    sizes = pc.binary_length(raw).cast(pa.int64())
    starts = pc.add(pc.subtract(pc.cumulative_sum(sizes), sizes), position)
    problems = pa.nulls(len(lines), pa.string())
    try:
        text = raw.cast(pa.string())
        if pc.max(sizes).as_py() > LINE_BYTES_MAX:
            raise pa.ArrowInvalid("too long")
    except pa.ArrowInvalid:
        text, problems = _doubtful(lines)
    text = pc.utf8_rtrim(text, "\r\n")
    batch = _record_batch(part, format.name, starts, sizes, text, problems)
    wanted = pc.not_equal(text, "")
    if format.header and position == 0:
        wanted = pc.and_(wanted, pc.not_equal(starts, 0))
    return batch.filter(wanted)


def _doubtful(lines: list[bytes]) -> tuple[pa.Array, pa.Array]:
    """Returns the text of lines of which at least one is not UTF-8 or is too long, and the problem of each."""
    texts, problems = [], []
    for line in lines:
        problem = None
        if len(line) > LINE_BYTES_MAX:
            problem, line = f"the line is longer than {LINE_BYTES_MAX >> 20} MiB", line[:SHOWN_CHARACTERS]
        try:
            texts.append(line.decode())
        except UnicodeDecodeError:
            problem = problem or "the line is not UTF-8"
            texts.append(line.decode(errors="backslashreplace"))
        problems.append(problem)
    return pa.array(texts, pa.string()), pa.array(problems, pa.string())


def _document(part: FileRange, format: Format) -> Iterator[pa.RecordBatch]:
    """Yields the records of a JSON document; their position is their number in the list. Bandwidth samples get their
    start."""
    if part.first:
        yield _problem(part, format, "the document changed after it was read: what changed is not read")
        return
    system, path = _open_system(part.path)
    with system.open_input_file(path) as raw:
        try:
            data = raw.read()
            document = json.loads(gzip.decompress(data) if part.path.endswith(".gz") else data)
        except (ValueError, EOFError, OSError, zlib.error) as error:
            yield _problem(part, format, f"the file is no JSON document: {error}")
            return
    if isinstance(document, dict) and len(document) == 1:
        document = next(iter(document.values()))
    if not isinstance(document, list):
        yield _problem(part, format, "the document holds no list of records")
        return
    texts = []
    start_ms: float = 0
    for record in document:
        if format.name == "bandwidth" and isinstance(record, dict):
            duration_ms = record.get("duration_ms")
            record = {"start_ms": start_ms, **record}
            start_ms += duration_ms if isinstance(duration_ms, int | float) else 0
        texts.append(json.dumps(record, separators=(",", ":")))
    count = len(texts)
    numbers = pa.array(range(count), pa.int64())
    sizes = pa.array([0] * count, pa.int64())
    yield _record_batch(part, format.name, numbers, sizes, pa.array(texts, pa.string()), pa.nulls(count, pa.string()))


def _problem(part: FileRange, format: Format | None, problem: str) -> pa.RecordBatch:
    name = UNKNOWN if format is None else format.name
    position, text = pa.array([part.start], pa.int64()), pa.array([""], pa.string())
    return _record_batch(part, name, position, pa.array([0], pa.int64()), text, pa.array([problem], pa.string()))


def _record_batch(
    part: FileRange, source: str, positions: pa.Array, sizes: pa.Array, text: pa.Array, problems: pa.Array
) -> pa.RecordBatch:
    log = part.folder if source == BROKER else PurePosixPath(part.path).name.removesuffix(".gz")
    same = [pa.repeat(value, len(text)) for value in (source, log, part.path)]
    return pa.RecordBatch.from_arrays([*same, positions, sizes, text, problems], schema=RECORD_SCHEMA)


def _format_of(path: str) -> Format | None:
    system, inner = _open_system(path)
    with system.open_input_file(inner) as raw:
        try:
            head = _plain(raw, path).read(_HEAD_BYTES)
        except (EOFError, OSError, zlib.error):
            head = b""
    first_line = head.split(b"\n", 1)[0].decode(errors="replace")
    return recognise(PurePosixPath(inner).name, first_line)


def _plain(raw: pa.NativeFile, path: str) -> IO[bytes]:
    """Returns the file's own bytes, without its compression."""
    opened: Any = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else io.BufferedReader(raw)
    return cast(IO[bytes], opened)


def _by_lines(path: str, format: Format) -> bool:
    """Returns whether the file can be read from where the last run stopped."""
    return format.reader == "lines" and not path.endswith(".gz")


def _open_system(name: str) -> tuple[fs.FileSystem, str]:
    if "://" not in name:
        return fs.LocalFileSystem(), str(Path(name).absolute())
    try:
        system, path = fs.FileSystem.from_uri(name)
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigurationError(f"--input {name}: {error}") from None
    return system, path
