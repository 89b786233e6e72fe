"""The same seed gives the same results as in the version that the kept files come from."""

from __future__ import annotations

from typing import Any

import pytest
from golden_cases import KINDS, read_kept, run_case


def cases() -> list[Any]:
    """All cases. The first seed of each scenario is run every time, its others with `make test-long`."""
    listed, begun = [], set()
    for kind, made in KINDS.items():
        for case, _ in made():
            scenario = (kind, case.rpartition(" ")[0])
            marks = [pytest.mark.long] if scenario in begun else []
            begun.add(scenario)
            listed.append(pytest.param(kind, case, marks=marks, id=f"{kind} {case}"))
    return listed


def differences(kept: Any, found: Any, where: str = "") -> list[str]:
    """Where two results differ by more than the order of additions explains."""
    if isinstance(kept, dict) and isinstance(found, dict):
        missing = [f"{where}{name}: only in one" for name in kept.keys() ^ found.keys()]
        return missing + [d for name in kept.keys() & found.keys() for d in differences(kept[name], found[name], name)]
    if isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        return [d for one, other in zip(kept, found, strict=True) for d in differences(one, other, where)]
    if isinstance(kept, float) and isinstance(found, float) and kept == pytest.approx(found, rel=3e-9, abs=1e-12):
        return []
    return [] if kept == found else [f"{where}: {kept} was kept, {found} came out"]


@pytest.mark.parametrize(("kind", "case"), cases())
def test_a_seed_keeps_its_meaning(kind: str, case: str) -> None:
    assert differences(read_kept(kind)[case], run_case(kind, case)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_kept_result_is_compared(kind: str) -> None:
    assert list(read_kept(kind)) == [case for case, _ in KINDS[kind]()]


def test_a_difference_is_seen() -> None:
    assert differences({"a": [1.0, None]}, {"a": [1.0 + 1e-11, None]}) == []
    assert differences({"a": [1.0, 2]}, {"a": [1.0 + 1e-7, 3]}) != []
    assert differences({"a": 1}, {"b": 1}) != []
