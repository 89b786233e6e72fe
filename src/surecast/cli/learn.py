"""`surecast learn`: a scenario from the tables of the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import AsJson, takes_groups
from surecast.cli.pipeline import SparkServerOptions
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.pipeline.learn import Learned

__all__ = ["learn"]


@takes_groups
def learn(
    server: SparkServerOptions,
    tables: Annotated[Path, typer.Option("--tables", "-t", help="Folder of the tables: --output of pipeline run.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The scenario file to write.")] = None,
    name: Annotated[str, typer.Option(help="Name of the scenario.")] = "learned",
    workload: Annotated[
        str, typer.Option(help="topics: named topics and clients; classes: content filters in classes.")
    ] = "topics",
    filters: Annotated[
        Path | None, typer.Option(help="Samples of notifications and of content filters, as JSON lines.")
    ] = None,
    base: Annotated[
        Path | None, typer.Option(help="A scenario from which network, overlay, delivery and targets are taken.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    json: AsJson = False,
) -> None:
    """Write a scenario from logs: estimates with intervals, how well each fits, and what logs cannot show."""
    from surecast.cli.output import print_json, working
    from surecast.pipeline import open_tables
    from surecast.pipeline.learn import WORKLOADS, learn_scenario, read_filter_samples
    from surecast.scenario import load_system

    # All that can be refused is refused before Spark is started.
    settings = server.settings()
    if workload not in WORKLOADS:
        raise ConfigurationError(f"--workload {workload}: write {' or '.join(WORKLOADS)}")
    server.check_tables(tables, "--tables")
    if out is not None and out.exists() and not force:
        raise ConfigurationError(f"--out {out}: the file exists; name another, or use --force")
    samples = None if filters is None else read_filter_samples(filters)
    base_system = None if base is None else load_system(base)
    opened = open_tables(tables, settings, server.remote, keep_server=server.keeps_server)
    with working("reading the tables"), opened as (spark, _):
        from surecast.pipeline.learn.table_statistics import read_statistics

        statistics = read_statistics(spark, server.database)
    with working("estimating"):
        learned = learn_scenario(statistics, name=name, workload=workload, samples=samples, base=base_system)
    if out is not None:
        from surecast.report.report_files import write_whole

        text = learned.to_yaml()
        write_whole(out, lambda file: file.write(text.encode()))
    if json:
        print_json(learned.as_dict())
    else:
        _print(learned, out)


def _print(learned: Learned, out: Path | None) -> None:
    from surecast.cli.output import console, print_table
    from surecast.tables import plain

    rows = []
    for each in learned.estimates:
        unit = f" {each.unit}" if each.unit else ""
        high = "..." if each.high == float("inf") else f"{each.high:.4g}"
        figures = (f"{each.value:.4g}{unit}", f"{each.low:.4g} to {high}", f"{each.n:,}")
        rows.append([each.what, each.verdict, *figures])
    print_table(("what", "verdict"), ("value", "95 %", "n"), rows)
    if learned.missing:
        console.print("not estimated:", style="bold")
        for missing in learned.missing:
            console.print(plain(f"- {missing}"), soft_wrap=True)
    if out is None:
        console.print("nothing was written; name a file with --out", soft_wrap=True)
    else:
        console.print(f"wrote {out}", markup=False, soft_wrap=True)
