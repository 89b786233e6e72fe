"""Importing is cheap: each part loads what it needs, and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

NUMERIC = ("matplotlib", "networkx", "numba", "numpy", "plotly", "pyarrow", "scipy")
GROUP_FILE = """
name: shop
founding: 0123456789abcdef
secret: correct horse battery staple
replicas:
- {id: 1, peer: "127.0.0.1:7001", mqtt: [{port: 1883}]}
"""


def loaded(code: str, *arguments: str) -> set[str]:
    """Returns the modules that a new interpreter has after some code."""
    program = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


LIGHT = (
    "surecast",
    "surecast.documents.reading",
    "surecast.client",
    "surecast.broker.broker_service",
    "surecast.broker.cluster",
    "surecast.broker.group_run",
    "surecast.broker.overlay.overlay_service",
    "surecast.broker.overlay.local_overlay",
    "surecast.cli.app",
    "surecast.cli.broker",
)


def test_brokers_groups_and_clients_load_no_numeric_package() -> None:
    """In one process, which says what the first of them that loads one has brought in."""
    modules = loaded(f"""
import importlib
for module in {LIGHT!r}:
    importlib.import_module(module)
    heavy = sys.modules.keys() & {{*{NUMERIC!r}, "surecast.scenario", "surecast.report"}}
    assert not heavy, (module, heavy)
""")
    assert set(LIGHT) <= modules


def test_the_configuration_of_a_group_loads_no_numeric_package(tmp_path: Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text(GROUP_FILE)
    code = """
from pathlib import Path
from surecast.broker.group_config import config_of, load_broker_group
from surecast.cli.broker import applications_of
group = load_broker_group(Path(sys.argv[1]))
assert config_of(group, 1).listeners[0].port == 1883 and applications_of(group) == []
"""
    assert not loaded(code, str(file)) & {*NUMERIC, "surecast.zap"}


def test_a_broker_loads_metrics_websockets_and_yaml_when_it_is_told_to_use_them() -> None:
    modules = loaded("import surecast.broker.config, surecast.broker.broker_service")
    assert not modules & {"prometheus_client", "websockets", "yaml"}


def test_a_broker_that_starts_loads_nothing_that_colours_text(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("name: shop\n")
    code = """
arguments = sys.argv[1:]
sys.argv = ["surecast", "broker", "--check-config", *arguments]
from surecast.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code
"""
    modules = loaded(code, str(file))
    assert "surecast.broker.config" in modules
    assert not modules & {"rich", "surecast.cli.output", "surecast.report"}


def test_a_command_loads_no_other_command() -> None:
    code = """
sys.argv = ["surecast", "broker", "--check-config", "absent.yaml"]
from surecast.cli import main
try:
    main()
except SystemExit:
    pass
"""
    commands = {module for module in loaded(code) if module.startswith("surecast.cli.")}
    expected = {"app", "broker", "options", "output"}
    assert commands == {f"surecast.cli.{name}" for name in expected}


OTHER_MODELS = ("capacity", "coding", "dropping", "replication")


def models_of(modules: set[str]) -> set[str]:
    """Returns the packages of models among some modules, such as `prediction.capacity`."""
    parts = {tuple(module.split(".")[1:3]) for module in modules if module.startswith("surecast.")}
    return {".".join(part) for part in parts if part[0] in ("prediction", "simulation") and len(part) == 2}


def test_a_question_about_reliability_loads_no_other_model(repository: Path) -> None:
    code = """
from surecast import Scenario, predict
assert len(predict(Scenario.load(sys.argv[1])))
"""
    modules = loaded(code, str(repository / "examples" / "reliability-tree.yaml"))
    models = models_of(modules)
    assert "prediction.reliability" in models
    assert not models & {f"prediction.{name}" for name in OTHER_MODELS}
    assert "surecast.prediction.composed.composed_report" not in modules
    assert not [name for name in models if name.startswith("simulation.")]


def test_a_client_process_of_a_run_loads_no_model() -> None:
    """It is given its plan; only who makes one draws."""
    modules = loaded("import surecast.measurement.client_processes")
    assert not modules & {"numba", "scipy", "networkx"}
    assert models_of(modules) == set()


def test_a_name_that_a_package_has_not_is_an_error_as_ever() -> None:
    import surecast.prediction

    with pytest.raises(AttributeError, match=r"module 'surecast\.prediction' has no attribute 'predict_weather'"):
        _ = surecast.prediction.predict_weather  # type: ignore[attr-defined]
