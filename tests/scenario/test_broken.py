"""Every file in the folder `broken` says, in comments on the lines concerned, which errors it must get."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from surecast.errors import Problem, ScenarioError
from surecast.scenario import load_system

FOLDER = Path(__file__).parent / "broken"
EXPECTED = re.compile(r"# ERROR ([^:]*): (.*?)(?=\s+# ERROR|$)")


def expected_problems(file: Path) -> list[tuple[int, str, str]]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [(i, m[1].strip(), m[2]) for i, line in enumerate(lines, 1) for m in EXPECTED.finditer(line)]


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda f: f.stem)
def test_broken_file_gets_exactly_its_errors(file: Path) -> None:
    expected = expected_problems(file)
    assert expected, "a broken file must say what is wrong with it"
    with pytest.raises(ScenarioError) as caught:
        load_system(file)
    problems = caught.value.problems
    unexplained = [p for p in problems if not any(explains(e, p) for e in expected)]
    missed = [e for e in expected if not any(explains(e, p) for p in problems)]
    assert not missed, f"not reported: {missed}\nreported: {[str(p) for p in problems]}"
    assert not unexplained, [str(p) for p in unexplained]


def explains(expected: tuple[int, str, str], problem: Problem) -> bool:
    line, field, fragment = expected
    return (line, field) == (problem.line, problem.field) and fragment in str(problem)
