"""What a broker uses for a load: the fixed point of work and turns, against turns that are simulated one by one."""

import math
import random

import pytest

from surecast.profile import BrokerLoad, BrokerProfile
from surecast.profile.broker_load import turn_quantities


def simulated(costs: dict[str, float], load: BrokerLoad, turns: int) -> tuple[float, float, float]:
    """Returns cores, turns and wakings per second of a loop that takes all that has come in each turn."""
    draw, rate = random.Random(7), load.messages_per_s
    copies = load.deliveries_per_s / rate
    now, busy, wakes, waiting, following = 0.0, 0.0, 0, 0, draw.expovariate(rate)
    for _ in range(turns):
        if not waiting:
            now, waiting, wakes = following, 1, wakes + 1
            following += draw.expovariate(rate)
            busy += costs["wake_up"]
            now += costs["wake_up"]
        length = costs["turn"] + waiting * (costs["message"] + copies * costs["delivery"])
        length += load.receivers * costs["flush"]
        now, busy, waiting = now + length, busy + length, 0
        while following <= now:
            waiting, following = waiting + 1, following + draw.expovariate(rate)
    return busy / now, turns / now, wakes / now


@pytest.mark.parametrize("rate", [2_000.0, 8_000.0, 16_000.0])
def test_turns_agree_with_a_simulated_loop(rate):
    costs = {"message": 10e-6, "delivery": 4e-6, "turn": 12e-6, "wake_up": 6e-6, "flush": 5e-6}
    load = BrokerLoad(messages_per_s=rate, deliveries_per_s=5 * rate, receivers=5.0)
    use = BrokerProfile.of("loop", costs).use_of(load)
    cores, turns_per_s, wakes_per_s = simulated(costs, load, 40_000)
    assert use.cores == pytest.approx(cores, rel=0.04)
    assert use.wakes_per_s == pytest.approx(wakes_per_s, rel=0.12)
    assert turn_quantities(load, use.cores)["turn"] == pytest.approx(turns_per_s, rel=0.08)


def test_a_message_costs_less_the_busier_the_broker_is_and_saturation_is_work_alone():
    profile = BrokerProfile.of("p", {"message": 20e-6, "turn": 10e-6, "wake_up": 10e-6})
    each = [profile.use_of(BrokerLoad(messages_per_s=rate)).per_message_s for rate in (10.0, 20_000.0, 49_000.0)]
    assert each[0] == pytest.approx(40e-6, rel=1e-3)
    assert each[0] > each[1] > each[2] > 20e-6
    load = BrokerLoad(messages_per_s=10.0)
    assert 10.0 * profile.saturation(load) == pytest.approx(50_000.0)
    assert profile.use_of(BrokerLoad(messages_per_s=60_000.0)).utilisation == pytest.approx(1.2)


def test_everything_that_is_counted_costs():
    costs = dict.fromkeys(("message", "delivery", "acknowledged_message", "acknowledged_delivery", "ping"), 1e-06)
    profile = BrokerProfile.of("p", {**costs, "received_byte": 1e-9, "sent_byte": 2e-9, "lookup": 1e-9}, idle=0.01)
    load = BrokerLoad(100.0, 400.0, 1e4, 4e4, 100.0, 400.0, 7.0, 4.0, 50.0, 60.0)
    expected = 0.01 + (100 + 400 + 100 + 400 + 7) * 1e-6 + 1e4 * 1e-9 + 4e4 * 2e-9 + 100 * 50 * 1e-9
    assert profile.use_of(load).cores == pytest.approx(expected)
    assert math.fsum(profile.use_of(load).parts.values()) == pytest.approx(expected)
    assert profile.use_of(BrokerLoad()).cores == 0.01


def test_what_was_not_measured_is_named():
    profile = BrokerProfile.model_validate(
        {"surecast-profile": 1, "name": "p", "costs": {"message": "10us"},
         "valid": {"payload_max": "1kB", "deliveries_per_message_max": 40, "connections_max": 500,
                   "subscriptions_max": 100, "utilisation_max": 0.8}}
    )  # fmt: skip
    assert profile.beyond(BrokerLoad(messages_per_s=1000.0, deliveries_per_s=40_000.0), 200.0) == []
    said = " ".join(profile.beyond(BrokerLoad(90_000.0, 9e6, subscriptions=101.0, connections=501.0), 2000.0))
    for words in ("2,000 bytes", "100.0 deliveries", "501 connections", "101 subscriptions", "utilisation of 90%"):
        assert words in said
