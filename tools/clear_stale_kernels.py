"""Removes compiled kernels from disk whose file, callees or constants changed since they were made.

Numba checks a kernel's cache against the kernel's own file only: when a kernel in another file that it calls was
edited, the old machine code would go on being used. And it reads the cache before it checks, which fails where a type
of an argument has another name or place now. Kernels of which nothing is known are removed too; all others stay, so
that a change elsewhere compiles nothing again.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = ROOT / ".venv" / "kernels-stamp"
SOURCE = ROOT / "src"
KERNELS = "surecast.kernels"


def main() -> None:
    clear(SOURCE, STAMP)


def clear(source: Path, stamp: Path) -> list[str]:
    """Removes what is stale and writes the digests of today; returns the files that have to compile again."""
    try:
        before = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    digests = {str(file.relative_to(source)): _digest(source, file) for file in _kernel_files(source)}
    stale = [name for name, digest in digests.items() if before.get(name) != digest]
    for name in stale:
        file = source / name
        for pattern in (f"{file.stem}.*.nbi", f"{file.stem}.*.nbc"):
            for cached in (file.parent / "__pycache__").glob(pattern):
                cached.unlink()
    stamp.write_text(json.dumps(digests), encoding="utf-8")
    return stale


def _kernel_files(source: Path) -> list[Path]:
    return [file for file in sorted(source.rglob("*.py")) if _is_kernel_file(file)]


def _is_kernel_file(file: Path) -> bool:
    return f"from {KERNELS} import" in file.read_text(encoding="utf-8")


def _digest(source: Path, file: Path) -> str:
    """Returns the digest of all files that machine code made from a file can come from."""
    needed: set[Path] = set()
    waiting = [file]
    while waiting:
        needed.add(waiting[-1])
        waiting += _needed(source, waiting.pop()) - needed
    digest = hashlib.sha256()
    for each in sorted(needed):
        digest.update(f"{each.relative_to(source)}\n".encode() + each.read_bytes())
    return digest.hexdigest()


@cache
def _needed(source: Path, file: Path) -> frozenset[Path]:
    """Returns the files from which a file imports; of a file with kernels, only where machine code can use the name."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    used = _names_in_machine_code(tree) if _is_kernel_file(file) else None
    files = set()
    for node in ast.walk(tree):
        for module, name, bound in _imports(node):
            if used is None or bound in used:
                found = _file_of(source, f"{module}.{name}") or _file_of(source, module)
                files |= {found} if found is not None else set()
    return frozenset(files)


def _names_in_machine_code(tree: ast.Module) -> set[str]:
    """Returns the names that kernels use, and those of which constants are made: all but ordinary functions' and
    classes'."""
    names: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) or (
            isinstance(statement, ast.FunctionDef)
            and not any("njit" in ast.unparse(decorator) for decorator in statement.decorator_list)
        ):
            continue
        names |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return names


def _imports(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yields module, name, and the name here, of what a statement imports; the package has absolute imports only."""
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        for alias in node.names:
            yield node.module, alias.name, alias.asname or alias.name
    elif isinstance(node, ast.Import):
        for alias in node.names:
            package, _, name = alias.name.rpartition(".")
            yield package, name, alias.asname or alias.name.partition(".")[0]


def _file_of(source: Path, module: str) -> Path | None:
    place = source.joinpath(*module.split("."))
    return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.exists()), None)


if __name__ == "__main__":
    main()
