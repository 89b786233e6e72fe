"""The reference says what the package does."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import surecast.report
from surecast.report import HOW, SCOPES, SPLITS, UNITS, metrics_markdown
from surecast.report.columns import COLUMNS
from surecast.report.metric_catalogue import CATALOGUE
from surecast.report.metric_registry import unregister_metric


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "reference" / "report.md").read_text(encoding="utf-8")


def test_the_table_of_metrics_is_the_catalogue(page: str) -> None:
    found = re.search(r"<!-- metrics: begin -->\n(.*?)\n<!-- metrics: end -->", page, re.DOTALL)
    assert found is not None
    assert found[1] == metrics_markdown(CATALOGUE), "write the output of metrics_markdown() between the marks"


def test_all_words_are_explained(page: str) -> None:
    for word, meaning in [*SCOPES.items(), *UNITS.items(), *SPLITS.items()]:
        assert not word or f"| `{word}` | {meaning} |" in page
    for word, (mark, meaning) in HOW.items():
        assert f"| `{word}` | {mark} | {meaning} |" in page
    for column in COLUMNS:
        assert f"`{column}`" in page


def test_the_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "report.md", None, 0)
    try:
        assert len(test.examples) > 30
        assert doctest.DocTestRunner().run(test).failed == 0
    finally:
        unregister_metric("energy_per_s")


def test_the_public_names_are_there() -> None:
    assert sorted(surecast.report.__all__) == sorted(set(surecast.report.__all__))
    for name in surecast.report.__all__:
        assert hasattr(surecast.report, name)


def test_importing_the_package_loads_neither_pyarrow_nor_rich() -> None:
    heavy = ("pyarrow", "rich", "pandas", "scipy", "asyncio")
    code = (
        "import sys, surecast; before = set(sys.modules); import surecast.report; "
        f"print([name for name in {heavy} if name in sys.modules and name not in before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
