"""Compiles the kernels that predictions and simulations need, so that the first question does not wait for them.

Answers the templates and one example of each model. What is compiled stays on disk; a second run takes seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from surecast import Scenario, predict, simulate
from surecast.errors import SurecastError

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = sorted((ROOT / "src" / "surecast" / "scenario" / "templates").glob("*.yaml"))
PREDICTED = [*TEMPLATES, *(ROOT / "examples" / f"{name}.yaml" for name in ("coded", "composed", "dropping", "p2s"))]
SIMULATED = [ROOT / "src" / "surecast" / "scenario" / "templates" / "minimal.yaml", ROOT / "examples" / "dropping.yaml"]


def main() -> None:
    try:
        for file in PREDICTED:
            predict(Scenario.load(file))
        for file in SIMULATED:
            simulate(Scenario.load(file), runs=2, duration="1h")
    except SurecastError as error:
        sys.exit(f"the kernels were not compiled: {error}")


if __name__ == "__main__":
    main()
