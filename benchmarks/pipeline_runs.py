"""Measures what runs of the pipeline cost: the first, one with nothing new, one with 1 % more, and to show a table.

    python -m benchmarks.pipeline_runs --boxes 200 --hours 4

Each step is a command of its own, on generated events of set-top boxes, a file for each hour. The 1 % is one more file.
Processor time is that of all processes of a command, Java's too; on a shared machine it is the figure to compare.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHOWN = "channel_top"


def timed(*arguments: str) -> tuple[float, float, str]:
    """Runs a command; returns its seconds, its processor seconds and the first line that it prints."""
    began_s = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "surecast", *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"surecast {' '.join(arguments)} failed")
    first = next((line for line in printed.splitlines() if line.strip()), "")
    return time.perf_counter() - began_s, usage.ru_utime + usage.ru_stime, first


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
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        inputs, output = Path(name) / "logs", str(Path(name) / "out")
        generate(inputs, chosen.boxes, chosen.hours, 0)
        run = ("pipeline", "run", "--input", str(inputs), "--output", output)
        run += ("--master", chosen.master, "--memory", chosen.memory)
        show = ("pipeline", "show", SHOWN, "--output", output, "--limit", "5")
        print(f"{'step':<14} {'seconds':>8} {'CPU s':>8}  prints")
        for step, command in (
            ("first run", run),
            ("nothing new", run),
            ("show", show),
            ("tables", ("pipeline", "tables", "--output", output)),
            ("1 % more", run),
            ("nothing new", run),
        ):
            if step == "1 % more":
                generate(inputs / "more.txt", max(1, chosen.boxes // 100), chosen.hours, 1)
            took_s, processor_s, printed = timed(*command)
            print(f"{step:<14} {took_s:>8.1f} {processor_s:>8.1f}  {printed.strip()[:90]}", flush=True)


if __name__ == "__main__":
    main()
