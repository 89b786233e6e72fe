"""Simulated tables and rates against closed forms, written out here from the recursions of the paper."""

from __future__ import annotations

import math

import pytest

from surecast.report import Figure, QoSReport
from surecast.scenario import System, build, parse_text
from surecast.simulation.capacity import simulate_routing

CHAIN = """
surecast: 1
name: chain
overlay:
  brokers: [{{name: a}}, {{name: b}}, {{name: c}}]
  links: [[a, b], [b, c]]
  root: a
workload:
  classes: [{{name: k, count: 20}}]
  clients: [{{name: x, home: a}}, {{name: y, home: b}}, {{name: z, home: c}}]
  subscriptions: {{active: 120, lifetime: {lifetime}}}
  publications: 15/s
"""
LIFETIMES = {
    "exponential": "10s",
    "deterministic": "{distribution: deterministic, mean: 10s}",
    "hyperexponential": "{distribution: hyperexponential, mean: 10s, scv: 4}",
    "uniform": "{distribution: uniform, low: 0s, high: 20s}",
}


def chain(lifetime: str = "10s") -> System:
    return build(parse_text(CHAIN.format(lifetime=lifetime)))


def near(figure: Figure, expected: float) -> None:
    """The expected value lies near the interval, which is narrow enough to mean something.

    2.2 half-widths: with dozens of comparisons one in fifty seeds would fail, not one in six as with 1.6.
    """
    assert figure.low is not None
    assert figure.high is not None
    half = (figure.high - figure.low) / 2
    assert half <= 0.14 * figure.value, f"{figure}: half-width {half}"
    assert abs(figure.value - expected) <= 2.2 * half, f"{figure}: expected {expected}, half-width {half}"


def mixed(x: float, entries: list[float]) -> float:
    """The mean of a function of a Poisson number with mean x."""
    return sum(math.exp(-x + k * math.log(x) - math.lgamma(k + 1)) * value for k, value in enumerate(entries))


def closed_forms(x: float) -> dict[str, tuple[float, float, float]]:
    """Entries, P_s and P_n of each algorithm for one class with x subscriptions behind a link."""
    # capacity Eqs. 5-16 with q_k = (1 + k q_{k-1}) / (2k + 1)
    size = 80
    q = [1.0]
    for k in range(1, size):
        q.append((1 + k * q[-1]) / (2 * k + 1))
    sums = [sum(q[:k]) for k in range(size)]
    matched = mixed(x, [1 - each for each in q])
    hull = mixed(x, [0.0, *(1 - 2 / (2 * k + 1) for k in range(1, size))])
    wider = mixed(x, [(4 * k + 1) / ((k + 1) * (2 * k + 1)) for k in range(size)])
    covered = mixed(x, [sum(q[: k + 1]) / (k + 1) for k in range(size)])
    return {
        "simple": (x, 1.0, matched),
        "identity": (1 - math.exp(-x), math.exp(-x), 1 - math.exp(-x)),
        "covering": (mixed(x, sums), covered, matched),
        "merging": (1 - math.exp(-x), wider, hull),
    }


@pytest.fixture(scope="module")
def report() -> QoSReport:
    return simulate_routing(chain(), duration_s=30, warm_up_s=1, runs=10, seed=11)


@pytest.mark.parametrize("algorithm", ["simple", "identity", "covering", "merging"])
def test_tables_and_rates_of_a_chain(report: QoSReport, algorithm: str) -> None:
    # 2 subscriptions of each of 20 classes at each broker; 5/s publications and 4/s subscriptions from each
    one, two = (closed_forms(x)[algorithm] for x in (2.0, 4.0))
    name = f"peer-to-peer {algorithm}"
    near(report.figure("table_entries", name="b", detail="local", variant=name), 40)
    near(report.figure("table_entries", name="a", detail="remote", variant=name), 20 * two[0])
    near(report.figure("table_entries", name="b", detail="remote", variant=name), 20 * 2 * one[0])
    # capacity Eq. 18: a subscription passes a link with the probability of those already behind it, and is revoked once
    control = 2 * (4 * one[1] + 8 * two[1]) * 2
    near(report.figure("message_rate_per_s", detail="control", variant=name), control)
    # capacity Eq. 9: from a to b with the subscriptions of b and c, and so on
    notifications = 2 * (5 * two[2] + 10 * one[2])
    near(report.figure("message_rate_per_s", detail="notification", variant=name), notifications)


@pytest.mark.parametrize("algorithm", ["simple", "identity", "covering", "merging"])
def test_tables_and_rates_of_a_hierarchy(report: QoSReport, algorithm: str) -> None:
    # capacity section 3.8: subscriptions go up to a, notifications always do
    one, two = (closed_forms(x)[algorithm] for x in (2.0, 4.0))
    name = f"hierarchical {algorithm}"
    near(report.figure("table_entries", name="a", detail="remote", variant=name), 20 * two[0])
    assert report.value("table_entries", name="c", detail="remote", variant=name) == 0.0
    near(report.figure("message_rate_per_s", detail="control", variant=name), 2 * (4 * one[1] + 8 * two[1]))
    near(report.figure("message_rate_per_s", detail="notification", variant=name), 15 + 5 * two[2] + 10 * one[2])
    near(report.figure("traffic_per_s", name="b--c", detail="forward", variant=name), 10 * one[2])


def test_flooding_sends_everything_everywhere(report: QoSReport) -> None:
    near(report.figure("message_rate_per_s", detail="", variant="flooding"), 30)
    assert report.value("message_rate_per_s", detail="control", variant="flooding") == 0.0
    assert report.value("table_entries", name="b", detail="remote", variant="flooding") == 0.0


@pytest.mark.parametrize("lifetime", ["deterministic", "hyperexponential"])
def test_only_the_mean_of_lifetimes_matters(lifetime: str) -> None:
    # M/G/infinity: the numbers of active subscriptions are Poisson for any distribution with this mean (Eq. 1).
    system = chain(LIFETIMES[lifetime])
    report = simulate_routing(system, ["peer-to-peer covering"], duration_s=20, warm_up_s=0, runs=8, seed=7)
    entries, passes, matched = closed_forms(4.0)["covering"]
    near(report.figure("table_entries", name="c", detail="local"), 40)
    near(report.figure("table_entries", name="c", detail="remote"), 20 * entries)
    near(
        report.figure("traffic_per_s", name="a--b", detail="backward"),
        10 * closed_forms(2.0)["covering"][2] + 16 * passes,
    )
    near(
        report.figure("traffic_per_s", name="a--b", detail="forward"),
        5 * matched + 8 * closed_forms(2.0)["covering"][1],
    )


@pytest.mark.parametrize("lifetime", LIFETIMES)
def test_a_run_begins_in_the_stationary_state(lifetime: str) -> None:
    # At once, and still after a whole lifetime: residual times are drawn, not whole ones.
    system = chain(LIFETIMES[lifetime])
    for warm_up_s in (0.0, 10.0):
        report = simulate_routing(system, ["flooding"], duration_s=0.5, warm_up_s=warm_up_s, runs=16, seed=8)
        near(report.figure("table_entries", name="a", detail="local"), 40)
