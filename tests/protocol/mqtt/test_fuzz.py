"""The fuzzer of `tools/` holds on some cases, and says what failed when something does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def fuzzer(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_mqtt", repository / "tools" / "fuzz_mqtt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fuzz_mqtt", module)
    spec.loader.exec_module(module)
    return module


def test_two_thousand_cases_hold(fuzzer: ModuleType) -> None:
    assert fuzzer.run([f"1:{n}" for n in range(2000)])


def test_a_failure_names_its_case_and_its_bytes(
    fuzzer: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, broken = fuzzer.outcome, []

    def outcome(case: object, chunks: tuple[bytes, ...], plain: bool = False) -> object:
        broken.append(chunks)
        return real(case, chunks, plain) if len(chunks) == 1 and not plain else ()

    monkeypatch.setattr(fuzzer, "outcome", outcome)
    assert not fuzzer.run(["1:0"])
    assert f"case 1:0: version {fuzzer.make_case('1:0').version}, " in capsys.readouterr().out
    assert broken[0][0] == fuzzer.make_case("1:0").data
