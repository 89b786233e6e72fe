"""A calibration of a broker whose costs are known: what it finds, and when it makes no profile."""

import random
from dataclasses import replace

import pytest

from surecast.calibration import CalibrationError, calibrate, calibrating
from surecast.calibration.design import OVERLOADS, PATTERNS, load_of, main_points
from surecast.load import BrokerAccess, LoadError, LoadOutcome, ProcessUse
from surecast.load.receiving import ReceivedShare
from surecast.load.sending import SentShare
from surecast.profile import BrokerProfile

ACCESS = BrokerAccess("127.0.0.1", 1883)
COSTS = {
    "message": 9e-6, "delivery": 5e-6, "received_byte": 0.4e-9, "sent_byte": 0.6e-9, "acknowledged_message": 4e-6,
    "acknowledged_delivery": 6e-6, "turn": 6e-6, "wake_up": 8e-6,
}  # fmt: skip
TRUE = BrokerProfile.of("true", COSTS, idle=0.002)


class Machine:
    """A machine on which a broker of known costs runs, whose figures vary a little from run to run."""

    def __init__(self, noise: float = 0.02):
        self.draw, self.noise, self.plans = random.Random(3), noise, []
        self.change = lambda plan, outcome: outcome

    def run_load(self, plan, pids, *, pool):
        self.plans.append(plan)
        copies = sum(plan.copies(topic) for _, topic in plan.streams) / len(plan.streams)
        rate = plan.rate_per_s
        if rate is None:
            rate = TRUE.saturation(load_of(plan, 1.0, copies)) * 0.97
        load = load_of(plan, rate, rate * copies)
        cores = TRUE.use_of(load).cores * self.draw.uniform(1 - self.noise, 1 + self.noise)
        sent, received = round(rate * plan.seconds), round(rate * copies * plan.seconds)
        use = ProcessUse(cores * plan.seconds, 50_000_000, 1000)
        outcome = LoadOutcome(
            plan, SentShare(sent=sent, sent_in_window=sent, writes=sent), ReceivedShare(in_window=received), broker=use
        )
        return self.change(plan, outcome)


@pytest.fixture
def machine(monkeypatch):
    one = Machine()
    monkeypatch.setattr(calibrating, "run_load", one.run_load)
    monkeypatch.setattr(calibrating, "_IDLE_S", 0.0)
    monkeypatch.setattr(calibrating, "processes_use", lambda pids: ProcessUse(0.0, 1, 0))
    monkeypatch.setattr(calibrating, "busiest_thread_share", lambda pids: 1.0)
    return one


def run(**more):
    return calibrate(ACCESS, [1], name="p", memory=False, **more)


def test_it_finds_the_costs_and_predicts_what_it_did_not_see(machine):
    found = run()
    errors = found.profile.errors
    assert errors.points == 4
    assert errors.processor_time_worst < 0.07
    assert errors.saturation < 0.05
    assert errors.repeatability < 0.05
    assert found.profile.pattern.messages_per_write == 1.0
    # what can be told apart is found, and the truth is inside its interval or near it
    for name in ("message", "delivery", "received_byte", "acknowledged_delivery"):
        interval = getattr(found.profile.costs, name)
        assert interval.low * 0.8 <= COSTS[name] <= interval.high * 1.25, name
    assert len(machine.plans) == len(main_points(False, 1)) + len(PATTERNS) + len(OVERLOADS)


def test_loads_come_in_an_order_that_the_seed_decides():
    one, other = main_points(True, 1), main_points(True, 2)
    assert one == main_points(True, 1)
    assert one != other
    assert {(p.pattern, p.level) for p in one} == {(p.pattern, p.level) for p in other}


def test_a_broker_that_throttles_is_named(machine):
    def throttle(plan, outcome):
        if plan.rate_per_s and plan.rate_per_s > 2000:
            outcome.sent.sent_in_window //= 3
            outcome.broker = replace(outcome.broker, processor_s=0.1)
        return outcome

    machine.change = throttle
    with pytest.raises(CalibrationError, match=r"127\.0\.0\.1:1883: it took .* it throttles its clients"):
        run()


def test_a_broker_that_refuses_messages_is_named(machine):
    def refuse(plan, outcome):
        outcome.sent.refused = 7 if plan.qos else 0
        return outcome

    machine.change = refuse
    with pytest.raises(CalibrationError, match="it refused 7 messages"):
        run()


def test_a_machine_that_does_not_repeat_is_too_noisy(machine):
    machine.noise = 0.8
    with pytest.raises(CalibrationError, match="too noisy: the same load again takes"):
        run()


def test_a_broker_that_dies_makes_no_profile(machine):
    def die(plan, outcome):
        if len(machine.plans) > 30:
            raise LoadError(f"{ACCESS}: the broker ended the connection of load-1")
        return outcome

    machine.change = die
    with pytest.raises(LoadError, match="ended the connection") as error:
        run()
    assert "no profile is made" in error.value.__notes__[0]


def test_loads_that_went_out_in_bunches_count_for_nothing(machine):
    def bunch(plan, outcome):
        outcome.sent.writes = outcome.sent.sent // 4
        return outcome

    machine.change = bunch
    with pytest.raises(CalibrationError, match="the generator has too little"):
        run()


def test_a_broker_that_others_use_is_refused(machine, monkeypatch):
    used = iter([0.0, 1.0])
    monkeypatch.setattr(calibrating, "_IDLE_S", 0.01)
    monkeypatch.setattr(calibrating, "processes_use", lambda pids: ProcessUse(next(used), 1, 0))
    with pytest.raises(CalibrationError, match="other clients use it"):
        run()
    assert machine.plans == []


def test_a_broker_that_never_runs_is_too_noisy(machine):
    def starve(plan, outcome):
        if len(machine.plans) > len(PATTERNS):
            outcome.broker = replace(outcome.broker, processor_s=0.0, held_up_s=plan.seconds)
        return outcome

    machine.change = starve
    with pytest.raises(CalibrationError, match=r"the generator has too little|too noisy"):
        run()
