"""The example scenarios and templates: they load, they say what the papers say, and they survive a round trip."""

from __future__ import annotations

from pathlib import Path

import pytest

from surecast.scenario import TEMPLATES, build, load_system, parse_text, scenario_schema, template_text
from surecast.scenario.summary import summarise, system_data

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def test_there_is_one_example_for_each_experiment() -> None:
    experiments = {"reliability-tree", "reliability-graph", "company", "dropping", "p2s", "coded"}
    assert experiments <= {f.stem for f in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_example_loads_and_round_trips(file: Path) -> None:
    scenario, system = load_system(file)
    again = parse_text(scenario.to_yaml())
    assert again.to_data() == scenario.to_data()
    assert build(again).overlay == system.overlay
    assert system.notes == ()
    assert summarise(system)
    assert system_data(system)["name"] == file.stem


@pytest.mark.parametrize("name", TEMPLATES)
def test_template_loads(name: str) -> None:
    assert build(parse_text(template_text(name))).name == name


def test_reliability_examples_have_the_papers_parameters() -> None:
    for name, links in (("reliability-tree", 9), ("reliability-graph", 15)):
        scenario, system = load_system(EXAMPLES / f"{name}.yaml")
        assert (len(system.overlay.brokers), len(system.overlay.links)) == (10, links)
        assert (len(system.publishers), len(system.subscribers)) == (10, 500)
        assert all(0.9 <= b.availability <= 0.95 for b in system.overlay.brokers)
        for link in system.overlay.links:
            assert link.failures is not None
            assert link.failures.mtbf_s == pytest.approx(0.99 * 60000)
            assert link.failures.mttr_s == pytest.approx(0.01 * 60000)
        assert {p.rate_per_s for p in system.publishers} == {1 / 60}
        assert {p.deadline_s for p in system.publishers} == {3600}
        assert len({p.topics for p in system.publishers}) == 10
        assert (scenario.experiment.duration, scenario.experiment.runs) == (14 * 86400, 10)


def test_company_has_the_papers_parameters() -> None:
    _, system = load_system(EXAMPLES / "company.yaml")
    network, workload = system.network, system.class_workload
    assert network is not None
    assert workload is not None
    assert len(network.routers) == 1000
    assert len(network.domains) == 5
    assert len(system.overlay.candidates) == len(system.overlay.brokers) == 10
    per_domain = [sum(network.routers[c].domain == d for c in system.overlay.candidates) for d in network.domains]
    assert per_domain == [2] * 5
    assert system.overlay.is_tree
    assert all(
        b.notification_service is not None and b.notification_service.mean_s == 1 / 1400 for b in system.overlay.brokers
    )
    assert all(link.service is not None and 30000 <= 1 / link.service.mean_s <= 60000 for link in network.links)
    assert len(workload.clients) == 100
    assert len(workload.classes) == 500
    assert workload.active_subscriptions == pytest.approx(50_000)
    hot = [[network.routers[r or 0].domain == c.hot_spot for r in workload.client_router] for c in workload.classes]
    shares = [row[mask].sum() / row.sum() for row, mask in zip(workload.publication_rate_per_s, hot, strict=True)]
    assert shares == pytest.approx([0.8] * 500)


def test_dropping_p2s_and_coded_have_the_papers_parameters() -> None:
    _, dropping = load_system(EXAMPLES / "dropping.yaml")
    subscriber = dropping.subscribers[0]
    assert subscriber.connectivity is not None
    assert subscriber.service is not None
    assert (subscriber.connectivity.on.mean_s, subscriber.connectivity.off.mean_s) == (20, 20)
    assert (subscriber.service.mean_s, subscriber.response_target_s) == (1 / 8, 7)
    _, p2s = load_system(EXAMPLES / "p2s.yaml")
    assert (p2s.delivery.replication.replicas, p2s.delivery.replication.window) == (3, 10)
    assert sum(p.rate_per_s for p in p2s.publishers) == pytest.approx(90)
    _, coded = load_system(EXAMPLES / "coded.yaml")
    assert coded.delivery.coding is not None
    assert coded.delivery.coding.packets == 32
    assert {link.loss for link in coded.overlay.links} == {0.1}


def test_values_that_are_ours_are_marked() -> None:
    for name in ("reliability-tree", "reliability-graph", "company", "p2s"):
        assert "# ours" in (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")


def test_schema_is_documented_throughout() -> None:
    schema = scenario_schema()
    undocumented = [
        f"{name}.{field}"
        for name, definition in {"Scenario": schema, **schema["$defs"]}.items()
        for field, node in definition.get("properties", {}).items()
        if not {"description", "$ref"} & set(node) and field not in ("kind", "distribution")
    ]
    assert undocumented == []
