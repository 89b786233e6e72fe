"""Sizing: how many brokers, on which machines, at which cost."""

import itertools
import json

import pytest
from typer.testing import CliRunner

from surecast.cli.app import app
from surecast.errors import ConfigurationError
from surecast.planning.sizing import Limits, load_catalogue, size_system
from surecast.planning.sizing.candidates import grown, spread, without_site
from surecast.planning.sizing.search import Cases, search, shares
from surecast.scenario import Scenario
from surecast.scenario.profile_load import profile_loads
from surecast.scenario.question_file import SizingQuestion, question_text

COSTS = "{message: 10us, delivery: 5us, acknowledged_message: 4us, acknowledged_delivery: 5us, wake_up: 8us}"
MACHINES = """
surecast-machines: 1
currency: EUR a month
machines:
  - {name: slow, cores: 1, memory: 1GB, bandwidth: 100MB, cost: 6, speed: {estimate: 0.5, low: 0.4, high: 0.6}}
  - {name: plain, cores: 2, memory: 4GB, bandwidth: 300MB, cost: 10}
  - {name: narrow, cores: 2, memory: 4GB, bandwidth: 1MB, cost: 1}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "p.yaml").write_text(f"surecast-profile: 1\nname: trial\ncosts: {COSTS}\nmemory: {{connection: 5kB}}\n")
    (tmp_path / "machines.yaml").write_text(MACHINES)
    return tmp_path


@pytest.fixture
def asked(folder):
    def ask(**changes):
        question = SizingQuestion(**{"devices": 50_000, "rate_per_s": 0.1, "subscribers": 40, "sites": 3, **changes})
        path = folder / "q.yaml"
        path.write_text(question_text(question))
        return Scenario.load(path).system

    return lambda **changes: ask(**{"profile": "p.yaml", **changes})


def test_brokers_of_a_site_share_its_clients_and_nothing_is_lost(asked):
    system = asked()
    wide = spread(system, (3, 1, 2))
    assert len(wide.overlay.brokers) == 6
    assert sum(p.count for p in wide.publishers) == 50_000
    assert sum(p.rate_per_s for p in wide.publishers) == pytest.approx(5000.0)
    loads = profile_loads(wide)
    # every broker has dashboards, so every message comes to each of them once
    assert [load.messages_per_s for load in loads] == pytest.approx([5000.0] * 6)
    clients = sum(load.acknowledged_deliveries_per_s for load in loads)
    assert clients == pytest.approx(40 * 5000.0)
    assert sum(load.connections for load in loads) == 50_040 + 2 * len(wide.overlay.links)


def test_without_a_site_its_clients_are_at_the_others(asked):
    system = asked()
    left = without_site(system, 0)
    assert {p.home for p in left.publishers} == {1, 2}
    assert sum(p.count for p in left.publishers) == 50_000
    assert profile_loads(left)[0].messages_per_s == 0.0
    assert without_site(asked(sites=1), 0) is None


def test_the_search_finds_what_trying_every_number_finds(asked):
    system, limits = asked(), Limits(0.3, survives=False)
    machine = load_catalogue().machines[1]
    found = search(Cases(system), machine, limits)

    def fits(counts):
        wide = spread(system, counts)
        pairs = zip(wide.overlay.brokers, profile_loads(wide), strict=True)
        return all(s <= 1.0 for b, load in pairs for _, s in shares(b.profile, load, machine, limits, 1.0))

    tried = [counts for counts in itertools.product(range(1, 4), repeat=3) if fits(counts)]
    assert found.fits
    assert found.brokers == min(map(sum, tried))


def test_one_broker_may_fail_and_costs_more(asked):
    plain = search(Cases(asked()), load_catalogue().machines[1], Limits(0.3, survives=False))
    safe = search(Cases(asked()), load_catalogue().machines[1], Limits(0.3))
    assert safe.brokers > plain.brokers
    assert "down" in safe.limiting.when


def test_a_site_alone_needs_two_brokers_to_lose_one(asked):
    small = asked(devices=100, subscribers=1, sites=1)
    assert search(Cases(small), load_catalogue().machines[0], Limits(0.3)).counts == (2,)
    assert search(Cases(small), load_catalogue().machines[0], Limits(0.3, survives=False)).counts == (1,)


def test_the_answer_names_what_limits_and_a_bound(asked, folder):
    found = size_system(asked(reliability=0.9), load_catalogue(folder / "machines.yaml"), Limits(0.3))
    assert found.chosen.machine.name == "plain"
    assert found.sentence.startswith(f"{found.chosen.brokers} brokers (")
    assert "also with any one broker down; all targets are met" in found.sentence
    assert found.chosen.limiting.resource == "processor"
    narrow = next(each for each in found.tried if each.machine.name == "narrow")
    assert not narrow.fits
    assert narrow.limiting.resource == "bandwidth"
    assert found.gap >= 0.0
    assert found.cheaper.cost < found.chosen.cost < found.safer.cost
    assert any("assumed" in note and "0.7" in note for note in found.notes)
    changes = {each.change: each for each in found.what_if}
    assert not changes["all load doubles"].still_fits
    assert changes["half the load"].still_fits


def test_a_target_that_no_size_meets_is_named(asked):
    system = asked(reliability=0.999999, link_availability=0.99)
    found = size_system(system, load_catalogue(), Limits(0.3))
    assert (
        "no size meets a reliability of 1" in found.sentence
        or "no size meets a reliability of 0.99999" in found.sentence
    )


def test_twice_the_devices_are_twice_the_load(asked):
    one, two = profile_loads(asked()), profile_loads(grown(asked(), 2.0))
    assert two[0].messages_per_s == pytest.approx(2 * one[0].messages_per_s)


def test_nothing_is_sized_without_a_profile(asked):
    with pytest.raises(ConfigurationError, match="calibrate or state a capacity"):
        asked(profile=None)
    with pytest.raises(ConfigurationError, match=r"broker site-1 has no profile.*surecast calibrate"):
        size_system(asked(profile=None, capacity_per_s=5000.0), load_catalogue(), Limits())


def test_the_question_is_answered_by_two_commands(folder, monkeypatch):
    monkeypatch.chdir(folder)
    run = CliRunner().invoke
    words = "--devices 50000 --every 10s --size 200B -q 1 --subscribers 40 --sites 3 --latency 20ms --links-up 99%"
    made = run(app, ["scenario", "new", "ours.yaml", "--from-question", *words.split(), "--profile", "p.yaml"])
    assert made.exit_code == 0, made.output
    answer = run(app, ["size", "ours.yaml", "--json", "--none-fails"])
    assert answer.exit_code == 0, answer.output
    data = json.loads(answer.stdout)
    assert data["chosen"]["brokers"].keys() == {"site-1", "site-2", "site-3"}
    assert data["answer"].startswith(str(sum(data["chosen"]["brokers"].values())))
    assert 0.9 < data["promise"]["reliability"] < 1.0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cores: 1,", "", "cores: is missing"),
        ("100MB", "100", "no unit"),
        ("low: 0.4", "low: 0.55", "outside its range"),
        ("surecast-machines: 1", "surecast-machines: 3", "surecast-machines"),
    ],
)
def test_a_wrong_list_of_machines_is_named(folder, old, new, words):
    (folder / "machines.yaml").write_text(MACHINES.replace(old, new, 1))
    with pytest.raises(Exception, match="machines") as error:
        load_catalogue(folder / "machines.yaml")
    assert words in str(error.value)
