"""Tables fit any width, and leave nothing out."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from surecast.tables import FittedTable


def printed(table: FittedTable, width: int) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def without_blanks(text: str) -> str:
    return re.sub(r"\s", "", text)


BROKERS = FittedTable(
    "Brokers",
    ["Broker", "State"],
    ["Messages", "Mean delay", "Load"],
    [["periodic-subscription", "up since this morning", "1,234,567", "12.3 ms", "81.2 %"]],
    caption="measured",
)


def test_a_table_that_fits_is_one_block() -> None:
    text = printed(BROKERS, 100)
    assert [line.split() for line in text.splitlines() if "Broker" in line] == [
        ["Brokers"],
        ["Broker", "State", "Messages", "Mean", "delay", "Load"],
    ]
    assert "up since this morning" in text
    assert text.rstrip().endswith("measured")


def test_texts_are_wrapped_at_blanks_and_hyphens_before_a_column_of_figures_moves_below() -> None:
    lines = printed(BROKERS, 66).splitlines()
    assert sum("Broker " in line for line in lines) == 1
    assert any(line.split()[0] == "periodic-" and "1,234,567" in line for line in lines if line.strip())


def test_figures_that_do_not_fit_follow_below_with_the_names_again() -> None:
    lines = printed(BROKERS, 40).splitlines()
    heads = [line.split()[-1] for line in lines if "Broker " in line]
    assert len(heads) > 1
    assert sum("periodic-" in line for line in lines) == len(heads)


@given(
    names=st.lists(st.text("abc -", min_size=1, max_size=40), min_size=1, max_size=3),
    figures=st.lists(st.integers(0, 10**12).map("{:,}".format), max_size=9),
    width=st.integers(40, 130),
)
def test_at_every_width_all_figures_are_whole_and_no_line_is_longer(
    names: list[str], figures: list[str], width: int
) -> None:
    headers = [f"figure {i}" for i in range(len(figures))]
    text = printed(FittedTable("", [f"name {i}" for i in range(len(names))], headers, [[*names, *figures]]), width)
    assert max(len(line) for line in text.splitlines()) <= width
    for figure in figures:
        assert re.search(rf"(?<![\d,]){re.escape(figure)}(?![\d,])", text)


@given(name=st.text("abcdef", min_size=1, max_size=120), width=st.integers(30, 80))
def test_an_identifier_is_never_cut(name: str, width: int) -> None:
    text = printed(FittedTable("", ["client"], ["queued"], [[name, "7"]]), width)
    parts = [re.sub(r"\d", "", line).strip() for line in text.splitlines()[3:]]
    assert without_blanks("".join(parts)) == name
