"""`surecast zap`, on small files and against a running broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from surecast.broker.broker_service import BrokerService
from surecast.broker.config import load_config
from surecast.broker.service_log import BrokerLog
from surecast.cli.zap import app, replay_log
from surecast.client import Client
from surecast.errors import ConfigurationError, SurecastError
from surecast.zap import BadLine, Viewers, read_table


def zap(*arguments: str | Path) -> Result:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    if isinstance(done.exception, SurecastError):
        raise done.exception
    assert done.exit_code == 0, (done.output, done.exception)
    return done


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zap") / "a.txt"
    done = zap("generate", "--boxes", "400", "--duration", "30m", "--announce", "--out", path)
    assert "of 400 boxes" in done.output
    return path


def test_stats_are_those_of_the_viewers(log: Path) -> None:
    answer = json.loads(zap("stats", log, "--top", "3", "--json").stdout)
    viewers = Viewers()
    table = read_table(log)
    viewers.execute(table.events())
    assert answer["events"] == len(table) == sum(answer[k] for k in ("channel_changes", "volume", "mute", "power"))
    assert [(one["channel"], one["viewers"]) for one in answer["top"]] == [
        (one.channel, one.viewers) for one in viewers.compute_top_list(3)
    ]
    assert (answer["boxes_on"], answer["bad_lines"], answer["broken_chains"]) == (viewers.on, 0, 0)
    assert answer["from"] == "2024-01-01 18:00:00"
    shown = zap("stats", log, "--top", "3").stdout
    assert viewers.compute_top_list(1)[0].channel in shown


def test_bad_lines_are_shown_and_counted(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.txt"
    path.write_text(log.read_text() + "hello\n" * 7)
    done = zap("stats", path, "--json")
    assert json.loads(done.stdout)["bad_lines"] == 7
    assert "1 field" in done.stderr
    assert "and 2 more malformed lines" in done.stderr


def test_parquet_and_hourly_files_have_the_same_events(log: Path, tmp_path: Path) -> None:
    zap("generate", "--boxes", 400, "--duration", "30m", "--announce", "-o", tmp_path / "h", "--format", "parquet")  # type: ignore[arg-type]
    assert [path.name for path in (tmp_path / "h").iterdir()] == ["zap-20240101-18.parquet"]
    assert zap("stats", tmp_path / "h", "--json").stdout == zap("stats", log, "--json").stdout


def test_convert_fit_generate_and_compare(tmp_path: Path, real_data: Path) -> None:
    real, names, traffic, made = (tmp_path / name for name in ("real.txt", "names.json", "t.json", "made.txt"))
    assert "9 boxes" in zap("convert", real_data / "iptv" / "stb_gobx", "-o", real, "--names", names).stdout
    assert len(json.loads(names.read_text())["channels"]) == 304
    fitted = json.loads(zap("fit", real, "-o", traffic, "--json").stdout)
    assert fitted["traffic"]["surf_median_s"] < 1.0
    zap("generate", "--traffic", traffic, "--boxes", "50", "--duration", "1d", "--retention", "0s", "-o", made)
    pictures: list[str | Path] = ["--gaps", tmp_path / "gaps.svg", "--ranks", tmp_path / "ranks.svg"]
    answer = json.loads(zap("compare", made, real, "--json", *pictures).stdout)
    assert answer["gap_distance"] < 0.08
    assert "Time between zaps" in (tmp_path / "gaps.svg").read_text()
    assert "Channels by rank" in (tmp_path / "ranks.svg").read_text()
    assert "times between zaps" in zap("compare", made, real).stdout
    assert "stay_median_s" in zap("fit", made).stdout


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["generate", "-o", "a.txt", "--start", "2024-13-01"], "--start 2024-13-01: the date"),
        (["generate", "-o", "a.txt", "--duration", "1"], "--duration"),
        (["generate", "-o", "a.txt", "--format", "csv"], "--format csv"),
        (["generate", "-o", "a.parquet"], "only names of Parquet files"),
        (["stats", "nowhere.txt"], "nowhere.txt: there is no such file"),
        (["compare", "a.txt", "b.txt", "--gaps", "a.pdf"], "cannot draw to a.pdf"),
        (["replay", "a.txt", "--batch", "1500ms"], "--batch 1500ms: write whole seconds"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SurecastError) as error:
        zap(*arguments)
    assert what in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_log_has_no_statistics(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ConfigurationError, match="empty"):
        zap("stats", tmp_path / "a.txt")


@pytest.mark.parametrize("speed", [0.0, 5000.0])
def test_a_replay_reaches_a_subscriber_whole_and_in_order(log: Path, tmp_path: Path, speed: float) -> None:
    heard: list[bytes] = []
    bad: list[BadLine] = []

    async def scene() -> Any:
        given = {"listeners[0].port": 0, "admin_socket": tmp_path / "admin.sock", "drain": "1s"}
        service = BrokerService(load_config(None, given), BrokerLog("error"))
        task = asyncio.create_task(service.run())
        ready = asyncio.create_task(service.ready.wait())
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        port = service.listeners[0].port
        try:
            async with Client(port=port) as subscriber:
                await subscriber.subscribe("zap/events/#", qos=1)

                def connect() -> Client:
                    return Client(port=port)

                sent = await replay_log(log, connect, "zap/events/1", 1, speed, 10, bad.append, lambda *_: None)
                heard.extend([(await subscriber.message()).payload for _ in range(sent.messages)])
                return sent
        finally:
            service.stop()
            await task

    sent = asyncio.run(scene())
    assert b"\n".join(heard).decode() + "\n" == log.read_text()
    assert sent.events == len(read_table(log))
    assert bad == []
    # 30 minutes of the log at this speed
    assert sent.took_s >= (1800 / speed if speed else 0.0)
