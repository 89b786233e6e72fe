"""The page in a real browser: no complaint, no figure missing, light and dark, on a telephone and on paper."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FIGURES = """() => [...document.querySelectorAll(".plot")].map(plot => {
  const drawn = plot.querySelector(".main-svg");
  const box = drawn ? drawn.getBoundingClientRect() : { width: 0, height: 0 };
  const marks = plot.querySelectorAll(".scatterlayer path, .scatterlayer .point, .barlayer .point").length;
  return [plot.id, box.width, box.height, marks, (plot.getAttribute("aria-label") || "").length];
})"""
SURFACE = "() => getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(18, 22, 30)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: install it to test the page")
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=chromium, headless=True, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def opened(quick_tour: dict[str, Any], browser: Any) -> Callable[[int, str], tuple[Any, list[str]]]:
    """Returns the page at a width in a scheme, and what it wrote to the console. Tests share pages: drawing all figures
    takes seconds."""

    @cache
    def open_page(width: int, scheme: str) -> tuple[Any, list[str]]:
        viewport = {"width": width, "height": 844}
        page = browser.new_context(viewport=viewport, color_scheme=scheme, accept_downloads=True).new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        page.set_default_timeout(120_000)
        page.goto(Path(quick_tour["report"]).absolute().as_uri())
        page.wait_for_function("() => document.querySelectorAll('.plot .main-svg').length >= 7")
        page.wait_for_timeout(500)
        return page, said

    return open_page


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (390, "light")])
def test_every_figure_is_drawn(opened: Any, tmp_path: Path, width: int, scheme: str) -> None:
    page, said = opened(width, scheme)
    assert said == []
    found = page.evaluate(FIGURES)
    assert len(found) >= 12  # of plan 3, predict 2, run 3, overlay 1, check 3
    for name, wide, high, marks, alt in found:
        assert wide > 0.75 * min(width, 1000) - 60, name
        assert high > 150, name
        assert marks > 0, name
        assert alt > 20, name
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width  # nothing to scroll sideways
    assert page.evaluate(SURFACE) == (DARK if scheme == "dark" else LIGHT)
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 50_000


def test_the_button_turns_the_lights_off_and_on(opened: Any) -> None:
    page, said = opened(1200, "light")
    for surface in (DARK, LIGHT):
        page.click("#theme")
        page.wait_for_timeout(300)
        assert page.evaluate(SURFACE) == surface
        drawn = page.evaluate("() => document.querySelector('.plot .main-svg').style.background")
        assert drawn == surface
    assert said == []


def test_it_prints_in_light_colours(opened: Any, tmp_path: Path) -> None:
    page, said = opened(1200, "dark")
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert said == []


def test_numbers_are_saved_by_a_click(opened: Any, tmp_path: Path) -> None:
    page, _ = opened(1200, "light")
    with page.expect_download() as download:
        page.click("a[download='gap.csv']")
    download.value.save_as(tmp_path / "gap.csv")
    first = (tmp_path / "gap.csv").read_text().splitlines()[0]
    assert first == "seconds,broadcaster-1,broadcaster-2,broadcaster-3,acknowledged"
