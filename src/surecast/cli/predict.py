"""`surecast predict`: the quality of service by formula."""

from __future__ import annotations

from surecast.cli.options import ReportOutput, ScenarioInput, Variants, takes_groups

__all__ = ["predict"]


@takes_groups
def predict(source: ScenarioInput, variants: Variants, output: ReportOutput) -> None:
    """Predict what each subscriber will get, by formula."""
    import surecast
    from surecast.cli.output import working

    output.check()
    scenario = source.load()
    with working("predicting"):
        report = surecast.predict(scenario, **variants.arguments())
    output.finish(report)
