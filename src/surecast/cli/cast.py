"""`surecast cast`: events as packets over lossy links, on real sockets and compared in virtual time."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.options import AsJson, ScenarioInput, takes_groups
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.broker.cast import CastResult
    from surecast.simulation.coding import LossSweep

__all__ = ["app"]

app = typer.Typer(
    help="Publish files over lossy links with network coding, or compare schemes for them.", no_args_is_help=True
)
BYTES_MAX = 1 << 26


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to publish, as a stream of events.")],
    subscribers: Annotated[int, typer.Option(min=1, max=500, help="Subscribers, each with a UDP socket.")] = 20,
    brokers: Annotated[int, typer.Option(min=1, max=500, help="Brokers, in a ring with chords.")] = 6,
    loss: Annotated[float, typer.Option(min=0.0, max=0.9, help="Share of all datagrams that are lost.")] = 0.1,
    delay: Annotated[str, typer.Option(metavar="TIME", help="Time that a datagram takes.")] = "2ms",
    scheme: Annotated[
        str, typer.Option(help="tree, tree-retransmission, gossip, coding or coding-gossip.")
    ] = "coding-gossip",
    packets: Annotated[int, typer.Option(min=1, max=1000, help="Packets of an event.")] = 32,
    redundancy: Annotated[float, typer.Option(min=0.0, max=10.0, help="Coded packets for each plain packet.")] = 0.25,
    deadline: Annotated[str, typer.Option(metavar="TIME", help="Time that an event has to arrive.")] = "10s",
    rate: Annotated[
        float | None,
        typer.Option(min=1.0, help="Packets per second that a link carries; by default what one machine can relay."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Rounds of gossip for an event.")] = 8,
    fan_out: Annotated[int, typer.Option(min=1, help="Peers that a node contacts in a round.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of losses and choices.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A folder for the files that were received.")] = None,
    json: AsJson = False,
) -> None:
    """Publish a file to many subscribers over UDP on this machine, and show what arrived when.

    Every broker and subscriber has a socket; a relay between them drops datagrams at random, by the seed. Exits with 3
    if a subscriber misses part of the file.
    """
    from surecast.broker.cast import CastOptions, run_cast
    from surecast.cli.output import print_json, progress_bar
    from surecast.documents.units import seconds_of
    from surecast.protocol.gossip import GossipSettings

    if out is not None and not out.is_dir():
        raise ConfigurationError(f"--out {out}: there is no such folder; create it first")
    options = CastOptions(
        subscribers,
        brokers,
        loss,
        seconds_of("--delay", delay),
        scheme,
        packets=packets,
        redundancy=redundancy,
        gossip=GossipSettings(fan_out=fan_out, rounds=rounds, patience_s=0.1),
        deadline_s=seconds_of("--deadline", deadline),
        rate_per_s=rate,
        seed=seed,
    )
    with progress_bar("arrived") as progress:
        result = run_cast(options, _read(file), progress)
    if out is not None:
        for number, mine in result.received.items():
            if mine.is_whole:
                parts = (mine.parts[i] for i in range(result.events))
                (out / f"{number - brokers + 1}-{file.name}").write_bytes(b"".join(parts))
    if json:
        print_json(_result_data(result))
    else:
        _print_result(result, file, out)
    if not all(mine.is_whole for mine in result.received.values()):
        raise typer.Exit(3)


@app.command()
@takes_groups
def compare(
    source: ScenarioInput,
    loss: Annotated[
        list[float] | None, typer.Option(min=0.0, max=0.9, help="A loss of all links. May be repeated.")
    ] = None,
    scheme: Annotated[
        list[str] | None, typer.Option(help="A scheme of packets. May be repeated; all by default.")
    ] = None,
    half_width: Annotated[float, typer.Option(min=0.001, max=0.5, help="Half-width of the shares, 95 %.")] = 0.01,
    events_max: Annotated[int, typer.Option(min=100, help="Events of a point at most.")] = 20_000,
    burst: Annotated[
        float | None, typer.Option(min=1.0, help="Mean packets lost in a row; by default as the scenario says.")
    ] = None,
    access_loss: Annotated[
        float | None,
        typer.Option(min=0.0, max=0.9, help="Loss between a home broker and its subscribers; else the scenario's."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed; by default the scenario's.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write a page with pictures and numbers to an .html file.")] = None,
    json: AsJson = False,
) -> None:
    """Simulate all schemes at several loss rates: share of events in time, delivery time, and messages."""
    from surecast.cli.output import check_writable, console, print_json, progress_bar
    from surecast.simulation.coding import LossyChannel, needs_compiling, sweep_loss

    if page is not None:
        if page.suffix.lower() != ".html":
            raise ConfigurationError(f"--page {page}: end its name in .html")
        check_writable(page, f"--page {page}")
    system = source.load().system
    losses = sorted(set(loss or [0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3]))
    coding = system.delivery.coding
    channel = LossyChannel() if coding is None else LossyChannel.of_scenario(coding)
    channel = replace(channel, burst_mean=burst)
    if access_loss is not None:
        channel = replace(channel, access_loss=access_loss)
    activity = "compiling, this once, and simulating" if needs_compiling() else "simulating"
    with progress_bar(activity) as progress:
        sweep = sweep_loss(
            system,
            losses,
            scheme,
            half_width=half_width,
            events_max=events_max,
            seed=system.seed if seed is None else seed,
            channel=channel,
            progress=progress,
        )
    if page is not None:
        from surecast.studio.cast_page import write_loss_page

        write_loss_page(sweep, page)
    if json:
        print_json(_sweep_data(sweep))
        return
    _print_sweep(sweep)
    if page is not None:
        console.print(f"saved {page}", markup=False, soft_wrap=True)


def _read(file: Path) -> bytes:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from None
    if len(data) > BYTES_MAX:
        raise ConfigurationError(f"{file} has {len(data):,} bytes; at most {BYTES_MAX:,} are published at a time")
    return data


def _print_result(result: CastResult, file: Path, out: Path | None) -> None:
    from surecast.cli.output import console, print_table

    options = result.options
    total = result.events * options.subscribers
    lost = result.relay["lost"] / max(1, result.relay["taken"])
    carried = sum(result.sent[kind] for kind in ("Data", "Push", "Reply"))
    console.print(
        f"{result.in_time:,} of {total:,} deliveries within {options.deadline_s:g} s, {result.seconds:.1f} s in all; "
        f"{result.relay['taken']:,} datagrams, {100 * lost:.1f} % lost; {carried:,} packets sent, where at least "
        f"{result.packets_minimum:,.0f} are needed; SHA-256 {result.sha256[:16]}…, seed {options.seed}",
        soft_wrap=True,
        markup=False,
    )
    rows = []
    for number, mine in result.received.items():
        delays = sorted(1000.0 * delay for delay in mine.delays_s.values())
        times = [f"{delays[i]:.0f}" for i in (0, len(delays) // 2, -1)] if delays else ["-"] * 3
        whole = "yes" if mine.is_whole else "no"
        count = f"{len(mine.parts)}/{result.events}"
        name = str(number - options.brokers + 1)
        rows.append([name, count, whole, *times, str(mine.recovered), str(mine.given_up)])
    headers = ("events", "whole", "first ms", "median ms", "last ms", "from peers", "given up")
    title = f"{file.name} to {options.subscribers} subscribers, {options.scheme}"
    print_table(("subscriber",), headers, rows, title=title)
    if out is not None:
        console.print(f"saved complete files to {out}", soft_wrap=True, markup=False)


def _result_data(result: CastResult) -> dict[str, Any]:
    options = result.options
    return {
        "bytes": result.size,
        "sha256": result.sha256,
        "events": result.events,
        "scheme": options.scheme,
        "loss": options.loss,
        "deadline_s": options.deadline_s,
        "seed": options.seed,
        "seconds": result.seconds,
        "deliveries_in_time": result.in_time,
        "deliveries": result.events * options.subscribers,
        "messages": dict(result.sent),
        "message_bytes": dict(result.sent_bytes),
        "packets_minimum": result.packets_minimum,
        "refused": dict(result.refused),
        "datagrams": dict(result.relay),
        "subscribers": [
            {
                "subscriber": number - options.brokers + 1,
                "events": len(mine.parts),
                "whole": mine.is_whole,
                "recovered": mine.recovered,
                "given_up": mine.given_up,
                "delays_s": [mine.delays_s.get(i) for i in range(result.events)],
            }
            for number, mine in result.received.items()
        ],
    }


def _print_sweep(sweep: LossSweep) -> None:
    from surecast.cli.output import console, print_table

    rows = []
    for name in sweep.alternatives:
        points = sweep.of(name)
        cells = []
        for p in points:
            delay = "" if math.isnan(p.delay_mean_s[0]) else f"\n{1000 * p.delay_mean_s[0]:.0f} ms"
            cells.append(f"{100 * p.all_on_time[0]:.1f}{delay}\n{p.messages[0]:,.0f}")
        rows.append([name, *cells])
    title = f"Events in time at every subscriber in %, deadline {sweep.deadline_s:g} s"
    print_table(("scheme",), [f"loss {100 * loss:g} %" for loss in sweep.losses], rows, title=title)
    console.print(
        "Below each share: mean delivery time of what arrived, and messages for an event; at least "
        + ", ".join(f"{sweep.of(sweep.alternatives[0])[i].messages_minimum:,.0f}" for i in range(len(sweep.losses)))
        + f" packets are needed. Shares ± {100 * sweep.half_width:g} % (95 %), seed {sweep.seed}.",
        soft_wrap=True,
        markup=False,
    )


def _sweep_data(sweep: LossSweep) -> dict[str, Any]:
    return {
        "scenario": sweep.name,
        "deadline_s": sweep.deadline_s,
        "seed": sweep.seed,
        "points": [
            {
                "scheme": p.alternative,
                "loss": p.loss,
                "events": p.events,
                "all_on_time_share": p.all_on_time[0],
                "all_on_time_half_width": p.all_on_time[1],
                "reliability": p.on_time[0],
                "reliability_half_width": p.on_time[1],
                "delay_mean_s": p.delay_mean_s[0],
                "delay_p99_s": p.delay_p99_s,
                "messages_per_event": p.messages[0],
                "bytes_per_event": 1e6 * p.megabytes,
                "messages_minimum_per_event": p.messages_minimum,
            }
            for p in sweep.points
        ],
    }
