"""`surecast predict`: the quality of service by formula."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surecast.cli.answers import (
    AlgorithmNames,
    PolicyNames,
    SchemeNames,
    check_algorithms,
    check_out,
    check_policies,
    check_schemes,
    predict_system,
    save_report,
)
from surecast.cli.options import AsJson, Overrides, ScenarioFile, parse_overrides

__all__ = ["predict"]


def predict(
    file: ScenarioFile,
    scheme: SchemeNames = None,
    algorithm: AlgorithmNames = None,
    policy: PolicyNames = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the report (.json or .parquet).")] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many components of each scope to list.")] = 10,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Predict what each subscriber will get, by formula."""
    from surecast.cli.output import console, print_json, working
    from surecast.report import as_dict, render
    from surecast.scenario import load_system

    check_out(out)
    _, system = load_system(file, parse_overrides(overrides))
    with working("predicting"):
        report = predict_system(
            system, check_schemes(scheme, packets=True), check_algorithms(algorithm), check_policies(policy)
        )
    save_report(report, out)
    if json:
        print_json(as_dict(report))
        return
    console.print(render(report, limit=limit))
    if out is not None:
        console.print(f"saved {out}", markup=False, soft_wrap=True)
