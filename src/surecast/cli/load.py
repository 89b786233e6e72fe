"""`surecast load`: put load on any MQTT broker, and measure what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from surecast.cli.mqtt_options import AccessOptions, Qos
from surecast.cli.options import AsJson, takes_groups
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from surecast.load import LoadPlan

__all__ = ["BrokerAddress", "BrokerPids", "load", "quantity"]

UNSOUND = 1
"""The exit status where something was lost, disordered or never sent."""

BrokerAddress = Annotated[
    str, typer.Argument(metavar="HOST:PORT", help="Where the broker takes clients.", show_default=False)
]
BrokerPids = Annotated[
    list[int] | None,
    typer.Option(
        "--pid",
        metavar="NUMBER",
        help="A process of the broker on this machine, to measure its processor time and memory. May be repeated.",
    ),
]


@takes_groups
def load(
    address: BrokerAddress,
    entry: AccessOptions,
    publishers: Annotated[int, typer.Option(min=0, help="Clients that publish.")] = 1,
    subscribers: Annotated[int, typer.Option(min=0, help="Clients that subscribe.")] = 1,
    topics: Annotated[
        int, typer.Option(min=1, help="Topics. Publishers and subscribers are spread over them, in turn.")
    ] = 1,
    wildcard: Annotated[
        bool, typer.Option("--wildcard", help="Every subscriber subscribes to all topics by a wildcard.")
    ] = False,
    qos: Qos = 0,
    size: Annotated[str, typer.Option(help="Size of a payload, at least 20B.")] = "64B",
    size_max: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Draw sizes of payloads from --size to this.")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="Messages of all publishers, such as 1000/s, sent at their times. By default as many as go."),
    ] = None,
    arrivals: Annotated[
        Literal["poisson", "paced"], typer.Option(help="With --rate: Poisson, or at equal intervals.")
    ] = "poisson",
    window: Annotated[
        int, typer.Option(min=1, help="Without --rate: messages of each publisher that may be on their way.")
    ] = 64,
    burst: Annotated[int, typer.Option(min=1, help="Without --rate: messages in one write.")] = 1,
    time: Annotated[str, typer.Option(metavar="TIME", help="How long to measure.")] = "10s",
    warm_up: Annotated[str, typer.Option(metavar="TIME", help="Load before that.")] = "1s",
    probes: Annotated[
        str, typer.Option(metavar="RATE", help="Messages of a process of its own, which measure delay; 0/s for none.")
    ] = "50/s",
    storm: Annotated[
        str | None, typer.Option(metavar="RATE", help="Clients that connect and leave again, beside the load.")
    ] = None,
    idle: Annotated[int, typer.Option(min=0, help="Clients that stay connected and do nothing.")] = 0,
    more_filters: Annotated[
        int, typer.Option(metavar="NUMBER", min=0, help="Subscriptions of each subscriber that match nothing.")
    ] = 0,
    retain: Annotated[bool, typer.Option("--retain", help="Publish retained messages; removed at the end.")] = False,
    persistent: Annotated[
        bool, typer.Option("--persistent", help="Subscribe with sessions that last; removed at the end.")
    ] = False,
    processes: Annotated[
        int, typer.Option(min=1, max=64, help="Processes that publish, and as many that subscribe.")
    ] = 1,
    prefix: Annotated[str, typer.Option(help="How all topics begin.")] = "surecast-load",
    pids: BrokerPids = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of times and sizes.")] = 1,
    json: AsJson = False,
) -> None:
    """Put load on an MQTT broker, and measure delay, loss and the broker's processor time.

    The verdict comes first. Exits with 1 if something was lost, out of order, or never sent.
    """
    import secrets

    from surecast.cli.output import print_json, progress_bar
    from surecast.documents.units import parse_duration, parse_rate, parse_size
    from surecast.load import LoadPlan, run_load

    plan = LoadPlan(
        entry.access(address),
        publishers=publishers,
        subscribers=subscribers,
        topics=topics,
        wildcard=wildcard,
        qos=qos,
        size_bytes=int(quantity("--size", size, parse_size)),
        size_max_bytes=0 if size_max is None else int(quantity("--size-max", size_max, parse_size)),
        rate_per_s=None if rate is None else quantity("--rate", rate, parse_rate),
        arrivals=arrivals,
        window=window,
        burst=burst,
        seconds=quantity("--time", time, parse_duration),
        warm_up_s=quantity("--warm-up", warm_up, parse_duration),
        probes_per_s=quantity("--probes", probes, parse_rate),
        storm_per_s=0.0 if storm is None else quantity("--storm", storm, parse_rate),
        idle=idle,
        more_filters=more_filters,
        retain=retain,
        persistent=persistent,
        processes=processes,
        prefix=prefix,
        name=secrets.token_hex(3),
        seed=seed,
    )
    _check_files(plan)
    with progress_bar(f"load on {plan.access}") as move:
        outcome = run_load(plan, pids or (), _shown(move))
    if json:
        print_json(outcome.as_dict())
    else:
        from surecast.cli.load_output import print_outcome

        print_outcome(outcome)
    if not outcome.is_sound:
        raise typer.Exit(UNSOUND)


def quantity(option: str, text: str, parse: Callable[[str], float]) -> float:
    """Returns a quantity of the command line; what is wrong with it names the option."""
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def _shown(move: Callable[[int, int], None]) -> Callable[[str, float, float], None]:
    """Returns what shows progress in tenths of seconds, or in clients while they connect."""

    def show(activity: str, done: float, total: float) -> None:
        factor = 1 if activity == "connecting" else 10
        move(int(done * factor), int(total * factor))

    return show


def _check_files(plan: LoadPlan) -> None:
    """Refuses more connections than this process may have open files, before any is made."""
    import resource

    from surecast.load import clients_of

    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients_of(plan) // plan.processes + 200
    if wanted <= allowed:
        return
    if wanted > most:
        raise ConfigurationError(
            f"{clients_of(plan):,} clients in {plan.processes} processes need {wanted:,} open files in each, and this "
            f"machine allows {most:,}; raise the limit (ulimit -n) or take more --processes"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
