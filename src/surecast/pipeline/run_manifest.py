"""The manifest of the last finished run: how far it read every input, and the files of its tables. Needs no Spark.

A run ends by replacing `manifest.json` in the output folder. The files that it names are hard links in the folder
`finished`: Spark replaces the files of a statistic while it computes it, and a reader still finds those of the last
run. So a table can be read at any time, without Spark, and is never half of one run and half of another.
"""

from __future__ import annotations

import errno
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from surecast.errors import ConfigurationError, SurecastError
from surecast.pipeline.datasource_log import LogAccess, log_at
from surecast.pipeline.formats import BROKER

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Manifest",
    "NewRecords",
    "TableFiles",
    "begin_run",
    "code_digest",
    "end_run",
    "first_rows",
    "link_tables",
    "local_path",
    "new_records",
    "read_manifest",
]

MANIFEST_FILE: Final = "manifest.json"
LINKS: Final = "finished"
_VERSION: Final = 2
_SINK_LOG: Final = "_spark_metadata"
_ATTEMPTS: Final = 3
_SORT_COLUMNS: Final = 3
_PLACE: Final = ("file#", "group#", "row#")
_NO_LINKS: Final = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table: paths, those below the output folder relative to it."""

    rows: int
    size_bytes: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state after the last finished run."""

    finished_s: float
    """Seconds since 1970."""
    digest: str
    """Identifies everything but the inputs that decides on the tables: settings, and the code of the pipeline."""
    warehouse: str
    database: str
    offsets: Mapping[str, int] | None
    """Bytes read of every file, records of every log. None if a later run began and did not finish, or if they are not
    known here."""
    counted: Mapping[str, tuple[int, int]]
    """For each clean table the raw records that belong there, and how many of them are different ones."""
    tables: Mapping[str, TableFiles]
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewRecords:
    """The inputs that have grown since the last finished run, and the formats of what they got."""

    last: Manifest
    upto: Mapping[str, int]
    sources: frozenset[str]


def read_manifest(output: Path) -> Manifest | None:
    """Returns the manifest of a folder; None if no run has finished there, or one of another version."""
    path = output / MANIFEST_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise SurecastError(f"{path}: cannot be read: {error}; delete it, and run surecast pipeline run") from None
    if not isinstance(data, dict) or data.pop("version", None) != _VERSION:
        return None
    tables = {name: TableFiles(**{**each, "files": tuple(each["files"])}) for name, each in data["tables"].items()}
    counted = {name: (int(records), int(different)) for name, (records, different) in data["counted"].items()}
    return Manifest(**{**data, "counted": counted, "tables": tables})


def new_records(last: Manifest, inputs: Iterable[str], access: LogAccess) -> NewRecords | None:
    """Returns which inputs have, or had, more than the last finished run has read; None if that is not known.

    From then on it is decided what a run reads, so that what else grows meanwhile waits for the next one.
    """
    from surecast.pipeline.input_files import find_files, readable_end, source_of

    if last.offsets is None:
        return None
    logs = [log for name in inputs if (log := log_at(name, access)) is not None]
    files = find_files([name for name in inputs if log_at(name) is None])
    upto: dict[str, int] = {}
    sources: set[str] = set()
    for path, file in files.items():
        read_to = last.offsets.get(path, 0)
        if (end := readable_end(file, read_to)) != read_to:
            upto[path] = end
            sources.add(source_of(path))
    for log in logs:
        if (end := log.end()) != last.offsets.get(log.url):
            upto[log.url] = end
            sources.add(BROKER)
    return NewRecords(last, upto, frozenset(sources))


def begin_run(output: Path) -> None:
    """Notes that a run begins: until it ends nobody knows what has been read. Tables stay those of the last run."""
    manifest = read_manifest(output)
    if manifest is not None and manifest.offsets is not None:
        _write(output, replace(manifest, offsets=None))


def link_tables(output: Path, warehouse: str, database: str, names: Iterable[str]) -> dict[str, TableFiles] | None:
    """Links the files of the tables that there are where no later run removes them; None if the tables are not on this
    machine."""
    folder = local_path(warehouse)
    if folder is None or not folder.is_dir():
        return None
    folder = folder if database == "default" else folder / f"{database}.db"
    return {name: _linked(output, folder / name, name) for name in names if (folder / name).is_dir()}


def end_run(
    output: Path,
    *,
    digest: str,
    warehouse: str,
    database: str,
    checkpoints: str,
    tables: Mapping[str, TableFiles] | None,
    counted: Mapping[str, tuple[int, int]],
    report: Mapping[str, Any],
) -> None:
    """Writes the manifest of a run that has ended, with its linked tables; removes it if there are none here."""
    if tables is None:
        (output / MANIFEST_FILE).unlink(missing_ok=True)
        return
    offsets = _offsets(checkpoints, database)
    _write(output, Manifest(time.time(), digest, warehouse, database, offsets, counted, tables, report))
    _remove_others(output / LINKS, {output / path for table in tables.values() for path in table.files})


def first_rows(output: Path, name: str, limit: int) -> list[dict[str, Any]]:
    """Returns rows of a table as the last finished run left it, `limit` at most, in the order of their first
    columns."""
    for _ in range(_ATTEMPTS):
        manifest = read_manifest(output)
        if manifest is None:
            raise ConfigurationError(f"{output}: no run has finished there; run surecast pipeline run first")
        if name not in manifest.tables:
            raise ConfigurationError(f"the table {name} is not there yet; run surecast pipeline run first")
        try:
            return _first([output / path for path in manifest.tables[name].files], limit)
        except FileNotFoundError as error:
            missing = error  # a run has just ended, and removed what the manifest named before; or it has no links
    raise SurecastError(f"the table {name} is being replaced by a run ({missing}); wait for it, then try again")


def code_digest(settings: Mapping[str, Any]) -> str:
    """Returns a digest of settings and of the code of the pipeline: with another one, tables are computed again."""
    answer = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    here = Path(__file__).parent
    for path in (*sorted(here.glob("*.py")), here.parent / "event_log_records.py"):
        answer.update(path.name.encode() + path.read_bytes())
    return answer.hexdigest()


def _first(paths: Iterable[Path], limit: int) -> list[dict[str, Any]]:
    """Finds the first rows by the columns that decide on the order, row group by row group; then reads only those."""
    import pyarrow as pa

    paths = list(paths)
    best: pa.Table | None = None
    for number, path in enumerate(paths):
        with _open(path) as file:
            keys = file.schema_arrow.names[:_SORT_COLUMNS]
            for group in range(file.num_row_groups):
                part = file.read_row_group(group, columns=keys)
                count = len(part)
                for column, values in zip(_PLACE, ([number] * count, [group] * count, range(count)), strict=True):
                    part = part.append_column(column, pa.array(values, pa.int64()))
                best = _smallest(part if best is None else pa.concat_tables([best, _smallest(part, limit)]), limit)
    if best is None:
        return []
    places = list(zip(*(best[column].to_pylist() for column in _PLACE), strict=True))
    rows: dict[tuple[int, int, int], dict[str, Any]] = {}
    for number, group in {place[:2] for place in places}:
        numbers = [place[2] for place in places if place[:2] == (number, group)]
        with _open(paths[number]) as file:
            found = file.read_row_group(group).take(numbers).to_pylist()
        rows |= {(number, group, row): values for row, values in zip(numbers, found, strict=True)}
    return [rows[place] for place in places]


def _open(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us", memory_map=True)


def _smallest(rows: pa.Table, limit: int) -> pa.Table:
    import pyarrow.compute as pc

    order = pc.sort_indices(rows, sort_keys=[(name, "ascending", "at_start") for name in rows.column_names])
    return rows.take(order[:limit])


def _linked(output: Path, folder: Path, name: str) -> TableFiles:
    """Returns the files of a table of Spark, each linked where no later run removes it."""
    import pyarrow.parquet as pq

    links = output / LINKS / name
    links.mkdir(parents=True, exist_ok=True)
    files: list[str] = []
    rows = size_bytes = 0
    for path in sorted(_table_files(folder)):
        link = links / path.name
        try:
            link.hardlink_to(path)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            link = path
        count = pq.read_metadata(link).num_rows
        rows += count
        if count:
            size_bytes += link.stat().st_size
            files.append(str(link.relative_to(output)) if link.is_relative_to(output) else str(link))
    return TableFiles(rows, size_bytes, tuple(files))


def _table_files(folder: Path) -> Iterator[Path]:
    """Yields the files of a table: of one that a stream writes to those that its sink has committed, else all."""
    log = folder / _SINK_LOG
    if not log.is_dir():
        yield from (path for path in folder.glob("*.parquet") if not path.name.startswith(("_", ".")))
        return
    batches = {path.name: path for path in log.iterdir() if path.name.removesuffix(".compact").isdecimal()}
    compact = max((int(name.removesuffix(".compact")) for name in batches if name.endswith(".compact")), default=-1)
    wanted = [path for name, path in batches.items() if name.isdecimal() and int(name) > compact]
    wanted += [batches[f"{compact}.compact"]] if compact >= 0 else []
    for path in wanted:
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            yield Path(unquote(urlsplit(json.loads(line)["path"]).path))


def _offsets(checkpoints: str, database: str) -> dict[str, int] | None:
    """Returns how far the stream of raw records has read its inputs; None if that cannot be seen from here."""
    folder = local_path(checkpoints)
    if folder is None:
        return None
    try:
        flow = folder / "_checkpoints" / "spark_catalog" / database / "raw_records" / "raw_records"
        version = max(int(path.name) for path in flow.iterdir() if path.name.isdecimal())
        last = max(int(path.name) for path in (flow / str(version) / "commits").iterdir() if path.name.isdecimal())
        text = (flow / str(version) / "offsets" / str(last)).read_text(encoding="utf-8")
        offsets = json.loads(text.splitlines()[2])
    except (OSError, ValueError, IndexError):
        return None
    return {str(key): int(value) for key, value in offsets.items()}


def local_path(url: str) -> Path | None:
    """Returns the folder that a URL of a file system names; None if it is on no file system of this machine.

    >>> local_path("file:/srv/tables"), local_path("file:///srv/my%20tables"), local_path("s3a://bucket/tables")
    (PosixPath('/srv/tables'), PosixPath('/srv/my tables'), None)
    """
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") and not parts.netloc else None


def _remove_others(links: Path, kept: set[Path]) -> None:
    for path in links.glob("*/*"):
        if path not in kept:
            path.unlink(missing_ok=True)


def _write(output: Path, manifest: Manifest) -> None:
    from surecast.report.report_files import write_whole

    text = json.dumps({"version": _VERSION, **asdict(manifest)}, indent=1) + "\n"
    write_whole(output / MANIFEST_FILE, lambda file: file.write(text.encode()))
