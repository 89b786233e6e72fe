"""Brokers with a profile: what each event costs them follows from the whole load, and populations stay counts."""

import pytest

import surecast
from surecast.errors import SaturationError, ScenarioError
from surecast.report import as_dict
from surecast.scenario import Scenario
from surecast.scenario.build import clients
from surecast.scenario.profile_load import profile_loads

COSTS = "{message: 10us, delivery: 5us, acknowledged_message: 4us, acknowledged_delivery: 6us, sent_byte: 1ns}"
TEXT = """
surecast: 1
name: sites
overlay:
  brokers: [{name: a, profile: p.yaml}, {name: b, profile: p.yaml}, {name: c, profile: p.yaml}]
  links: [{between: [a, b], latency: 20ms}, {between: [b, c], latency: 20ms}]
availability: {links: {availability: 99%, period: 1h}}
workload:
  topics: [x, y]
  qos: 1
  payload: 200B
  deadline: 60s
  publishers:
    - {name: p, count: 1500, home: a, topics: [x], rate: 1/10s}
    - {name: q, home: c, topics: [x, y], rate: 20/s}
  subscribers: [{name: s, count: 4, home: c, topics: all}, {name: r, home: a, topics: [y]}]
delivery: {fault_tolerance: {scheme: buffering}}
"""


@pytest.fixture
def write(tmp_path):
    def put(text=TEXT, costs=COSTS, more=""):
        (tmp_path / "p.yaml").write_text(f"surecast-profile: 1\nname: trial\ncosts: {costs}\n{more}")
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return path

    return put


def test_the_load_of_each_broker_is_what_counting_by_hand_gives(write):
    a, b, c = profile_loads(Scenario.load(write()).system)
    # 150/s of p go from a over b to c; of the 20/s of q at c, 10/s on y go over b to a
    assert (a.messages_per_s, b.messages_per_s, c.messages_per_s) == pytest.approx((160, 160, 170))
    assert a.deliveries_per_s == pytest.approx(150 + 10)  # to b, and to r
    assert b.deliveries_per_s == pytest.approx(150 + 10)
    assert c.deliveries_per_s == pytest.approx(4 * 170 + 10)
    assert (a.acknowledged_messages_per_s, c.acknowledged_messages_per_s) == pytest.approx((150, 20))
    assert (a.acknowledged_deliveries_per_s, c.acknowledged_deliveries_per_s) == pytest.approx((10, 680))
    assert c.sent_bytes_per_s == pytest.approx(690 * 200)
    assert (a.connections, b.connections, c.connections) == (1502, 2, 6)


def test_fan_out_payload_and_qos_cost_what_the_profile_says(write):
    def busy(**changes):
        settings = {name.replace("__", "."): value for name, value in changes.items()}
        system = Scenario.load(write(), settings).system
        return [
            load.messages_per_s * broker.notification_service.mean_s
            for broker, load in zip(system.overlay.brokers, profile_loads(system), strict=True)
        ]

    plain = busy()[2]
    assert plain == pytest.approx(170 * 10e-6 + 690 * 5e-6 + 20 * 4e-6 + 680 * 6e-6 + 690 * 200e-9)
    assert busy(workload__payload="2kB")[2] - plain == pytest.approx(690 * 1800e-9)
    assert plain - busy(workload__qos=0)[2] == pytest.approx(20 * 4e-6 + 680 * 6e-6)
    more = Scenario.load(write(), {"workload.subscribers[0].count": 8}).system.overlay.brokers[2]
    assert more.notification_service.mean_s * 170 - plain == pytest.approx(4 * 170 * (5e-6 + 6e-6 + 200e-9))


def test_a_population_gives_the_figures_of_its_clients_one_by_one(write, monkeypatch):
    def figures():
        scenario = Scenario.load(write())
        report = as_dict(surecast.predict(scenario))
        rows = report["figures"] if "figures" in report else report["rows"]
        return len(scenario.system.publishers), [row for row in rows if row.get("scope") != "publisher"]

    few, kept = figures()
    monkeypatch.setattr(clients, "POPULATION_MIN", 10**9)
    many, listed = figures()
    assert (few, many) == (2, 1501)
    assert len(kept) == len(listed) > 20
    for one, other in zip(kept, listed, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert value == (
                pytest.approx(other[name], rel=1e-6, abs=1e-9) if isinstance(value, float) else other[name]
            )


def test_clients_that_fail_one_by_one_are_no_population(write):
    system = Scenario.load(
        write(TEXT.replace("availability: {", "availability: {clients: {mtbf: 1d, mttr: 1h}, "))
    ).system
    assert len(system.publishers) == 1501


def test_a_million_devices_stay_a_count(write):
    text = TEXT.replace("count: 1500", "count: 1000000").replace("1/10s", "1/h")
    scenario = Scenario.load(write(text))
    assert sum(publisher.count for publisher in scenario.system.publishers) == 1_000_001
    assert len(scenario.system.publishers) == 2
    assert "µs each" in " ".join(scenario.system.notes)
    surecast.predict(scenario)


def test_too_much_is_refused_by_name(write):
    with pytest.raises(SaturationError, match=r"broker c is overloaded: 15020 events"):
        surecast.predict(
            Scenario.load(write(TEXT.replace("rate: 1/10s", "rate: 10/s").replace("count: 4", "count: 6")))
        )


def test_what_was_not_measured_is_noted(write):
    scenario = Scenario.load(write(more="valid: {payload_max: 100B, deliveries_per_message_max: 3}"))
    notes = " ".join(scenario.system.notes)
    assert "payloads of 200 bytes, measured up to 100" in notes
    assert "deliveries of a message, measured up to 3" in notes


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a, profile: p.yaml}", "a, profile: p.yaml, capacity: 5/s}", "a profile says what capacity says"),
        ("{name: a, profile: p.yaml}", "{name: a, profile: none.yaml}", "there is no such file"),
        ("delivery: {", "delivery: {replication: {replicas: 3}, ", "a profile has no costs of replicated brokers"),
        ("qos: 1", "qos: 2", "0 or 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(write, old, new, words):
    with pytest.raises(ScenarioError, match=words):
        Scenario.load(write(TEXT.replace(old, new)))


def test_a_simulation_takes_the_same_service_times(write):
    text = TEXT.replace("1/10s", "1/s").replace("availability: {links: {availability: 99%, period: 1h}}\n", "")
    scenario = Scenario.load(write(text, "{message: 100us, delivery: 80us}"))
    predicted = surecast.predict(scenario).value("delay_mean_s", scope="broker", name="c")
    simulated = surecast.simulate(scenario, runs=2, duration="20s").value("delay_mean_s", scope="broker", name="c")
    service_s = scenario.system.overlay.brokers[2].notification_service.mean_s
    assert predicted > 1.1 * service_s > 300e-6
    assert simulated == pytest.approx(predicted, rel=0.1)
