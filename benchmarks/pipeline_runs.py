"""Measures what runs of the pipeline cost: the first, one with nothing new, some with 1 % more, and to show a table.

    python -m benchmarks.pipeline_runs --boxes 200 --hours 4            Spark ends with each command
    python -m benchmarks.pipeline_runs --boxes 200 --hours 4 --kept     Spark stays between the commands

Each step is a command of its own, on generated events of set-top boxes, a file for each hour. Each 1 % is another file.
Processor time is that of all processes of a command, Java's too, or of what the kept server did meanwhile; on a shared
machine it is the figure to compare.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from surecast.pipeline.kept_server import resident_bytes, serving, stop_server

SHOWN = "channel_top"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def server_processor_s() -> float:
    """Returns the processor seconds of the kept server and of all its processes so far; 0 if there is none."""
    kept = serving()
    if kept is None:
        return 0.0
    session, ticks = os.getsid(kept.server["pid"]), 0
    for process in Path("/proc").glob("[0-9]*/stat"):
        try:
            values = process.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(values[3]) == session:
            ticks += sum(map(int, values[11:15]))
    return ticks / TICKS_PER_S


def timed(*arguments: str) -> tuple[float, float, str]:
    """Runs a command; returns its seconds, its processor seconds and the first line that it prints."""
    before_s, began_s = server_processor_s(), time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "surecast", *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"surecast {' '.join(arguments)} failed")
    first = next((line for line in printed.splitlines() if line.strip()), "")
    by_server_s = max(0.0, server_processor_s() - before_s)
    return time.perf_counter() - began_s, usage.ru_utime + usage.ru_stime + by_server_s, first


def generate(path: Path, boxes: int, hours: int, publisher: int) -> None:
    timed(
        *("zap", "generate", "--out", str(path), "--boxes", str(boxes), "--duration", f"{hours}h", "--announce"),
        *("--publisher", str(publisher)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boxes", type=int, default=200)
    parser.add_argument("--hours", type=int, default=4)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="1g")
    parser.add_argument("--kept", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["SURECAST_SERVER_FOLDER"] = f"{name}/server"
        os.environ["SURECAST_NO_SERVER"] = "0" if chosen.kept else "1"
        inputs, output = Path(name) / "logs", str(Path(name) / "out")
        generate(inputs, chosen.boxes, chosen.hours, 0)
        spark = ("--master", chosen.master, "--memory", chosen.memory)
        run = ("pipeline", "run", "--input", str(inputs), "--output", output, *spark)
        show = ("pipeline", "show", SHOWN, "--output", output, "--limit", "5")
        steps = [
            ("first run", run),
            ("nothing new", run),
            ("show", show),
            ("tables", ("pipeline", "tables", "-o", output)),
        ]
        print(f"{'step':<14} {'seconds':>8} {'CPU s':>8}  prints")
        try:
            for number, (step, command) in enumerate([*steps, *[("1 % more", run)] * (3 if chosen.kept else 1)]):
                if step == "1 % more":
                    generate(inputs / f"more-{number}.txt", max(1, chosen.boxes // 100), chosen.hours, number)
                took_s, processor_s, printed = timed(*command)
                print(f"{step:<14} {took_s:>8.1f} {processor_s:>8.1f}  {printed.strip()[:90]}", flush=True)
            if (kept := serving()) is not None:
                print(f"Spark has {(resident_bytes(kept.server['pid']) or 0) >> 20:,} MiB")
        finally:
            stop_server()


if __name__ == "__main__":
    main()
