"""The commands of Surecast, by group."""

from __future__ import annotations

from typing import Annotated

import typer

from surecast import __version__
from surecast.cli import (
    advise,
    broker,
    cast,
    cluster,
    compare,
    demo,
    drop,
    learn,
    passwd,
    pipeline,
    plan,
    predict,
    pub,
    report,
    run,
    scenario,
    simulate,
    sub,
    sweep,
    zap,
)
from surecast.cli.mqtt_options import MQTT_CONTEXT, MqttCommand

__all__ = ["app"]

app = typer.Typer(
    name="surecast",
    help="A publish/subscribe system that knows its quality of service before it is deployed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(scenario.app, name="scenario")
app.command("predict")(predict.predict)
app.command("simulate")(simulate.simulate)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.add_typer(advise.app, name="advise")
app.command("plan")(plan.plan)
app.add_typer(sweep.app, name="sweep")
app.add_typer(drop.app, name="drop")
app.add_typer(report.app, name="report")
app.add_typer(broker.app, name="broker")
app.add_typer(cluster.app, name="cluster")
app.command("passwd")(passwd.passwd)
app.command("pub", cls=MqttCommand, context_settings=MQTT_CONTEXT)(pub.pub)
app.command("sub", cls=MqttCommand, context_settings=MQTT_CONTEXT)(sub.sub)
app.add_typer(cast.app, name="cast")
app.add_typer(zap.app, name="zap")
app.add_typer(pipeline.app, name="pipeline")
app.command("learn")(learn.learn)
app.command("demo")(demo.demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"surecast {__version__}")
        raise typer.Exit


@app.callback()
def surecast(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
