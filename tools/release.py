"""Checks that a release could be made: builds wheel and sdist, tries each in an empty environment, writes the notes.

    python tools/release.py            everything, into out/release
    python tools/release.py --notes    the notes alone

In each environment the package without extras runs a broker that a client publishes to, and the package with the extra
`models` makes a prediction. Nothing is tagged and nothing is uploaded.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "release"
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
SECTION = re.compile(r"^## \[?([^\]\s]+)\]?(.*)$", re.MULTILINE)
IN_WHEEL = ("surecast/py.typed", "surecast/scenario/templates/minimal.yaml", "surecast/cli/app.py")
IN_SDIST = (
    "pyproject.toml",
    "constraints.txt",
    "Makefile",
    ".ci/run",
    "CHANGELOG.md",
    "docs/README.md",
    "tests/conftest.py",
    "tools/setup.py",
)
START_S = 60.0


def main() -> None:
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--notes", action="store_true", help="write the notes alone")
    only_notes = parser.parse_args().notes
    version = current_version()
    notes = release_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if not only_notes:
        for archive in build(version):
            try_archive(archive, version)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "notes.md").write_text(notes, encoding="utf-8")
    say(f"notes of {version}: {OUT / 'notes.md'}")


def say(text: str) -> None:
    """Prints one line of progress."""
    print(f"release: {text}", flush=True)


def current_version() -> str:
    """Returns the version, from the one place where it is written; refuses one that no release could have."""
    tree = ast.parse((ROOT / "src" / "surecast" / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
            version = ast.literal_eval(node.value)
            if isinstance(version, str) and VERSION.fullmatch(version):
                return version
            sys.exit(
                f"src/surecast/__init__.py: __version__ is {version!r}; write three numbers, such as 0.1.0 or 0.2.0rc1"
            )
    sys.exit("src/surecast/__init__.py: there is no __version__")


def release_notes(changelog: str, version: str) -> str:
    """Returns the changelog's section of a version, or *Unreleased* where the version has no section yet."""
    headings = list(SECTION.finditer(changelog))
    ends = [heading.start() for heading in headings[1:]] + [len(changelog)]
    sections = {heading[1]: changelog[heading.end() : end] for heading, end in zip(headings, ends, strict=True)}
    text = sections.get(version, sections.get("Unreleased", "")).strip()
    if not re.search(r"^- ", text, re.MULTILINE):
        sys.exit(f"CHANGELOG.md: there is nothing to say of {version}; write it under '## Unreleased'")
    return f"# Surecast {version}\n\n{text}\n"


def build(version: str) -> list[Path]:
    """Returns wheel and sdist, built into an empty folder and checked for what they must contain."""
    folder = OUT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    environment = dict(os.environ, PIP_CONSTRAINT=str(ROOT / "constraints.txt"))
    run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], environment=environment)
    wheel, sdist = folder / f"surecast-{version}-py3-none-any.whl", folder / f"surecast-{version}.tar.gz"
    with zipfile.ZipFile(wheel) as archive:
        check_contents(wheel, set(archive.namelist()), IN_WHEEL)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        check_contents(sdist, names, (*IN_SDIST, *(f"src/{name}" for name in IN_WHEEL)))
    for path in (wheel, sdist):
        say(f"built {path.name}, {path.stat().st_size / 1e6:.2f} MB")
    return [wheel, sdist]


def check_contents(archive: Path, names: set[str], wanted: tuple[str, ...]) -> None:
    """Refuses an archive that lacks a file, or that has what belongs to one machine."""
    if missing := [name for name in wanted if name not in names]:
        sys.exit(f"{archive.name} lacks {', '.join(missing)}: see package-data in pyproject.toml, and MANIFEST.in")
    if strange := sorted(name for name in names if "__pycache__" in name or name.startswith((".venv", "out/"))):
        sys.exit(f"{archive.name} has {', '.join(strange[:3])}, which belong to no release: see MANIFEST.in")


def try_archive(archive: Path, version: str) -> None:
    """Installs an archive in an empty environment, and uses it from an empty folder."""
    with tempfile.TemporaryDirectory(prefix="surecast-release-") as name:
        folder = Path(name)
        run([sys.executable, "-m", "venv", str(folder / "venv")])
        install(folder, str(archive))
        say(f"{archive.name}: installed alone, {size_mb(folder / 'venv'):.0f} MB")
        printed = surecast(folder, "--version").strip()
        if printed != f"surecast {version}":
            sys.exit(f"{archive.name}: --version prints {printed!r}, not 'surecast {version}'")
        try_broker(folder)
        say(f"{archive.name}: a broker delivers")
        install(folder, f"{archive}[models]")
        say(f"{archive.name}: installed with models, {size_mb(folder / 'venv'):.0f} MB")
        try_prediction(folder)
        say(f"{archive.name}: a scenario is predicted")


def install(folder: Path, what: str) -> None:
    """Installs an archive with the pinned versions of what it needs."""
    python = str(folder / "venv" / "bin" / "python")
    # With this checkout on PYTHONPATH, pip would find the package installed already.
    environment = dict(clean_environment(), PIP_CONSTRAINT=str(ROOT / "constraints.txt"))
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what], environment=environment)


def size_mb(folder: Path) -> float:
    """Returns the size of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()) / 1e6


def clean_environment() -> dict[str, str]:
    """Returns the environment without what would lead Python back to this checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SURECAST"))}


def surecast(folder: Path, *arguments: str) -> str:
    """Runs the installed command and returns what it prints."""
    command = [str(folder / "venv" / "bin" / "surecast"), *arguments]
    return run(command, cwd=folder, environment=clean_environment())


def try_broker(folder: Path) -> None:
    """Starts the installed broker, publishes to it, and reads the retained message back."""
    port = free_port()
    command = [str(folder / "venv" / "bin" / "surecast"), "broker", "--port", str(port), "--folder", "state"]
    with (folder / "broker.log").open("w") as log:
        broker = subprocess.Popen(command, cwd=folder, env=clean_environment(), stdout=log, stderr=log)
    try:
        wait_for(port, broker, folder / "broker.log")
        surecast(folder, "pub", "-p", str(port), "-t", "release/check", "-q", "1", "-r", "-m", "delivered")
        message = surecast(folder, "sub", "-p", str(port), "-t", "release/#", "-q", "1", "-C", "1").strip()
    finally:
        broker.terminate()
        status = broker.wait(timeout=START_S)
    if message != "delivered" or status != 0:
        sys.exit(f"the installed broker delivered {message!r} and exited with {status}; it should be 'delivered' and 0")


def free_port() -> int:
    """Returns a port of the loopback interface that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(port: int, broker: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until a broker accepts connections; refuses one that ends or takes too long."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and broker.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"the installed broker does not listen:\n{log.read_text(encoding='utf-8')}")


def try_prediction(folder: Path) -> None:
    """Writes a scenario from a template of the package, and predicts it."""
    surecast(folder, "scenario", "new", "first.yaml")
    surecast(folder, "predict", "first.yaml", "--out", "report.json")
    if "reliability" not in surecast(folder, "report", "show", "report.json"):
        sys.exit("the installed command predicts no reliability for its own template")


def run(command: list[str], *, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Runs a command and returns its output; where it fails, shows all it printed and stops."""
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exited with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
