"""Service times that grow with routing tables: work counted on real filters, and what it does to queues."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from surecast.prediction.capacity import predict_capacity
from surecast.prediction.capacity.capacity_model import ALGORITHMS, CapacityModel, capacity_model
from surecast.prediction.capacity.filter_statistics import FilterStatistics
from surecast.protocol.demand import SUMMARIES, JointFilter
from surecast.protocol.filters import Event, Filter, FilterIndex, Interval
from surecast.scenario import System, build, parse_text
from surecast.scenario.system import Histogram, Matching

PAIR = """
surecast: 1
name: pair
overlay:
  brokers: [{name: a, matching: index}, {name: b, capacity: 100/s, service: deterministic, matching: index}]
  links: [[a, b]]
workload:
  classes:
    - {name: k}
    - name: m
      service_factor: 2
      filters:
        - {name: p, value: {edges: [0, 1, 4], weights: [3, 1]}, interval: {ends: values}, constrained: 0.8}
        - {name: q, value: [1, 2, 3, 3], interval: {centre: [1, 2, 3], width: [0, 1, 4]}, constrained: 0.6}
  clients: [{name: x, home: a}, {name: y, home: b}]
  subscriptions: {active: 24, lifetime: 100s}
  publications: 8/s
"""


def pair(matching: Matching | None) -> System:
    system = build(parse_text(PAIR))
    brokers = tuple(replace(broker, matching=matching) for broker in system.overlay.brokers)
    return replace(system, overlay=replace(system.overlay, brokers=brokers))


def means(system: System, algorithm: str, broker: int) -> np.ndarray:
    """Mean service times of notifications by class, in the order of the scenario, without service factors."""
    model = capacity_model(system)
    found = model.loads(model.flows(algorithm)).notification_s[broker] / model.factor
    return found[np.argsort(model.factor)]


def number(law: Histogram, rng: np.random.Generator) -> float:
    at = rng.choice(len(law.weights), p=law.weights)
    return law.points[at] + (rng.random() * (law.points[at + 1] - law.points[at]) if law.is_continuous else 0.0)


def some_filter(system: System, which: int, rng: np.random.Generator) -> Filter:
    given = system.class_workload.classes[which]
    if given.filters is None:
        return Filter(given.name, {"v": Interval(*sorted(rng.random(2).tolist()))})
    constraints = {}
    for each in given.filters:
        if rng.random() < each.constrained:
            if each.ends is not None:
                low, high = sorted((number(each.ends, rng), number(each.ends, rng)))
            else:
                centre, width = number(each.centre, rng), number(each.width, rng)
                low, high = centre - width / 2, centre + width / 2
            constraints[each.name] = Interval(float(low), float(high))
    return Filter(given.name, constraints)


def some_event(system: System, which: int, rng: np.random.Generator) -> Event:
    given = system.class_workload.classes[which]
    if given.filters is None:
        return Event(given.name, {"v": rng.random()})
    return Event(given.name, {each.name: float(number(each.value, rng)) for each in given.filters})


def counted(system: System, routing: str, runs: int) -> dict[str, np.ndarray]:
    """What a notification of each class meets at broker a in random tables, by real filters: one row per run."""
    rng = np.random.default_rng(len(routing))
    names = ("entries", "own", "holding", "matching", "found")
    rows: dict[str, np.ndarray] = {name: np.zeros((runs, 2)) for name in names}
    for run in range(runs):
        tables = [[some_filter(system, f, rng) for f in (0, 1) for _ in range(rng.poisson(6.0))] for _ in ("a", "b")]
        table = tables[0]
        if routing != "flooding":
            summary = SUMMARIES[routing]()
            summary.change(added=[JointFilter(one.class_name, Filter(None, one.constraints)) for one in tables[1]])
            table = table + [Filter(joint.topic, joint.content.constraints) for joint in summary.announced]
        index: FilterIndex[int] = FilterIndex()
        for key, one in enumerate(table):
            index.add(one, key)
        for f in (0, 1):
            event = some_event(system, f, rng)
            own = [one for one in table if one.class_name == event.class_name]
            rows["entries"][run, f], rows["own"][run, f] = len(table), len(own)
            rows["holding"][run, f] = sum(c.holds(event.get(n)) for one in own for n, c in one.constraints)
            rows["matching"][run, f] = sum(one.matches(event) for one in own)
            rows["found"][run, f] = sum(len(entry.keys) for entry in index._found(event))
    return rows


def agrees(expected: float, sample: np.ndarray) -> None:
    assert sample.mean() == pytest.approx(expected, abs=4.5 * sample.std() / math.sqrt(len(sample)) + 1e-9)


@pytest.mark.parametrize("routing", ["flooding", "simple", "identity", "covering", "merging"])
def test_the_work_of_a_notification_is_that_counted_on_real_tables(routing: str) -> None:
    algorithm = "flooding" if routing == "flooding" else f"peer-to-peer {routing}"
    rows = counted(pair(None), routing, 800)

    def expected(algorithm_of_matching: str, *costs: float) -> np.ndarray:
        return means(pair(Matching(algorithm_of_matching, *costs, 0.0, 0.0)), algorithm, 0)

    cases = {
        "entries": expected("brute-force", 0.0, 1.0, 0.0, 0.0),
        "own": expected("brute-force", 0.0, 0.0, 1.0, 0.0),
        "holding": expected("counting", 0.0, 0.0, 1.0, 0.0),
        "matching": expected("counting", 0.0, 0.0, 0.0, 1.0),
    }
    for what, values in cases.items():
        for f in (0, 1):
            agrees(values[f], rows[what][:, f])
    looked_at = expected("index", 0.0, 0.0, 0.0, 1.0)
    agrees(looked_at[0], rows["found"][:, 0])
    # With several attributes: at least the matches, and no more than a table of these few filters files badly.
    assert cases["matching"][1] <= looked_at[1] + 1e-9
    assert rows["found"][:, 1].mean() == pytest.approx(looked_at[1], rel=0.25)


def test_a_service_time_is_the_given_one_and_the_work() -> None:
    # Broker b has 10 ms, deterministic; the index adds 1 ms and 2 ms for each of the entries that match.
    matching = Matching("index", 1e-3, 0.0, 0.0, 2e-3, 5e-3, 0.0)
    model = capacity_model(pair(matching))
    flows = model.flows("peer-to-peer identity")
    loads = model.loads(flows)
    plain = int(np.flatnonzero(model.factor == 1.0)[0])
    # 6 of its own clients, each matched with probability 1/3, and a class entry if any of 6 others is there
    entries = 2.0 + 1.0 - math.exp(-6.0)
    mean = 10e-3 + 1e-3 + 2e-3 * entries
    assert loads.notification_s[1, plain] == pytest.approx(mean)
    assert loads.control_s[1, plain] == pytest.approx(15e-3)
    double = 1 - plain
    assert loads.control_s[1, double] == pytest.approx(30e-3)
    assert loads.control_s[0, double] == pytest.approx(10e-3)
    rates = model.publications.copy()
    np.add.at(rates, model.tree.head, flows.notifications)
    controls = 2 * model.subscriptions
    np.add.at(controls, model.tree.head, flows.controls)
    expected = (rates[1] * loads.notification_s[1] + controls[1] * loads.control_s[1]).sum()
    assert loads.utilisation[1] == pytest.approx(expected)


def test_the_variance_of_the_work_is_added() -> None:
    # One broker, one uniform class: the number of matches of a value v is Poisson with mean 2v(1 - v) x.
    text = """
    surecast: 1
    name: alone
    overlay: {brokers: [{name: a, matching: {algorithm: index, lookup: 0s, match: 1ms, update: 0s, comparison: 0s}}]}
    workload:
      classes: [k]
      clients: [{name: x, home: a}]
      subscriptions: {active: 30, lifetime: 100s}
      publications: 4/s
    """
    model = capacity_model(build(parse_text(text)))
    loads = model.loads(model.flows("flooding"))
    rng = np.random.default_rng(1)
    v = rng.random(400_000)
    times = 1e-3 * rng.poisson(30 * 2 * v * (1 - v))
    assert loads.utilisation[0] == pytest.approx(4 * times.mean(), rel=0.01)
    assert loads.squares[0] == pytest.approx(4 * (times**2).mean(), rel=0.01)


CHAIN = """
surecast: 1
name: chain
overlay:
  brokers:
    - {name: a}
    - {name: b, matching: {algorithm: index, lookup: 0s, match: 0s, update: 0s, comparison: 1s}}
    - {name: c}
  links: [[a, b], [b, c]]
  root: a
workload:
  classes: [k]
  clients: [{name: x, home: a}, {name: y, home: b}, {name: z, home: c}]
  subscriptions: {active: 9, lifetime: 1000s}
  publications: 1/s
"""


@pytest.mark.parametrize("routing", ["covering", "merging"])
def test_a_control_message_is_not_compared_for_where_it_came_from(routing: str) -> None:
    model, kind = capacity_model(build(parse_text(CHAIN))), FilterStatistics()
    # b tells a about 6 subscriptions and c about 6; what comes from a is compared for c alone, and so on.
    compared, passed = float(kind.comparisons(routing, 6.0)), float(kind.subscription_probability(routing, 3.0))
    own, sent = 3.0, 3.0 * passed
    peers = model.loads(model.flows(f"peer-to-peer {routing}")).control_s[1, 0]
    assert peers == pytest.approx((own * 2 * compared + 2 * sent * compared) / (own + 2 * sent))
    # In the hierarchy b tells a alone, and only c tells b.
    assert model.loads(model.flows(f"hierarchical {routing}")).control_s[1, 0] == pytest.approx(compared)
    for other in ("flooding", "peer-to-peer simple", "hierarchical identity"):
        assert model.loads(model.flows(other)).control_s[1, 0] == 0.0


@pytest.mark.parametrize("routing", ["covering", "merging"])
def test_comparisons_count_what_the_algorithm_looks_at(routing: str) -> None:
    # A subscription: the entries, twice if it is not covered; a revocation of an entry: all filters of the class.
    rng, x, total, runs = np.random.default_rng(4), 8.0, [], 4000
    for _ in range(runs):
        low, high = np.sort(rng.random((rng.poisson(x) + 1, 2)), axis=1).T
        within = (low[:, None] >= low) & (high[:, None] <= high)
        others = within[1:, 1:].sum(axis=1)
        if routing == "covering":
            entries, new = (others == 1).sum(), not within[0, 1:].any()
            total.append((entries * (1 + new) + new * (len(low) - 1)) / 2)
        else:
            new = len(low) == 1 or low[0] < low[1:].min() or high[0] > high[1:].max()
            total.append(((len(low) > 1) + new * (len(low) - 1)) / 2)
    sample = np.array(total, dtype=float)
    # New and entries are taken as independent, and so are new and the number of others.
    assert sample.mean() == pytest.approx(float(FilterStatistics().comparisons(routing, x)), rel=0.12)


def utilisation(model: CapacityModel, algorithm: str, scale: float) -> float:
    return float(model.loads(model.flows(algorithm, scale), scale).utilisation.max())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_load_grows_faster_than_arrivals(algorithm: str) -> None:
    matching = Matching("brute-force", 0.0, 1e-4, 1e-4, 0.0, 1e-5, 1e-5)
    model = capacity_model(pair(matching))
    assert utilisation(model, algorithm, 2.0) > 2.0 * utilisation(model, algorithm, 1.0) * 0.99
    assert model.serves.all()
    assert utilisation(capacity_model(pair(None)), algorithm, 1.0) < utilisation(model, algorithm, 1.0)


@pytest.mark.parametrize("algorithm", ["flooding", "peer-to-peer identity", "hierarchical covering"])
@pytest.mark.parametrize("cost_s", [1e-4, 1e-2])
def test_headroom_follows_the_tables(algorithm: str, cost_s: float) -> None:
    system = pair(Matching("counting", cost_s, 0.0, cost_s, cost_s, cost_s, cost_s))
    room = predict_capacity(system, [algorithm]).value("headroom_factor")
    model = capacity_model(system)
    assert utilisation(model, algorithm, room) == pytest.approx(1.0, rel=1e-6)
    assert (room > 1.0) == (utilisation(model, algorithm, 1.0) < 1.0)


def test_classes_of_equal_statistics_are_one_column() -> None:
    text = PAIR.replace("classes:\n    - {name: k}", "classes:\n    - {name: k, count: 7}").replace(
        "    - name: m\n", "    - name: m\n      count: 3\n"
    )
    model = capacity_model(build(parse_text(text)))
    assert sorted(model.count.tolist()) == [3.0, 7.0]
    assert len(set(model.statistics)) == 2
    same = PAIR.replace("service_factor: 2", "service_factor: 1").split("      filters:")[0]
    rest = "  clients:" + PAIR.split("  clients:")[1]
    assert len(capacity_model(build(parse_text(same + rest))).count) == 1


def test_the_statistics_of_each_class_shape_its_traffic() -> None:
    model = capacity_model(build(parse_text(PAIR)))
    for routing in ("covering", "merging"):
        flows, entries = model.flows(f"peer-to-peer {routing}"), model.remote_entries(f"peer-to-peer {routing}")
        for column, kind in enumerate(model.statistics):
            assert flows.notify[:, column] == pytest.approx(kind.notification_probability(routing, [6.0, 6.0]))
            assert flows.subscribe[:, column] == pytest.approx(kind.subscription_probability(routing, [6.0, 6.0]))
            assert entries[:, column] == pytest.approx(kind.remote_entries(routing, [6.0, 6.0]))
    report = predict_capacity(build(parse_text(PAIR)), ["peer-to-peer covering"])
    expected = sum(float(kind.remote_entries("covering", 6.0)) for kind in model.statistics)
    assert report.value("table_entries", name="a", detail="remote") == pytest.approx(expected)
