"""`surecast predict`: the quality of service by formula."""

from __future__ import annotations

from surecast.cli.options import (
    AlgorithmNames,
    AsJson,
    Limit,
    Overrides,
    PolicyNames,
    ReportOut,
    ScenarioFile,
    SchemeNames,
    parse_overrides,
)

__all__ = ["predict"]


def predict(
    file: ScenarioFile,
    scheme: SchemeNames = None,
    algorithm: AlgorithmNames = None,
    policy: PolicyNames = None,
    out: ReportOut = None,
    limit: Limit = 10,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Predict what each subscriber will get, by formula."""
    import surecast
    from surecast.cli.output import check_out, print_report, print_saved, save_report, working

    check_out(out)
    scenario = surecast.Scenario.load(file, parse_overrides(overrides))
    with working("predicting"):
        report = surecast.predict(scenario, schemes=scheme, algorithms=algorithm, policies=policy)
    save_report(report, out)
    print_report(report, limit, json)
    if not json:
        print_saved(out)
