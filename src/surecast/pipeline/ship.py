"""The files that workers of a cluster need, as one archive: Surecast's code, or an environment with its dependencies.

    python -m surecast.pipeline.ship surecast.zip
    python -m surecast.pipeline.ship environment.tar.gz

The code is for workers whose Python has the dependencies. The environment is for workers that have the same Python, at
the same place, and nothing else.
"""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import io
import re
import shlex
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

import surecast
from surecast.errors import ConfigurationError, SurecastError
from surecast.report.report_files import write_whole

__all__ = ["pack_code", "pack_environment", "requirements"]

_TOP: Final = ("surecast", "pyspark_surecast")
_THERE: Final = ("pyspark", "py4j")
"""A worker of Spark has these, of the version that it runs."""
_SITE: Final = "site-packages"
_PYTHON: Final = """\
#!/bin/sh
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
PYTHONPATH="$here/{site}${{PYTHONPATH:+:$PYTHONPATH}}" exec {interpreter} "$@"
"""
_NAME: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^]]*)])?")
_EXTRA: Final = re.compile(r"extra\s*==\s*[\"']([^\"']+)")


def pack_code(target: Path) -> None:
    """Writes a .zip of the running package, for `spark.submit.pyFiles`."""

    def write(opened: IO[bytes]) -> None:
        with zipfile.ZipFile(opened, "w", zipfile.ZIP_DEFLATED) as packed:
            for path, name in _code():
                packed.write(path, name)

    write_whole(target, write)


def pack_environment(target: Path) -> None:
    """Writes a .tar.gz of a Python environment with the package and what it depends on, for `spark.archives`.

    Its `bin/python` starts the interpreter that the running environment was made with.
    """
    write_whole(target, _write_environment)


def _write_environment(opened: IO[bytes]) -> None:
    interpreter = Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    script = _PYTHON.format(site=_SITE, interpreter=shlex.quote(str(interpreter))).encode()
    # Most of it is machine code: more effort makes it hardly smaller.
    with tarfile.open(fileobj=opened, mode="w:gz", compresslevel=1) as packed:
        python = tarfile.TarInfo("bin/python")
        python.size, python.mode = len(script), 0o755
        packed.addfile(python, io.BytesIO(script))
        for path, name in _code():
            packed.add(path, f"{_SITE}/{name}")
        for each in sorted(requirements() - {*_THERE, "surecast"}):
            for file in metadata.distribution(each).files or ():
                path = Path(str(file.locate()))
                if ".." not in file.parts and path.is_file():
                    packed.add(path, f"{_SITE}/{file}")


def requirements() -> set[str]:
    """Returns the installed distributions that Surecast on Spark needs, directly or not.

    >>> {"surecast", "numpy", "numba", "llvmlite", "pyarrow"} <= requirements()
    True
    """
    seen: set[tuple[str, str]] = set()
    wanted = [("surecast", ""), ("surecast", "spark")]  # each with one of its extras
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in seen:
            continue
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another system or another version of Python
        seen.add((name, extra))
        for text in required:
            condition, needed = _EXTRA.search(text), _NAME.match(text)
            if needed is None or (condition[1] if condition else "") != extra:
                continue
            other = re.sub(r"[-_.]+", "-", needed[1]).lower()
            wanted.append((other, ""))
            if other == "surecast" and needed[2]:  # what extras of others bring is there where Spark is
                wanted += [(other, each.strip()) for each in needed[2].split(",")]
    return {name for name, _ in seen}


def _code() -> Iterator[tuple[Path, str]]:
    """Yields all files of the package, with their paths below the folder that it is in."""
    root = Path(surecast.__file__).parent.parent
    for top in _TOP:
        for path in sorted((root / top).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path, str(path.relative_to(root))


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the file that is named, by its ending."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path, help="file to write: .zip for the code, .tar.gz for all")
    target: Path = parser.parse_args(arguments).target
    if target.suffix == ".zip":
        pack_code(target)
    elif target.name.endswith((".tar.gz", ".tgz")):
        pack_environment(target)
    else:
        # Of others, such as .tar, Spark forgets what may be executed.
        raise ConfigurationError(f"{target}: write a name that ends in .zip or .tar.gz")


if __name__ == "__main__":
    try:
        main()
    except SurecastError as error:
        sys.exit(f"{error}")
