"""The documentation hangs together: links lead somewhere, indexes are complete, pages made from code are current."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TOP = ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY", "CODE_OF_CONDUCT")
PAGES = [*(ROOT / f"{name}.md" for name in TOP), *sorted(DOCS.rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
TEST_FILE = re.compile(r"`(tests/[\w./]+\.py)(?:::(\w+))?`")
EXTRA = re.compile(r"[A-Za-z0-9_.-]+")
PACKAGES = (
    "scenario",
    "report",
    "prediction",
    "simulation",
    "planning",
    "client",
    "zap",
    "pipeline",
    "measurement",
    "studio",
    "errors",
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its code, in which brackets are no links."""
    return CODE.sub("code", FENCED.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """The places of a page that a link can name: headings, lower-cased, with dashes for spaces."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        again = 1
        while anchor in found:
            anchor = f"{anchor}-{again}"
            again += 1
        found.add(anchor)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_the_page_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name_of(page)}: {link} leads nowhere"
        assert there.is_relative_to(ROOT), f"{name_of(page)}: {link} leads out of the repository"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{name_of(page)}: there is no heading {anchor} in {name_of(there)}"


def test_anchors_are_made_as_pages_are_shown(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b_c`, (d)!\n```text\n# no heading\n```\n## Same\n## Same\n### [Link](x.md) too\n")
    assert anchors(page) == {"a-b_c-d", "same", "same-1", "link-too"}


def test_the_index_lists_every_page() -> None:
    listed = set(LINK.findall(prose(DOCS / "README.md")))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    assert pages - listed == set(), "docs/README.md does not list these pages"


def test_every_picture_is_shown_somewhere() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in LINK.findall(prose(page))}
    assert {picture.resolve() for picture in (DOCS / "images").iterdir()} - shown == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    for path, function in TEST_FILE.findall(page.read_text(encoding="utf-8")):
        file = ROOT / path
        assert file.exists(), f"{name_of(page)}: there is no {path}"
        if function:
            assert f"def {function}(" in file.read_text(encoding="utf-8"), f"{name_of(page)}: no {function} in {path}"


def requirements() -> Iterator[tuple[str, str]]:
    """Each package that pyproject.toml asks for, with the extra it is in."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, listed in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for requirement in listed:
            found = EXTRA.match(requirement)
            assert found is not None
            if found[0] != project["name"]:  # an extra that contains another one
                yield found[0], extra


def test_every_dependency_is_explained_with_its_extra() -> None:
    page = (DOCS / "dependencies.md").read_text(encoding="utf-8").lower()
    parts = re.split(r"^in the (?:base|extra `(\w+)`)", page, flags=re.MULTILINE)
    sections = {extra or "": text for extra, text in zip(parts[1::2], parts[2::2], strict=True)}
    missing = [
        f"{name} in {extra or 'the base'}"
        for name, extra in requirements()
        if not re.search(rf"^\| .*\b{re.escape(name.lower())}\b", sections[extra], re.MULTILINE)
    ]
    assert not missing, f"docs/dependencies.md says nothing of {', '.join(missing)}"


def test_every_dependency_that_is_explained_is_one() -> None:
    known = {name.lower() for name, _ in requirements()}
    rows = re.findall(r"^\| ([^|]+) \|", (DOCS / "dependencies.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {word.lower() for row in rows for word in re.split(r", below \d+| and |, ", row) if word}
    assert named - known - {"package", "---"} == set()


def reference_tool(name: str = "api_reference") -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return import_module(name)
    finally:
        sys.path.pop(0)


REFERENCES = ("api_reference", "broker_reference", "command_reference", "log_reference", "scenario_reference")


@pytest.mark.parametrize("name", REFERENCES)
def test_pages_that_are_made_from_code_are_current(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--check"])
    try:
        reference_tool(name).main()
    except SystemExit as stop:
        assert not stop.code, stop.code


def test_every_public_package_and_name_is_in_the_reference() -> None:
    tool = reference_tool()
    listed = {section.module for section in tool.SECTIONS}
    assert {f"surecast.{name}" for name in PACKAGES} <= listed
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    for module in listed | {part for section in tool.SECTIONS for part in section.parts}:
        for name in getattr(import_module(module), "__all__", ()):
            assert f"`{name}" in text, f"{module}.{name} is not in docs/reference/python.md"


def test_every_public_name_says_what_it_is() -> None:
    tool = reference_tool()
    for section in tool.SECTIONS:
        for module in map(import_module, (section.module, *section.parts)):
            for name in tool.names_of(module):
                assert tool.meaning(module, name), f"{module.__name__}.{name} has no docstring"


def test_a_first_sentence_does_not_end_at_an_equation() -> None:
    sentence = reference_tool().sentence
    assert sentence("A share (dropping Eq. 28) of all. More.") == "A share (dropping Eq. 28) of all"
    assert sentence("What it is: this or\nthat.\n\nMore.") == "What it is: this or that"
    assert sentence("") == ""
