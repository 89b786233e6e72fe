"""`surecast predict`: the quality of service by formula."""

from __future__ import annotations

from typing import Annotated

import typer

from surecast.cli.options import ReportOutput, ScenarioInput, Variants, takes_groups

__all__ = ["predict"]


Draws = Annotated[
    int | None,
    typer.Option(
        "--draws",
        metavar="N",
        help="Draws of the scenario's estimates behind the intervals: 200 by default, none with 0.",
        show_default=False,
    ),
]
Over = Annotated[
    str | None,
    typer.Option(
        "--over",
        metavar="TIME",
        help="Intervals of what is observed in so long, such as 30d: failures in it are drawn too.",
        show_default=False,
    ),
]


@takes_groups
def predict(
    source: ScenarioInput, variants: Variants, output: ReportOutput, draws: Draws = None, over: Over = None
) -> None:
    """Predict what each subscriber will get, by formula; where values are estimates, with intervals."""
    import surecast
    from surecast.cli.output import working

    output.check()
    scenario = source.load()
    with working("predicting"):
        report = surecast.predict(scenario, draws=draws, over=over, **variants.arguments())
    output.finish(report)
