"""`surecast zap`: traffic of set-top boxes, made, replayed, converted, counted and compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.mqtt_options import MQTT_CONTEXT, ClientOptions, MqttCommand, Qos
from surecast.cli.options import AsJson, takes_groups
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.client import Client
    from surecast.zap import BadLine, EventTable, LogComparison, Payload, Traffic
    from surecast.zap.fit import FitNotes

__all__ = ["ReplayResult", "app", "draw_gaps", "draw_ranks", "print_comparison", "print_fit", "replay_log"]

IN_FLIGHT_MAX = 64


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay: messages sent, its duration, and its lag behind its timetable at the end."""

    events: int
    messages: int
    took_s: float
    behind_s: float


async def replay_log(
    log: Path,
    connect: Callable[[], Client],
    topic: str,
    qos: int,
    speed: float,
    batch_s: int,
    bad: Callable[[BadLine], None],
    move: Callable[[int, int], None],
) -> ReplayResult:
    """Publishes a log, each batch when it is due; at speed 0 as soon as the batches before it are acknowledged."""
    from surecast.zap import payloads, read_tables

    messages = payloads(read_tables(log, bad, move), batch_s)
    loop = asyncio.get_running_loop()
    events = count = 0
    behind_s = 0.0
    async with connect() as client:
        begin = loop.time()
        under_way: set[asyncio.Task[object]] = set()
        try:
            # reading a log takes its time; the connection is kept alive meanwhile
            while (message := await asyncio.to_thread(_next, messages)) is not None:
                if speed > 0.0:
                    due = begin + message.after_s / speed
                    await asyncio.sleep(max(0.0, due - loop.time()))
                    behind_s = loop.time() - due
                under_way.add(asyncio.create_task(client.publish(topic, message.data, qos)))
                # all of one connection, so they arrive in order; what the broker has not taken yet is bounded
                if len(under_way) >= IN_FLIGHT_MAX:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in [publication for publication in under_way if publication.done()]:
                    under_way.remove(task)
                    task.result()
                events += message.events
                count += 1
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
    return ReplayResult(events, count, loop.time() - begin, behind_s)


def _next(messages: Iterator[Payload]) -> Payload | None:
    return next(messages, None)


app = typer.Typer(help="Generate, replay and analyse channel changes of set-top boxes.", no_args_is_help=True)
BAD_SHOWN = 5

Log = Annotated[Path, typer.Argument(metavar="LOG", help="Events as text, .gz or .parquet; or a folder of such files.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
Format = Annotated[str, typer.Option(help="text or parquet.")]


@app.command()
def generate(
    out: Annotated[Path, typer.Option("--out", "-o", help="A file, or a folder for one file per hour.")],
    boxes: Annotated[int | None, typer.Option(min=1, help="Set-top boxes.  [default: 180000]")] = None,
    duration: Annotated[str, typer.Option(metavar="TIME", help="How long, such as 1h or 1d.")] = "1h",
    start: Annotated[str, typer.Option(metavar="DATE[,TIME]", help="When the log begins.")] = "2024-01-01,18:00:00",
    format: Format = "text",
    traffic: Annotated[
        Path | None, typer.Option(help="Parameters of the traffic (.json), as `surecast zap fit` writes them.")
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Leave out channels that a box leaves sooner than this; 0s keeps all.  [default: 3s]"
        ),
    ] = None,
    publisher: Annotated[int, typer.Option(min=0, help="Number of the publisher; each publisher has other boxes.")] = 0,
    announce: Annotated[
        bool, typer.Option("--announce", help="Boxes that are on at the start report their channel.")
    ] = False,
    seed: Seed = 1,
) -> None:
    """Make traffic of set-top boxes: surfing and staying, power and volume, by the hours of a day.

    The same seed makes the same events.
    """
    from surecast.cli.output import console, progress_bar
    from surecast.zap import EventWriter, Generator

    wanted = _traffic(traffic, boxes, retention)
    duration_s = _duration("--duration", duration)
    generator = Generator(wanted, _start_s(start), seed, publisher, announce)
    total = -(-int(duration_s) // wanted.batch_s)
    with EventWriter(out, _format(format)) as writer, progress_bar("generating") as move:
        for done, batch in enumerate(generator.batches(duration_s), 1):
            writer.write(batch.events)
            move(done, total)
    where = f"{len(writer.files)} files in {out}" if writer.files != [out] else str(out)
    console.print(f"{writer.count:,} events of {wanted.boxes:,} boxes: {where}", soft_wrap=True, markup=False)


@app.command(cls=MqttCommand, context_settings=MQTT_CONTEXT)
@takes_groups
def replay(
    log: Log,
    connection: ClientOptions,
    speed: Annotated[
        float, typer.Option(min=0.0, help="Speed-up against the times of the log; 0: as fast as the broker accepts.")
    ] = 1.0,
    topic: Annotated[str, typer.Option("-t", "--topic", help="Topic to publish to.")] = "zap/events/1",
    batch: Annotated[
        str, typer.Option(metavar="TIME", help="Length of time whose events are sent in one message.")
    ] = "10s",
    qos: Qos = 1,
    json: AsJson = False,
) -> None:
    """Publish a log to a broker, at the speed of its time stamps or faster.

    Malformed lines are skipped and counted.
    """
    import asyncio

    from surecast.cli.output import console, print_json, progress_bar

    batch_s = _whole("--batch", batch)
    bad = _BadLines()
    with progress_bar("replaying, bytes of the log") as move:
        sent = asyncio.run(replay_log(log, connection.client, topic, qos, speed, batch_s, bad, move))
    bad.show()
    if json:
        print_json({**asdict(sent), "bad_lines": bad.count})
    else:
        late = f"; the broker took {sent.behind_s:.1f} s longer than the log" if sent.behind_s >= 1.0 else ""
        console.print(
            f"{sent.events:,} events in {sent.messages:,} messages, {sent.took_s:.1f} s{late}", soft_wrap=True
        )


@app.command("convert")
def convert_log(
    source: Annotated[Path, typer.Argument(help="A real log (.json or .csv, also .gz), or a folder of logs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file, or a folder for one file per hour.")],
    format: Format = "text",
    retention: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Leave out channels that a box left sooner than this, such as 3s."),
    ] = None,
    full_names: Annotated[
        bool, typer.Option("--full-names", help="Keep long channel names, which make lines of 60 bytes and more.")
    ] = False,
    names: Annotated[Path | None, typer.Option(help="Write the new name of every channel and box (.json).")] = None,
) -> None:
    """Turn a real log into events: set-top-box logs in JSON, or viewing sessions in CSV."""
    import json

    from surecast.cli.output import console
    from surecast.report.report_files import write_whole
    from surecast.zap import EventWriter, convert

    converted = convert(source, 0.0 if retention is None else _duration("--retention", retention), not full_names)
    with EventWriter(out, _format(format)) as writer:
        writer.write(converted.table)
    if names is not None:
        text = (
            json.dumps({"channels": converted.channels, "boxes": converted.boxes}, indent=2, ensure_ascii=False) + "\n"
        )
        write_whole(names, lambda file: file.write(text.encode()))
    bad = _BadLines()
    for line in converted.bad:
        bad(line)
    bad.show()
    console.print(
        f"{writer.count:,} events of {len(converted.boxes):,} boxes on {len(converted.channels):,} channels; "
        f"{converted.duplicates:,} records were there twice",
        soft_wrap=True,
    )


@app.command()
def stats(
    log: Log,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Length of the top list.")] = 10,
    json: AsJson = False,
) -> None:
    """Show the viewers at the end of a log: how many boxes are on, and the most viewed channels."""
    import numpy as np

    from surecast.cli.output import print_json, progress_bar
    from surecast.zap import Viewers, read_tables

    bad = _BadLines()
    viewers = Viewers()
    kinds = np.zeros(4, dtype=np.int64)
    ends: list[int] = []
    with progress_bar("reading") as move:
        for table in read_tables(log, bad, move):
            viewers.execute(table.events())
            kinds += np.bincount(table.kind, minlength=4)
            ends += [int(table.time_s.min()), int(table.time_s.max())] if len(table) else []
    if not ends and not bad.count:
        raise ConfigurationError(f"{log}: this log is empty")
    data = {
        "events": viewers.events,
        **dict(zip(("channel_changes", "volume", "mute", "power"), kinds.tolist(), strict=True)),
        "bad_lines": bad.count,
        "from": _stamp(min(ends)) if ends else None,
        "to": _stamp(max(ends)) if ends else None,
        "boxes": viewers.boxes,
        "boxes_on": viewers.on,
        "channels": len(viewers.channels),
        "broken_chains": viewers.broken_chains,
        "top": [asdict(entry) for entry in viewers.compute_top_list(top)],
    }
    bad.show()
    if json:
        print_json(data)
    else:
        _print_stats(data)


@app.command()
def compare(
    generated: Annotated[Path, typer.Argument(help="One log, such as a generated one.")],
    real: Annotated[Path, typer.Argument(help="Another, such as a real one after `surecast zap convert`.")],
    gaps: Annotated[Path | None, typer.Option(help="Draw the times between zaps (.html, .svg or .png).")] = None,
    ranks: Annotated[Path | None, typer.Option(help="Draw the shares of the channels (.html, .svg or .png).")] = None,
    json: AsJson = False,
) -> None:
    """Compare two logs: times between zaps, and how the channels share them.

    A distance is between 0, equal, and 1. Two logs of these sizes from the same source would exceed the distance in the
    last column in one of twenty cases.
    """
    from surecast.cli.output import print_json
    from surecast.studio.files import checked_path
    from surecast.zap import compare_logs, read_table

    for path in (gaps, ranks):
        if path is not None:
            checked_path(path, 1280)
    bad = _BadLines()
    logs = read_table(generated, bad), read_table(real, bad)
    bad.show()
    comparison = compare_logs(*logs)
    labels = (generated.name, real.name if real.name != generated.name else str(real))
    if gaps is not None:
        draw_gaps(logs, labels, gaps)
    if ranks is not None:
        draw_ranks(logs, labels, ranks)
    if json:
        print_json(asdict(comparison))
    else:
        print_comparison(comparison, labels)


@app.command()
def fit(
    real: Annotated[Path, typer.Argument(help="A log with every channel change, also the short ones.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the parameters (.json).")] = None,
    json: AsJson = False,
) -> None:
    """Find the parameters of the generator under which a log is most likely."""
    from surecast.cli.output import print_json, working
    from surecast.zap import read_table, save_traffic
    from surecast.zap.fit import fit_traffic

    bad = _BadLines()
    table = read_table(real, bad)
    bad.show()
    with working("fitting"):
        fitted, notes = fit_traffic(table)
    if out is not None:
        save_traffic(fitted, out)
    if json:
        print_json({"traffic": asdict(fitted), "notes": asdict(notes)})
    else:
        print_fit(fitted, notes)


class _BadLines:
    """Counts lines that are no events, and shows the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[BadLine] = []

    def __call__(self, line: BadLine) -> None:
        self.count += 1
        if len(self._first) < BAD_SHOWN:
            self._first.append(line)

    def show(self) -> None:
        from surecast.cli.output import errors

        for line in self._first:
            errors.print(str(line), soft_wrap=True, markup=False)
        if self.count > len(self._first):
            errors.print(f"... and {self.count - len(self._first):,} more malformed lines", soft_wrap=True)


def _print_stats(data: dict[str, Any]) -> None:
    from surecast.cli.output import console, print_table

    kinds = ", ".join(
        f"{data[name]:,} {name.replace('_', ' ')}" for name in ("channel_changes", "volume", "mute", "power")
    )
    console.print(f"{data['events']:,} events ({kinds}), {data['bad_lines']:,} bad lines", soft_wrap=True)
    if not data["events"]:
        return
    console.print(f"{data['from']} to {data['to']}", soft_wrap=True)
    console.print(f"{data['boxes_on']:,} of {data['boxes']:,} known boxes are on, {data['channels']:,} channels")
    if not data["top"]:
        return
    rows = [
        [str(rank), entry["channel"], f"{entry['viewers']:,}", f"{100 * entry['viewers'] / data['boxes_on']:.1f} %"]
        for rank, entry in enumerate(data["top"], 1)
    ]
    print_table(("Rank", "Channel"), ("Viewers", "Share"), rows)


def _traffic(path: Path | None, boxes: int | None, retention: str | None) -> Traffic:
    from surecast.zap import Traffic, load_traffic

    traffic = Traffic() if path is None else load_traffic(path)
    if retention is not None:
        traffic = replace(traffic, retention_s=_duration("--retention", retention, least_s=0.0))
    return traffic if boxes is None else replace(traffic, boxes=boxes)


def _format(text: str) -> Any:
    if text not in ("text", "parquet"):
        raise ConfigurationError(f"--format {text}: write text or parquet")
    return text


def _start_s(text: str) -> int:
    from surecast.zap import LineError, parse_line

    day, _, time = text.replace("T", ",").replace(" ", ",").partition(",")
    time = time or "00:00:00"
    try:
        return parse_line(f"{day},{time if time.count(':') == 2 else time + ':00'},0.0.0.0,Mute: 0").time_s
    except LineError as error:
        raise ConfigurationError(f"--start {text}: {error}") from None


def _stamp(time_s: int) -> str:
    from surecast.zap.events import stamp

    return stamp(time_s).replace(",", " ")


def _duration(option: str, text: str, least_s: float = 1e-3) -> float:
    from surecast.documents.units import parse_duration

    try:
        value = parse_duration(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None
    if not least_s <= value < 1e10:
        raise ConfigurationError(f"{option} {text}: write a time such as 10s, finite and at least {least_s:g} s")
    return value


def _whole(option: str, text: str) -> int:
    value = _duration(option, text)
    if value != int(value):
        raise ConfigurationError(f"{option} {text}: write whole seconds, such as 10s")
    return int(value)


Logs = tuple["EventTable", "EventTable"]
Labels = tuple[str, str]


def print_comparison(comparison: LogComparison, labels: Labels) -> None:
    """Prints two logs side by side, and their distance."""
    from surecast.cli.output import print_table
    from surecast.zap.log_comparison import QUANTILES

    counts = [f"{count:,}" for count in comparison.gap_counts]
    distances = (f"{comparison.gap_distance:.3f}", f"{comparison.gap_chance:.3f}")
    rows = [["times between zaps", *counts, *distances]]
    for i, quantile in enumerate(QUANTILES):
        first, second = (log[i] for log in comparison.gap_quantiles_s)
        rows.append([f"  {100 * quantile:g} % within", f"{first:,.4g} s", f"{second:,.4g} s", "", ""])
    counts = [f"{count:,}" for count in comparison.channel_counts]
    rows.append(["channels", *counts, f"{comparison.rank_distance:.3f}", f"{comparison.rank_chance:.3f}"])
    for rank in (1, 2, 5, 10):
        shares = [f"{100 * log[rank - 1]:.1f} %" if len(log) >= rank else "-" for log in comparison.top_shares]
        rows.append([f"  share of rank {rank}", *shares, "", ""])
    print_table(("",), (*labels, "Distance", "By chance"), rows)


def print_fit(traffic: Traffic, notes: FitNotes) -> None:
    """Prints the parameters, and the data they rest on."""
    from surecast.cli.output import console, print_table

    rows = []
    unfitted = {"boxes", "volume_per_h", "mute_per_h", "retention_s", "batch_s", *notes.kept}
    for field in fields(traffic):
        value = getattr(traffic, field.name)
        text = f"{value:.6g}" if isinstance(value, int | float) else " ".join(f"{item:.3g}" for item in value)
        origin = "left as it was" if field.name in unfitted else "the log"
        if field.name in notes.at_ends:
            origin = "not known: an end of its range"
        rows.append([field.name, text, origin])
    print_table(("Parameter", "Value", "From"), (), rows)
    console.print(
        f"{notes.gaps:,} times between zaps, {notes.cut_off:,} that were cut off, {notes.changes:,} channel changes; "
        f"boxes went off {notes.offs:,} times and on {notes.ons:,} times",
        soft_wrap=True,
    )


def draw_gaps(logs: Logs, labels: Labels, path: Path) -> None:
    """Draws the distribution functions of the times between zaps."""
    import numpy as np

    from surecast.studio import Axis, Chart, Line, draw_chart
    from surecast.zap import gaps_s

    lines = []
    for log, label in zip(logs, labels, strict=True):
        gaps = np.sort(gaps_s(log))
        points = np.unique(np.concatenate([np.arange(1.0, 11.0), np.geomspace(1.0, 1e5, 160).round()]))
        share = 100.0 * np.searchsorted(gaps, points, side="right") / len(gaps)
        lines.append(Line(label, points, share))
    chart = Chart(
        lines,
        title="Time between zaps of a box",
        x=Axis("time (s)", log=True),
        y=Axis("zaps that come within (%)", from_zero=True),
    )
    draw_chart(chart, path)


def draw_ranks(logs: Logs, labels: Labels, path: Path) -> None:
    """Draws the shares of the channels by rank."""
    import numpy as np

    from surecast.studio import Axis, Chart, Line, draw_chart
    from surecast.zap import rank_shares

    lines = []
    for log, label in zip(logs, labels, strict=True):
        shares = rank_shares(log)
        lines.append(Line(label, np.arange(1.0, len(shares) + 1.0), 100.0 * shares))
    chart = Chart(
        lines,
        title="Channels by rank",
        x=Axis("rank of the channel in its log", log=True),
        y=Axis("share of the channel changes (%)", log=True),
    )
    draw_chart(chart, path)
