"""The page of forty behaviours and the glossary name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "surecast"
FILE = re.compile(r"`([\w/]+(?:\.py|/))`")


def rows(page: str) -> list[list[str]]:
    """The cells of every row of the tables of a page, without their heads."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    heads = {at for at, row in enumerate(cells) if set("".join(row)) <= set("-: ")}
    return [row for at, row in enumerate(cells) if at not in heads and at + 1 not in heads]


def missing(cell: str) -> list[str]:
    return [name for name in FILE.findall(cell) if not (SOURCE / name).exists()]


def test_forty_behaviours_each_have_a_file_that_exists() -> None:
    table = rows("background/where-is-what.md")
    assert [row[0] for row in table] == [str(number) for number in range(1, 41)]
    for number, question, files, *_ in table:
        assert FILE.findall(files), f"{number}: {question} has no file"
        assert not missing(files), f"{number}: src/surecast has no {missing(files)}"


def test_every_term_of_the_glossary_lives_in_a_file_that_exists() -> None:
    terms = [row for row in rows("glossary.md") if len(row) == 3]
    assert len(terms) > 60
    assert len({row[0] for row in terms}) == len(terms), "a term stands twice"
    for term, meaning, where in terms:
        assert FILE.findall(where), f"{term} has no file"
        assert not missing(where), f"{term}: src/surecast has no {missing(where)}"
        assert meaning.endswith("."), f"{term}: one sentence, with its full stop"


@pytest.mark.parametrize("cell", ["`protocol/broker/no_such.py`", "`no/folder/`"])
def test_a_file_that_does_not_exist_is_noticed(cell: str) -> None:
    assert missing(cell)
