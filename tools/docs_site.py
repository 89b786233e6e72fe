"""Hooks of MkDocs: one site from docs/, the pages at the top of the repository, the examples and the docstrings.

The pages stay where readers of the repository expect them. Links are rewritten for the site, so a page is written once.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from api_reference import PROTOCOL, SECTIONS  # noqa: E402  (MkDocs loads this file without its folder on the path)

PROJECT = {
    "README.md": ("index.md", "Surecast"),
    "docs/README.md": ("contents.md", "All pages"),
    "CONTRIBUTING.md": ("project/contributing.md", "Contributing"),
    "CHANGELOG.md": ("project/changelog.md", "Changelog"),
    "SECURITY.md": ("project/security.md", "Security"),
    "CODE_OF_CONDUCT.md": ("project/code-of-conduct.md", "Code of conduct"),
}
"""Pages outside docs/, or with another place in the site: the place and the title there."""
EXAMPLES = "examples/index.md"
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
ROW = re.compile(r"^\| *([a-z]*) *\| *\[([^\]]+)\]\(([^)]+)\) *\|", re.MULTILINE)
_EXTERNAL = ("http://", "https://", "mailto:", "#")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Makes the navigation from the table of docs/README.md."""
    sections: dict[str, list[dict[str, str]]] = {}
    kind = ""
    for label, title, page in ROW.findall((ROOT / "docs" / "README.md").read_text(encoding="utf-8")):
        kind = label or kind
        sections.setdefault(kind, []).append({title: page})
    tutorial = sections.pop("tutorial")
    config.nav = [
        {"Start": [{"Surecast": "index.md"}, *tutorial, {"All pages": "contents.md"}, {"Examples": EXAMPLES}]},
        *({kind.capitalize(): pages} for kind, pages in sections.items() if kind != "project"),
        {
            "Python API": [
                {"Overview": "reference/python.md"},
                *({short(name): api_page(name)} for name in api_modules()),
            ]
        },
        {"Project": [*sections.get("project", []), *project_pages()]},
    ]
    without_api_overview(config.nav)
    return config


def without_api_overview(nav: list[Any]) -> None:
    """Leaves the overview of the Python API out of the reference: it opens a section of its own."""
    for section in nav:
        if "Reference" in section:
            section["Reference"] = [each for each in section["Reference"] if "reference/python.md" not in each.values()]


def project_pages() -> list[dict[str, str]]:
    """Returns the entries of the pages that are about the project itself."""
    return [{title: uri} for uri, title in PROJECT.values() if uri.startswith("project/")]


def api_modules() -> list[str]:
    """Returns the modules of the API, in the order of the reference page."""
    listed = [name for section in SECTIONS for name in (section.module, *section.parts)]
    return listed + [f"surecast.protocol.{name}" for name in PROTOCOL]


def short(module: str) -> str:
    """Returns the name of a module below `surecast`."""
    return module.removeprefix("surecast.")


def api_page(module: str) -> str:
    """Returns the place of a module's page in the site."""
    return f"api/{module}.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/, the examples, and one page for each module of the API."""
    readme = files.get_file_from_path("README.md")
    if readme is not None:
        files.remove(readme)
    for source, (uri, _) in PROJECT.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text(encoding="utf-8")))
    for example in sorted((ROOT / "examples").glob("*.yaml")):
        files.append(File.generated(config, f"examples/{example.name}", abs_src_path=str(example)))
    files.append(File.generated(config, "LICENSE.txt", abs_src_path=str(ROOT / "LICENSE")))
    files.append(File.generated(config, EXAMPLES, content=examples_page()))
    for module in api_modules():
        files.append(File.generated(config, api_page(module), content=f"# {module}\n\n::: {module}\n"))
    return files


def examples_page() -> str:
    """Returns the page that lists the examples with their descriptions."""
    rows = [
        "# Examples",
        "",
        "Scenario files of the repository's folder `examples`.",
        "",
        "| file | what it is |",
        "|---|---|",
    ]
    for example in sorted((ROOT / "examples").glob("*.yaml")):
        scenario = yaml.safe_load(example.read_text(encoding="utf-8"))
        text = " ".join(str(scenario.get("description") or scenario.get("name") or "").split()).replace("|", "\\|")
        rows.append(f"| [{example.name}]({example.name}) | {text} |")
    return "\n".join(rows) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites the links of a page from places in the repository to places in the site."""
    uri = page.file.src_uri
    if uri == EXAMPLES or uri.startswith("api/"):
        return markdown
    pieces = FENCED.split(markdown)
    pieces[::2] = [LINK.sub(lambda link: link[1] + site_link(link[2], uri) + link[3], piece) for piece in pieces[::2]]
    return "".join(pieces)


def site_link(link: str, uri: str) -> str:
    """Returns a link of the page at `uri` as it is written in the site; refuses one to a place that the site lacks."""
    if link.startswith(_EXTERNAL):
        return link
    path, mark, anchor = link.partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(origin_of(uri)), path))
    target = site_place(place)
    if target is None:
        raise PluginError(
            f"{origin_of(uri)}: the link {link} leads to {place}, which is not in the site; see tools/docs_site.py"
        )
    return posixpath.relpath(target, posixpath.dirname(uri) or ".") + mark + anchor


def origin_of(uri: str) -> str:
    """Returns the place in the repository of a page of the site."""
    return next((source for source, (place, _) in PROJECT.items() if place == uri), f"docs/{uri}")


def site_place(place: str) -> str | None:
    """Returns the place in the site of a file of the repository, None where it has none."""
    if place in PROJECT:
        return PROJECT[place][0]
    if place == "examples":
        return EXAMPLES
    if place == "LICENSE":
        return "LICENSE.txt"
    if place.startswith("examples/") and place.endswith(".yaml"):
        return place
    return place.removeprefix("docs/") if place.startswith("docs/") else None
