"""The page of forty behaviours, that of the one mechanism for each job, and the glossary name what exists."""

from __future__ import annotations

import re
import tomllib
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


def kept_by(page: str) -> dict[str, str]:
    """What keeps each mechanism the only one, by its job: the cells of the last column."""
    return {row[0]: row[3] for row in rows(page) if len(row) == 4 and ("tests/" in row[3] or "contract" in row[3])}


def is_kept(cell: str) -> bool:
    """Returns whether the tests and import contracts of a cell exist."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    for name in re.findall(r"`([^`]+)`", cell):
        file, _, test = name.partition("::")
        if test and (not (ROOT / file).exists() or f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")):
            return False
        if not test and name not in {contract["id"] for contract in contracts}:
            return False
    return True


def test_what_keeps_each_mechanism_the_only_one_exists() -> None:
    jobs = kept_by("background/one-mechanism.md")
    assert len(jobs) >= 12
    for job, cell in jobs.items():
        assert is_kept(cell), f"{job}: {cell}"
    for row in rows("background/one-mechanism.md"):
        assert row[0] not in jobs or not missing(row[2]), row


@pytest.mark.parametrize("cell", ["`tests/test_no_such.py::test_it`", "`tests/test_where_is_what.py::test_no`", "`no`"])
def test_a_keeper_that_does_not_exist_is_noticed(cell: str) -> None:
    assert not is_kept(cell)


@pytest.mark.parametrize("cell", ["`protocol/broker/no_such.py`", "`no/folder/`"])
def test_a_file_that_does_not_exist_is_noticed(cell: str) -> None:
    assert missing(cell)
