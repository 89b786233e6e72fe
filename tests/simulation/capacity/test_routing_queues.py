"""The simulated queues against queueing theory, and where messages wait on their way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from surecast.errors import OverloadError
from surecast.report import Figure
from surecast.scenario import System, build, parse_distribution, parse_text
from surecast.scenario.network import Network, PhysicalLink, Router
from surecast.simulation.capacity import routing_run, simulate_routing, simulate_routing_until

ALONE = """
surecast: 1
name: alone
overlay: {{brokers: [{{name: a, capacity: 80/s, service: {service}}}]}}
workload:
  classes: [{{name: k, count: 3}}, {{name: big, service_factor: {factor}}}]
  clients: [{{name: x, home: a}}, {{name: y, home: a}}]
  subscriptions: {{rate: 8/s, lifetime: 2s}}
  publications: 32/s
"""

PAIR = """
surecast: 1
name: wires
overlay: {brokers: [{name: a, capacity: 200/s}, {name: b}], links: [[a, b]]}
workload:
  classes: [{name: k, count: 5}]
  clients: [{name: x, home: a}, {name: y, home: b}]
  subscriptions: {active: 4, lifetime: 10s}
  publications: 40/s
"""


def within(figure: Figure, expected: float, *, known_to: float) -> bool:
    """Whether an expected value lies near a simulated one, which must be known well enough to say so.

    2.2 half-widths: with dozens of comparisons one in fifty seeds would fail, not one in six as with 1.6.
    """
    assert figure.low is not None
    assert figure.high is not None
    half = (figure.high - figure.low) / 2
    assert half <= known_to * figure.value, f"{figure}: half-width {half}"
    return abs(figure.value - expected) <= 2.2 * half


@pytest.mark.parametrize(
    ("service", "squared_cv"),
    [("exponential", 1.0), ("deterministic", 0.0), ("{distribution: hyperexponential, scv: 3}", 3.0)],
)
def test_one_broker_is_an_mg1_queue(service: str, squared_cv: float) -> None:
    # capacity Eqs. 28, 29 (Pollaczek and Khinchine): 32/s publications, 8/s subscriptions, 8/s revocations at 80/s
    system = build(parse_text(ALONE.format(service=service, factor=1)))
    report = simulate_routing(system, ["flooding"], duration_s=75, warm_up_s=5, runs=10, seed=4)
    waiting = 48 / 80**2 * (1 + squared_cv) / 2 / (1 - 0.6)
    assert within(report.figure("rate_in_per_s", name="a", detail=""), 48.0, known_to=0.02)
    assert within(report.figure("utilisation", name="a"), 0.6, known_to=0.03)
    assert within(report.figure("waiting_mean_s", name="a"), waiting, known_to=0.2)
    assert within(report.figure("delay_mean_s", name="a"), waiting + 1 / 80, known_to=0.2)
    assert within(report.figure("notification_delay_worst_s"), waiting + 1 / 80, known_to=0.2)
    assert within(report.figure("delay_mean_s", scope="subscriber", name="x"), waiting + 1 / 80, known_to=0.2)
    assert within(report.figure("subscription_delay_mean_s"), waiting + 1 / 80, known_to=0.2)


def test_quantiles_of_an_mm1_queue() -> None:
    # The time to pass an M/M/1 queue is exponential with rate mu - lambda; all 32/s publications are seen by somebody.
    system = build(parse_text(ALONE.format(service="exponential", factor=1)))
    report = simulate_routing(system, ["flooding"], duration_s=75, warm_up_s=5, runs=10, seed=5)
    for detail, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        figure = report.figure("delay_quantile_s", scope="system", detail=detail)
        assert within(figure, -math.log(1 - share) / 32, known_to=0.2)


def test_a_service_factor_stretches_the_service_of_its_class() -> None:
    # One of four classes takes three times as long: 48/s with a mean of (3/4 + 3/4) / 160 s.
    system = build(parse_text(ALONE.format(service="deterministic", factor=3).replace("80/s", "160/s")))
    report = simulate_routing(system, ["flooding"], duration_s=75, warm_up_s=5, runs=10, seed=4)
    squares = (3 / 4 + 9 / 4) / 160**2
    assert within(report.figure("utilisation", name="a"), 0.45, known_to=0.03)
    assert within(report.figure("waiting_mean_s", name="a"), 48 * squares / 2 / 0.55, known_to=0.15)
    # the worst path is that of the slow class
    worst = report.value("waiting_mean_s", name="a") + 3 / 160
    assert report.value("notification_delay_worst_s") == pytest.approx(worst)


def wires() -> System:
    """Two brokers, and between them router r, a link of 100/s, router s of 400/s, and what has no queue."""
    system = build(parse_text(PAIR))
    routers = (Router("r", 0, 0), Router("s", 1, 0, service=parse_distribution("400/s")), Router("t", 2, 0))
    slow = parse_distribution("100/s")
    links = (PhysicalLink("r--s", 0, 1, 0.003, slow), PhysicalLink("s--t", 1, 2, 0.005))
    link = replace(system.overlay.links[0], routers=(0, 1, 2), latency_s=0.008)
    overlay = replace(system.overlay, links=(link,))
    return replace(system, network=Network(routers, links), overlay=overlay)


def test_messages_pass_the_queues_of_the_network() -> None:
    # Flooding: 40/s pass the link r--s (both ways share it) and router s, which are M/M/1 queues; 8 ms latency.
    report = simulate_routing(wires(), ["flooding"], duration_s=60, warm_up_s=5, runs=10, seed=2)
    assert within(report.figure("traffic_per_s", scope="physical_link", name="s--t"), 40.0, known_to=0.03)
    assert within(report.figure("traffic_per_s", scope="router", name="t"), 40.0, known_to=0.03)
    link, router = 0.4 / 60, 0.1 / 360
    assert within(report.figure("waiting_mean_s", scope="physical_link", name="r--s"), link, known_to=0.15)
    assert within(report.figure("waiting_mean_s", scope="router", name="s"), router, known_to=0.15)
    delay = link + 1 / 100 + router + 1 / 400 + 0.008
    assert within(report.figure("delay_mean_s", scope="overlay_link", name="a--b"), delay, known_to=0.05)
    assert not report.figures(metric="utilisation", name="s--t")
    assert not report.figures(metric="utilisation", scope="broker", name="b")


def test_directions_may_have_a_queue_each() -> None:
    report = simulate_routing(
        wires(), ["flooding"], duration_s=60, warm_up_s=5, runs=10, seed=2, shared_directions=False
    )
    for way in ("forward", "backward"):
        assert within(report.figure("utilisation", name="r--s", detail=way), 0.2, known_to=0.05)
        assert within(report.figure("waiting_mean_s", name="r--s", detail=way), 0.2 / 80, known_to=0.15)


def test_an_overloaded_system_has_no_delays() -> None:
    system = build(parse_text(ALONE.format(service="exponential", factor=1).replace("80/s", "40/s")))
    report = simulate_routing(system, ["flooding"], duration_s=50, warm_up_s=50, runs=3, seed=1)
    assert report.value("utilisation", name="a") == pytest.approx(1.0)
    assert not report.figures(metric="waiting_mean_s")
    assert not report.figures(metric="notification_delay_worst_s")
    assert any("overloaded" in warning and "broker a" in warning for warning in report.info.warnings)


def test_a_system_that_floods_itself_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing_run, "_UNDER_WAY_MAX", 500)
    monkeypatch.setattr(routing_run, "_CHECK_EVERY", 64)
    system = build(parse_text(ALONE.format(service="exponential", factor=1).replace("80/s", "4/s")))
    with pytest.raises(OverloadError, match="flooding: more than 500 messages are under way, most of them at broker a"):
        simulate_routing(system, ["flooding"], duration_s=50, warm_up_s=0, runs=1, seed=1)


def test_runs_are_added_until_the_figures_are_known() -> None:
    system = build(parse_text(ALONE.format(service="exponential", factor=1)))
    common = {"duration_s": 50.0, "warm_up_s": 2.0, "seed": 6}
    done: list[tuple[int, int]] = []
    report = simulate_routing_until(
        system, ["flooding"], relative_half_width=0.05, delay_half_width=0.1, max_runs=60,
        progress=lambda *now: done.append(now), **common,
    )  # fmt: skip
    runs = report.info.parameters["runs"]
    assert 5 < runs < 60
    assert done[-1] == (runs, 60)
    assert not report.info.warnings
    delay = report.figure("delay_mean_s", scope="system")
    assert (delay.high - delay.low) / 2 <= 0.1 * delay.value
    again = simulate_routing(system, ["flooding"], runs=runs, **common)
    assert again.value("delay_mean_s", scope="system") == delay.value
    short = simulate_routing_until(system, ["flooding"], delay_half_width=0.001, max_runs=6, **common)
    assert any(
        "after 6 runs not known well enough: message rate" not in w and "6 runs" in w for w in short.info.warnings
    )
    stopped = simulate_routing_until(
        system, ["flooding"], delay_half_width=0.001, max_runs=60, stop=lambda: True, **common
    )
    assert stopped.info.parameters["runs"] == 5


def test_half_widths_shrink_with_the_number_of_runs() -> None:
    system = build(parse_text(ALONE.format(service="exponential", factor=1)))
    widths = []
    for runs in (3, 9, 27):
        report = simulate_routing(system, ["flooding"], duration_s=20, warm_up_s=2, runs=runs, seed=3)
        rate = report.figure("rate_in_per_s", name="a", detail="")
        widths.append(rate.high - rate.low)
    # Poisson counts: the half-width of 27 runs of 20 s at 48/s is about 2 sqrt(48 / 540)
    assert widths[2] / 2 == pytest.approx(2.0 * np.sqrt(48 / 540), rel=0.25)
    assert widths[2] < widths[1] < widths[0]


STAR = """
surecast: 1
name: star
overlay: {brokers: [{name: h}, {name: a}, {name: b}], links: [[h, a], [h, b]]}
workload:
  classes: [{name: k}]
  clients: [{name: x, home: h}]
  subscriptions: {active: 1, lifetime: 10s}
  publications: 30/s
"""


def star(ways: tuple[tuple[int, ...], tuple[int, ...]]) -> System:
    """Routers r, s and t in a row with links of exactly 10 ms; a hub that alone publishes, and its two links."""
    system = build(parse_text(STAR))
    routers = (Router("r", 0, 0), Router("s", 1, 0), Router("t", 2, 0))
    fixed = parse_distribution({"distribution": "deterministic", "mean": "10ms"})
    wires = (PhysicalLink("r--s", 0, 1, 0.0, fixed), PhysicalLink("s--t", 1, 2, 0.0, fixed))
    links = tuple(replace(link, routers=way) for link, way in zip(system.overlay.links, ways, strict=True))
    return replace(system, network=Network(routers, wires), overlay=replace(system.overlay, links=links))


def test_copies_that_share_a_link_come_in_batches() -> None:
    # Both copies pass r--s: batches of 2 with a service of 20 ms (M/D/1), and one of the two waits for the other.
    report = simulate_routing(star(((0, 1), (0, 1, 2))), ["flooding"], duration_s=75, warm_up_s=5, runs=10, seed=3)
    waiting = 30 * 0.02**2 / (2 * (1 - 0.6)) + 0.01 / 2
    assert within(report.figure("waiting_mean_s", scope="physical_link", name="r--s"), waiting, known_to=0.1)


def test_nothing_waits_behind_a_queue_that_is_as_slow() -> None:
    # s--t gets a message every 10 ms at most; as a queue of its own with Poisson arrivals it would make them wait.
    report = simulate_routing(star(((0, 1), (0, 1, 2))), ["flooding"], duration_s=50, warm_up_s=5, runs=3, seed=3)
    assert report.value("waiting_mean_s", scope="physical_link", name="s--t") == pytest.approx(0.0, abs=1e-9)
    assert report.value("utilisation", scope="physical_link", name="s--t") > 0.25
