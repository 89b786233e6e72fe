"""The documentation builds as a site: strictly, with every page in its navigation, and with nothing from a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent
# A browser fetches these by itself. An <a> waits for a click.
FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
FETCHED_BY_STYLE = re.compile(r"(?:@import\s+|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)")


@pytest.fixture(scope="module")
def hooks() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "tools"))
    yield import_module("docs_site")
    sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = dict(os.environ, NO_MKDOCS_2_WARNING="1")
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def places(nav: object) -> Iterator[str]:
    """The pages that a navigation leads to."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for entry in nav.values():
            yield from places(entry)
    elif isinstance(nav, list):
        for entry in nav:
            yield from places(entry)


def test_the_navigation_leads_to_every_page_once(hooks: ModuleType) -> None:
    listed = list(places(hooks.on_config(MkDocsConfig()).nav))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert pages - set(listed) == set()
    assert len(listed) == len(set(listed))
    assert {"index.md", "project/changelog.md", "api/surecast.report.md"} <= set(listed)


def test_pages_are_built_and_the_api_is_rendered(site: Path) -> None:
    assert (site / "index.html").exists()
    assert (site / "background" / "architecture.html").exists()
    assert (site / "examples" / "company.yaml").exists()
    report = (site / "api" / "surecast.report.html").read_text(encoding="utf-8")
    assert 'id="surecast.report.ReportBuilder.add"' in report
    assert '<span class="gp">&gt;&gt;&gt; </span>' in report  # examples are code, not quotations


def test_nothing_is_fetched_from_a_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert FETCHED.findall(page.read_text(encoding="utf-8")) == [], page.name
    for sheet in site.rglob("*.css"):
        assert FETCHED_BY_STYLE.findall(sheet.read_text(encoding="utf-8")) == [], sheet.name


def test_the_patterns_find_what_would_be_fetched() -> None:
    assert FETCHED.findall('<link rel="stylesheet" href="https://fonts.example/x.css"><script src=//cdn.example/y.js>')
    assert FETCHED_BY_STYLE.findall('@import "https://fonts.example/x"; a{background:url(//cdn.example/y)}')
    assert not FETCHED.findall('<a href="https://example.org">words</a><script src="assets/x.js"></script>')


@pytest.mark.parametrize(
    ("link", "page", "wanted"),
    [
        ("docs/status.md", "index.md", "status.md"),
        ("examples", "index.md", "examples/index.md"),
        ("LICENSE", "index.md", "LICENSE.txt"),
        ("../../CONTRIBUTING.md#add-a-model", "guides/extend.md", "../project/contributing.md#add-a-model"),
        ("docs/background/defects.md", "project/changelog.md", "../background/defects.md"),
        ("../README.md", "guides/extend.md", "../contents.md"),
        ("#here", "status.md", "#here"),
        ("https://example.org/", "status.md", "https://example.org/"),
    ],
)
def test_links_lead_to_the_same_page_in_the_site(hooks: ModuleType, link: str, page: str, wanted: str) -> None:
    assert hooks.site_link(link, page) == wanted


def test_a_link_out_of_the_site_is_refused(hooks: ModuleType) -> None:
    with pytest.raises(PluginError, match=r"docs/status\.md: the link \.\./src leads to src, which is not in the site"):
        hooks.site_link("../src", "status.md")


def test_examples_in_docstrings_become_code(hooks: ModuleType) -> None:
    fenced = import_module("docs_docstrings").fenced
    text = "Adds.\n\n>>> add(1, 2)\n3\n>>> add(2, 2)\n4\n\nMore."
    assert fenced(text) == "Adds.\n\n\n```pycon\n>>> add(1, 2)\n3\n>>> add(2, 2)\n4\n```\n\n\nMore."
    assert fenced("No example.") == "No example."
