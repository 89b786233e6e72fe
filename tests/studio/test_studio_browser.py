"""The pages in a real browser: they draw without a complaint and without the network."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.studio import Axis, Chart, Line, Page, ScatterGroup, draw_system, scatter, write_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: install it to test the pages")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=4000",
    "--enable-logging=stderr",
]
DARK_FLAGS = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
Browse = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """The page's elements after its scripts have run, and what it wrote to the console."""

    def run(page: Path, *more: str) -> tuple[str, list[str]]:
        profile = tmp_path / "profile"
        command = [str(CHROMIUM), *FLAGS, *more, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    return run


def test_a_drawing_with_hostile_names_draws_in_the_dark(hostile: Any, browse: Browse, tmp_path: Path) -> None:
    page = draw_system(hostile, tmp_path / "a.html")
    elements, console = browse(page, *DARK_FLAGS)
    assert console == []
    assert "main-svg" in elements
    assert "rgb(18, 22, 30)" in elements  # the dark surface
    assert "<title>owned" not in elements
    body = re.sub(r"<script.*?</script>", "", elements, flags=re.S)
    assert "&lt;script&gt;alert(1)" in body
    assert "<img" not in body
    assert ">var(--ink)" in body  # a name, not a colour
    assert "<b>bold" not in body


def test_two_figures_share_one_plotly_and_follow_the_light(browse: Browse, tmp_path: Path) -> None:
    chart = Chart([Line("a", [1, 2], [1, 2])], title="one", x=Axis("x"), y=Axis("y"))
    page = write_page(Page("t", [chart, chart]), tmp_path / "a.html")
    elements, console = browse(page)
    assert console == []
    assert elements.count('class="js-plotly-plot') + elements.count("plot js-plotly-plot") == 2
    assert "rgb(255, 255, 255)" in elements


def test_a_script_that_slipped_in_would_not_run(browse: Browse, tmp_path: Path) -> None:
    page = scatter([ScatterGroup("a", [0.0], [1.0])], tmp_path / "a.html", x_label="x", y_label="y")
    slipped = "<script>document.title = 'owned'</script></main>"
    page.write_text(page.read_text().replace("</main>", slipped))
    elements, console = browse(page)
    assert "<title>owned" not in elements
    assert any("Content Security Policy" in line for line in console)
    assert "main-svg" in elements
