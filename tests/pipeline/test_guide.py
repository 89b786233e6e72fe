"""The commands of the guide, from nothing to a scenario: real brokers, Spark started by each command, a prediction."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from tests.pipeline.logs import rows_of, subscriber_qos

from surecast.errors import ConfigurationError
from surecast.event_log_records import PROBE_TOPICS
from surecast.pipeline import find_java
from surecast.scenario import load_system

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "learn-from-logs.md"
PATIENCE_S = 900


@pytest.mark.long
def test_the_guide_leads_from_nothing_to_a_scenario(tmp_path: Path) -> None:
    try:
        find_java()
    except ConfigurationError as error:
        pytest.skip(str(error))
    text = GUIDE.read_text(encoding="utf-8")
    ((name, scenario),) = re.findall(r"^```yaml\n# file: (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / name).write_text(scenario, encoding="utf-8")
    place = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
    for command in commands.splitlines():
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": place},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    # Against the log itself, read without the pipeline.
    rows = rows_of(tmp_path / "logs")
    times = defaultdict(list)
    for row in rows:
        if row["type"] == "published" and not row["topic"].startswith(PROBE_TOPICS):
            times[row["client"]].append(row.get("publication_time", row["time"]))
    learned, _ = load_system(tmp_path / "learned.yaml")
    rates = {each.name: each.rate[0] for each in learned.workload.publishers}
    assert rates.keys() == times.keys()
    for client, found in times.items():
        assert rates[client] == pytest.approx((len(found) - 1) / (max(found) - min(found)), rel=0.1)
    measured = subscriber_qos(rows)
    figures = json.loads((tmp_path / "predicted.json").read_text())["figures"]
    predicted = {each["name"]: each["value"] for each in figures if each["metric"] == "delay_mean_s"}
    for client, values in measured.items():
        # Fifteen absences: the mean of their squares is within a quarter or so, and a loaded machine adds its own.
        assert predicted[client] == pytest.approx(values["delay_mean_s"], rel=0.6, abs=0.1)
