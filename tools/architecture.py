"""Writes the tables and pictures of docs/background/architecture.md from the source, so that they cannot drift from it.

The tables list every package with the first sentence of its docstring and the packages that it imports. The picture of
the packages shows the layers of the import contracts in pyproject.toml. The picture of a publication names files; a
file that does not exist is refused.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from api_reference import sentence
from architecture_pictures import GROUP, SINGLE, Box, packages_picture, way_picture

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "surecast"
PAGE = ROOT / "docs" / "background" / "architecture.md"
PACKAGES_PICTURE = ROOT / "docs" / "images" / "packages.svg"
WAY_PICTURE = ROOT / "docs" / "images" / "publication.svg"
REGION = "<!-- {name}: written by tools/{tool}.py -->\n"
END = "<!-- end of {name} -->\n"


def main() -> None:
    """Writes the page and the pictures, or with --check says which of them is stale."""
    texts = outputs()
    if "--check" not in sys.argv:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        return
    stale = [path.name for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]
    sys.exit(f"{', '.join(stale)}: stale; run tools/architecture.py" if stale else 0)


def outputs() -> dict[Path, str]:
    """Returns the text of each file that this tool writes."""
    check_layers()
    check_files()
    page = PAGE.read_text(encoding="utf-8")
    page = with_region(page, "packages", package_table())
    page = with_region(page, "parts", part_table())
    boxes = [[Box(name, meaning(SOURCE / name)) for name in row] for row in layers()]
    return {PAGE: page, PACKAGES_PICTURE: packages_picture(boxes), WAY_PICTURE: way_picture()}


def with_region(page: str, name: str, text: str, tool: str = "architecture") -> str:
    """Returns the page with the text between the two comments that name a region replaced."""
    start, end = REGION.format(name=name, tool=tool), END.format(name=name)
    if start not in page or end not in page:
        sys.exit(f"the comments around {name!r} are missing; write {start.strip()} and {end.strip()}")
    before, _, rest = page.partition(start)
    return f"{before}{start}\n{text}\n{end}{rest.partition(end)[2]}"


@cache
def layers() -> list[list[str]]:
    """Returns the layers of the import contract, the topmost first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(each for each in settings["contracts"] if each["id"] == "layers")
    return [
        [name.strip().removeprefix("surecast.") for name in re.split("[:|]", layer)] for layer in contract["layers"]
    ]


def packages() -> list[str]:
    """Returns the packages and modules directly below surecast, but for its own `__init__` and `__main__`."""
    folders = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
    return sorted(folders + [path.stem for path in SOURCE.glob("[!_]*.py")])


def parts() -> list[str]:
    """Returns the packages below those, with slashes, such as `prediction/composed`."""
    deeper = (path.parent.relative_to(SOURCE) for path in SOURCE.rglob("__init__.py"))
    return sorted(str(path) for path in deeper if len(path.parts) > 1)


def check_layers() -> None:
    """Refuses a package that no layer names, and a layer that names no package."""
    layered = {name for layer in layers() for name in layer}
    if missing := sorted(set(packages()) - layered):
        sys.exit(f"pyproject.toml: the contract `layers` does not name {', '.join(missing)}")
    if unknown := sorted(layered - set(packages())):
        sys.exit(f"pyproject.toml: the contract `layers` names {', '.join(unknown)}, which do not exist")


def check_files() -> None:
    """Refuses a file of the publication's way that does not exist."""
    steps = [step for stage in (*SINGLE, *GROUP) for step in stage.steps]
    if missing := [file for step in steps for file in step.files if not (SOURCE / file).exists()]:
        sys.exit(
            f"tools/architecture_pictures.py: src/surecast has no {', '.join(missing)}; name the file that does it now"
        )


def package_table() -> str:
    """Returns the table of the packages, in the order of the layers from the bottom."""
    rows = ["| package | what it does | imports |", "|---|---|---|"]
    for layer in reversed(layers()):
        for name in layer:
            imported = ", ".join(f"`{each}`" for each in imports(name)) or "nothing"
            rows.append(f"| `{name}` | {meaning(SOURCE / name)} | {imported} |")
    return "\n".join(rows) + "\n"


def part_table() -> str:
    """Returns the table of the packages inside packages."""
    rows = [f"| `{name}` | {meaning(SOURCE / name)} |" for name in parts()]
    return "\n".join(["| package | what it does |", "|---|---|", *rows]) + "\n"


def meaning(place: Path) -> str:
    """Returns the first sentence of the docstring of a package or module; refuses one that has none."""
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = sentence(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "")
    if not text:
        sys.exit(f"{file.relative_to(ROOT)}: has no docstring; write a sentence that says what the package does")
    return text


def imports(name: str) -> list[str]:
    """Returns the packages that a package imports anywhere in its source, the lowest layer first."""
    order = [each for layer in reversed(layers()) for each in layer]
    place = SOURCE / name
    files = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    imported = {each for file in files for each in imported_by(file)}
    return [each for each in order if each in imported and each != name]


def imported_by(file: Path) -> Iterator[str]:
    """Yields the packages that one file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (module.split(".")[1] for module in modules if module.startswith("surecast."))


if __name__ == "__main__":
    main()
