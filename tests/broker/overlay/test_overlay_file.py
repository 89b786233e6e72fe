"""The file of an overlay: written from a plan, read as the same plan, refused with the place of each mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surecast.broker.overlay.overlay_file import OverlayFileError, config_of, load_overlay
from surecast.broker.overlay.overlay_writing import write_overlay
from surecast.errors import ConfigurationError
from surecast.protocol.demand import SUMMARIES
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

Run = Callable[..., CompletedProcess[str]]
SCHEMES = ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering")
CHAIN = OverlayPlan(
    ("b1", "b2", "b3"), (("b1", "b2"), ("b2", "b3")), (Tree((("b1", "b2"), ("b2", "b3")), "buffering"),)
)


@st.composite
def plans(draw: st.DrawFn) -> OverlayPlan:
    """Random connected overlays with up to four trees, some of them rooted, some links with their own algorithm."""
    size = draw(st.integers(1, 7))
    names = tuple(f"b{number}" for number in range(size))
    algorithms = ["flooding", *SUMMARIES]
    every = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    trees = []
    used: dict[tuple[str, str], None] = {}
    for _ in range(draw(st.integers(1, 4))):
        links = tuple((names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, size))
        own = tuple((link, draw(st.sampled_from(algorithms))) for link in links if draw(st.booleans()))
        root = draw(st.sampled_from([None, *names]))
        scheme, refresh = draw(st.sampled_from(SCHEMES)), draw(st.sampled_from(["link", "end-to-end"]))
        algorithm = draw(st.sampled_from(algorithms if root is None else list(SUMMARIES)))  # flooding has no root
        trees.append(Tree(links, scheme, algorithm, own, root, refresh, refresh == "link" and draw(st.booleans())))
        used |= dict.fromkeys(links)
    extra = draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    topics = draw(st.lists(st.text(max_size=8).filter(lambda text: text != ""), unique=True, max_size=4))
    numbers = st.lists(st.integers(0, len(trees) - 1), min_size=1, max_size=3).map(tuple)
    prefixes = tuple((prefix, draw(numbers)) for prefix in ["", *topics])
    return OverlayPlan(names, tuple(used | dict.fromkeys(extra)), tuple(trees), prefixes, draw(st.integers(1, 9)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans())
def test_what_is_written_is_read_as_the_same_plan(plan: OverlayPlan, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("overlay") / "overlay.yaml"
    write_overlay(path, "any", plan)
    overlay = load_overlay(path)
    assert overlay.plan == plan
    assert overlay.plan.hash == plan.hash == overlay.hash
    addresses = [broker.link for broker in overlay.brokers] + [overlay.mqtt_address(name) for name in plan.brokers]
    assert len(set(addresses)) == 2 * len(plan.brokers)


def test_files_are_for_their_owner_only_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    write_overlay(path, "chain", CHAIN)
    assert [oct(file.stat().st_mode & 0o777) for file in sorted(tmp_path.iterdir())] == ["0o600", "0o600"]
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="is there already"):
        write_overlay(path, "chain", CHAIN)
    assert path.read_bytes() == before


def test_a_broker_is_told_what_the_file_says_for_all_and_for_it(tmp_path: Path) -> None:
    options = {"limits": {"queue_messages": 7}, "event_log": {"folder": "events"}, "durability": "os"}
    overlay = write_overlay(tmp_path / "overlay.yaml", "chain", CHAIN, options=options)
    config = config_of(overlay, "b2")
    assert (config.name, config.limits.queue_messages, config.state.durability) == ("b2", 7, "os")
    assert config.state.folder == tmp_path / "data" / "b2"
    assert config.event_log is not None
    assert config.event_log.folder == tmp_path / "events" / "b2"
    assert config_of(overlay, "b2", tmp_path / "own").state.folder == tmp_path / "own"
    with pytest.raises(ConfigurationError, match="broker 'b9': the overlay chain has only b1, b2, b3"):
        config_of(overlay, "b9")


MISTAKES = [
    ("- [b2, b3]\ntrees", "- [b2, b9]\ntrees", "links[1]: there is no broker 'b9'; there are b1, b2, b3"),
    ("- [b2, b3]\ntrees", "- [b2, b2]\ntrees", "links[1]: b2 cannot be its own neighbour; name two brokers"),
    ("- [b2, b3]\ntrees", "- [b2, b1]\ntrees", "links[1]: ['b2', 'b1'] stands there twice, first at [0]"),
    ("  - [b2, b3]", "  - [b1, b3]", "trees[0].links[1]: b1 and b3 have no link; add it to links:"),
    ("  - [b2, b3]\n", "", "trees[0]: its 1 links are no tree of all 3 brokers"),
    ("scheme: buffering", "scheme: hope", "trees[0].scheme: no scheme 'hope'; use one of none, "),
    ("algorithm: covering", "algorithm: hope", "trees[0].algorithm: there is no routing algorithm 'hope'"),
    ("algorithm: covering", "algorithm: covering\n  root: b7", "trees[0].root: there is no broker 'b7'"),
    ("trees: [0]", "trees: [1]", "prefixes[0].trees[0]: there is no tree 1; there are 1, from 0"),
    ("prefix: ''", "prefix: a", "prefixes: no tree is for all other topics; add {prefix: '', trees: [0]}"),
    ("epoch: 1", "epoch: 2", "hash: "),
    ("epoch: 1", "epoch: 0", "epoch: 0 should be at least 1"),
    ("epoch: 1", "epoc: 1", "epoc: is not a field of an overlay file at this place; did you mean epoch?"),
    ("secret_file: overlay.secret\n", "", "secret_file: without it anybody could join the overlay"),
    (
        "secret_file: overlay.secret",
        "certificates: certs\nsecret_file: overlay.secret",
        "secret_file: with certificate",
    ),
    ("secret_file: overlay.secret", "secret_file: nowhere", "nowhere: No such file or directory"),
    ("data: data", "data: data\nsuspect: 150ms", "suspect: 0.15 s would suspect a neighbour that pings every 0.1 s"),
    ("data: data", "data: data\nhold_down_max: 50ms", "hold_down_max: is below hold_down"),
    ("data: data", "data: data\nrefresh: 5min", "timeout: is not longer than refresh; write three times as long"),
    ("name: b2", "name: b1", "brokers[1].name: b1 is that of brokers[0] too; change one"),
    ("name: b2", "name: ../b2", "brokers[1].name: '../b2' names a broker's folder and certificate"),
    ("name: b2\n  link: 127.0.0.1:", "name: b2\n  link: 10.0.0.1:", "brokers[1].link: 10.0.0.1 is not on this machine"),
    ("name: b2\n  link: 127.0.0.1:", "name: b2\n  link: 127.0.0.1:7", "brokers[1].link: "),
]


@pytest.mark.parametrize(("right", "wrong", "message"), MISTAKES)
def test_a_mistake_is_named_with_its_line_and_field(right: str, wrong: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    write_overlay(path, "chain", CHAIN)
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong, 1))
    with pytest.raises(OverlayFileError) as refused:
        load_overlay(path)
    assert message in str(refused.value)
    assert all(problem.file == str(path) and problem.line for problem in refused.value.problems)


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    write_overlay(path, "chain", CHAIN)
    path.write_text(path.read_text().replace("- [b2, b3]", "- [b2, b9]").replace("epoch: 1", "suspect: 1ms"))
    with pytest.raises(OverlayFileError) as refused:
        load_overlay(path)
    assert {problem.field for problem in refused.value.problems} == {"suspect", "links[1]", "trees[0].links[1]"}


@pytest.mark.parametrize(
    ("example", "options", "verdict"),
    [
        ("reliability-tree", [], "10 brokers, 9 links, 1 tree; buffering, peer-to-peer covering"),
        ("reliability-graph", ["--scheme", "bypass"], "10 brokers, 15 links, 7 trees; bypass, peer-to-peer covering"),
        (
            "company",
            ["--algorithm", "peer-to-peer simple"],
            "10 brokers, 9 links, 1 tree; periodic-subscription, peer-to-peer simple",
        ),
        ("composed", ["--set", "delivery.replication.replicas=1"], "brokers"),
    ],
)
def test_the_command_writes_the_plan_of_a_scenario(
    example: str, options: list[str], verdict: str, surecast_overlay: Run, repository: Path, tmp_path: Path
) -> None:
    done = surecast_overlay("plan", repository / "examples" / f"{example}.yaml", "--out", "o.yaml", *options)
    assert done.returncode == 0, done.stderr
    assert verdict in done.stdout
    assert load_overlay(tmp_path / "o.yaml").hash in done.stdout
    checked = surecast_overlay("check", "o.yaml", "--json")
    data: dict[str, Any] = json.loads(checked.stdout)
    assert data["hash"] == load_overlay(tmp_path / "o.yaml").hash


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "b1"], "--host b1: write BROKER=ADDRESS"),
        (["--host", "x=10.0.0.1"], "host of 'x': there is no such broker; there are b-1"),
        (["--host", "b-1=10.0.0.1"], "links between machines need certificates"),
        (["--scheme", "hope"], "no scheme 'hope'"),
        (["--algorithm", "central covering"], "write peer-to-peer or hierarchical before its name"),
        (["--algorithm", "hope"], "trees[0].algorithm: no 'hope'; use one of flooding, simple"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_and_nothing_is_written(
    options: list[str], message: str, surecast_overlay: Run, repository: Path, tmp_path: Path
) -> None:
    done = surecast_overlay("plan", repository / "examples" / "reliability-tree.yaml", "--out", "o.yaml", *options)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "o.yaml").exists()


def test_a_plan_has_the_times_of_the_scenario(surecast_overlay: Run, repository: Path, tmp_path: Path) -> None:
    example = repository / "examples" / "reliability-tree.yaml"
    for name, changes in (("default", []), ("own", ["--set", "delivery.fault_tolerance.detection=200ms"])):
        done = surecast_overlay("plan", example, "--out", f"{name}.yaml", *changes)
        assert done.returncode == 0, done.stderr
    default, own = (load_overlay(tmp_path / f"{name}.yaml") for name in ("default", "own"))
    assert (default.suspect, default.ping, default.refresh, default.timeout) == (0.5, 0.1, 60.0, 180.0)
    assert (own.suspect, own.ping, own.refresh) == (0.2, 0.05, 60.0)


def test_brokers_on_several_machines_have_the_usual_ports(tmp_path: Path) -> None:
    hosts = {"b1": "10.0.0.1", "b2": "10.0.0.2"}
    overlay = write_overlay(tmp_path / "o.yaml", "chain", CHAIN, hosts=hosts, certificates=Path("certs"))
    assert [overlay.broker(name).link for name in hosts] == ["10.0.0.1:7001", "10.0.0.2:7001"]
    assert overlay.mqtt_address("b2") == "10.0.0.2:1883"
    assert overlay.certificates == Path("certs").absolute()
    assert not (tmp_path / "o.secret").exists()


def test_where_the_scenario_has_replicas_all_brokers_are_groups_unless_some_are_named(
    surecast_overlay: Run, repository: Path, tmp_path: Path
) -> None:
    source, changes = repository / "examples" / "composed.yaml", ("--set", "delivery.replication.window=7")
    assert surecast_overlay("plan", source, "--out", "all.yaml", *changes).returncode == 0
    every = load_overlay(tmp_path / "all.yaml")
    assert [len(broker.replicas) for broker in every.brokers] == [3, 3, 3]
    assert {broker.paxos.alpha for broker in every.brokers if broker.paxos is not None} == {7}
    assert every.durability == "full"
    some = surecast_overlay(
        "plan", source, "--out", "one.yaml", "--replicas", "office=5", "--set", "delivery.replication.durable=false"
    )
    assert some.returncode == 0, some.stderr
    named = load_overlay(tmp_path / "one.yaml")
    assert [len(broker.replicas) for broker in named.brokers] == [5, 0, 0]
    assert named.durability == "os"
