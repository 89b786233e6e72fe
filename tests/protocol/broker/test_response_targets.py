"""Response targets: asked for in a subscription, decided elsewhere, kept by the queue (dropping, section II.C)."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.protocol.broker.conftest import Client, MakeWorld, World

from surecast.broker.event_log import EventLog
from surecast.broker.event_observer import EventObserver
from surecast.protocol.broker import BrokerCore
from surecast.protocol.broker.period_monitor import Prior
from surecast.protocol.broker.response_target import Decision, ResponseTarget
from surecast.protocol.broker.snapshot import decode_state, encode_state
from surecast.protocol.mqtt import Properties, Puback, ReasonCode, Suback, Subscribe, SubscriptionRequest

MEAN = ("surecast-response-mean-ms", "7000")
OPTIMAL = Decision(
    "optimal", join_threshold=2.0, response_s=6.9, response_high_s=8.0, success=0.7, success_low=0.6, is_met=True
)
IMPOSSIBLE = Decision("probabilistic", join_probability=0.0, success=0.5, reason="the mean is 9 s at least")


def ask(client: Client, *user: tuple[str, str], filter: str = "t", qos: int = 1) -> None:
    """Sends a SUBSCRIBE with user properties."""
    client.send(Subscribe(client.next_id(), (SubscriptionRequest(filter, qos),), Properties(user=user)))


def decide(world: World, decision: Decision) -> list[str]:
    """Answers all questions with a decision; returns the keys of the sessions."""
    questions = world.broker.targets.questions()
    for question in questions:
        world.broker.deciding.decide(question.key, question.revision, decision, world.now)
    world.turn()
    return [question.key for question in questions]


def test_the_answer_to_a_subscription_says_how_its_target_is_kept(world: World) -> None:
    sam = world.client("sam").lasting()
    ask(sam, MEAN, ("surecast-success-min", "0.5"))
    assert sam.take() == [], "the answer waits for the decision"
    (question,) = world.broker.targets.questions()
    assert question.target == ResponseTarget(7.0, success_min=0.5)
    assert sam.ping(), "everything else is handled meanwhile"
    assert decide(world, OPTIMAL) == ["sam"]
    answer = sam.one(Suback)
    assert answer.reasons == (ReasonCode.GRANTED_QOS_1,)
    assert dict(answer.properties.user) == {
        "surecast-policy": "optimal",
        "surecast-policy-parameter": "threshold 2",
        "surecast-response-expected-ms": "6900",
        "surecast-response-high-ms": "8000",
        "surecast-success-expected": "0.7000",
        "surecast-success-low": "0.6000",
    }
    assert not world.broker.targets.undecided


def test_the_queue_goes_by_the_decision_while_the_client_is_away(world: World) -> None:
    sam, pat = world.client("sam").lasting(), world.client("pat").online()
    ask(sam, MEAN)
    decide(world, OPTIMAL)
    sam.take()
    for number in range(4):
        pat.publish("t", str(number).encode(), 1)
    assert sam.payloads() == [b"0", b"1", b"2", b"3"], "nothing is dropped while connected"
    sam.drop()
    for number in range(5):
        pat.publish("t", str(number).encode(), 1)
    accounts = sam.session.accounts
    assert (sam.session.queued, accounts.dropped) == (2, {"not-joined": 3})
    sam.connect(False, session_expiry_s=0xFFFF_FFFF)
    assert sam.payloads_after_connack() == [b"0", b"1"]


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ((("surecast-response-mean-ms", "soon"),), "surecast-response-mean-ms is 'soon'; use a number"),
        ((("surecast-response-mean-ms", "nan"),), "use a number"),
        ((("surecast-response-mean-ms", "0"),), "a response time of 0 s; use more than 0 s"),
        ((MEAN, ("surecast-response-mean-ms", "8000")), "'7000' and '8000'; give it once"),
        ((MEAN, ("surecast-response-ms", "7000"), ("surecast-response-quantile", "0.9")), "and not both"),
        ((("surecast-response-ms", "7000"),), "surecast-response-quantile belong together"),
        ((("surecast-response-ms", "7000"), ("surecast-response-quantile", "1")), "a number between 0 and 1"),
        ((("surecast-success-min", "0.5"),), "a target needs either"),
        ((MEAN, ("surecast-success-min", "1.5")), "a least success of 1.5"),
        ((MEAN, ("surecast-response-policy", "luck")), "the policy 'luck'; use one of best, probabilistic"),
        ((MEAN, ("surecast-response-required", "yes")), "surecast-response-required is 'yes'; use 0 or 1"),
    ],
)
def test_a_target_that_cannot_be_is_refused_with_the_reason(
    world: World, user: tuple[tuple[str, str], ...], says: str
) -> None:
    sam = world.client("sam").lasting()
    ask(sam, *user)
    answer = sam.one(Suback)
    assert answer.reasons == (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,)
    assert says in (answer.properties.reason_string or "")
    assert not sam.session.subscriptions
    assert sam.session.target is None


def test_a_target_that_cannot_be_met_is_told_and_refused_only_if_it_was_required(world: World) -> None:
    sam, kim = world.client("sam").lasting(), world.client("kim").lasting()
    ask(sam, MEAN)
    ask(kim, MEAN, ("surecast-response-required", "1"))
    assert decide(world, IMPOSSIBLE) == ["sam", "kim"]
    told, refused = sam.one(Suback), kim.one(Suback)
    assert told.reasons == (ReasonCode.GRANTED_QOS_1,)
    assert refused.reasons == (ReasonCode.QUOTA_EXCEEDED,)
    assert told.properties.reason_string == refused.properties.reason_string == "the mean is 9 s at least"
    assert (list(sam.session.subscriptions), list(kim.session.subscriptions)) == (["t"], [])
    assert kim.session.target is None
    assert kim.session.limits.join_probability == 1.0, "what was decided for it is gone"


def test_the_broker_tells_when_a_target_can_no_longer_be_met_and_when_it_can_again(world: World) -> None:
    eve = world.client("eve").online()
    eve.subscribe("$SURECAST/#", 1)
    sam = world.client("sam").lasting()
    ask(sam, MEAN)
    decide(world, OPTIMAL)
    assert eve.take() == [], "a target that is met from the beginning is no news"
    told = []
    for decision, period_s in ((IMPOSSIBLE, 3000.0), (IMPOSSIBLE, 30_000.0), (OPTIMAL, 300_000.0)):
        world.wait(period_s)
        sam.drop()
        sam.connect(False, session_expiry_s=0xFFFF_FFFF)
        assert decide(world, decision) == ["sam"], "the periods have become much longer"
        told += [json.loads(message.payload) for message in eve.messages()]
    assert [(notice["client"], notice["met"]) for notice in told] == [("sam", False), ("sam", True)]
    assert told[0]["target"] == "a mean of 7 s"
    assert told[0]["reason"] == "the mean is 9 s at least"


def test_nothing_is_asked_anew_while_little_has_changed(world: World) -> None:
    sam, pat = world.client("sam").lasting(), world.client("pat").online()
    ask(sam, MEAN)
    decide(world, OPTIMAL)
    asked = []
    for cycle in range(200):
        world.wait(600.0)
        pat.publish("t", b"x", 1)
        sam.drop()
        asked += [cycle] * len(decide(world, OPTIMAL))
        world.wait(600.0)
        pat.publish("t", b"x", 1)
        sam.connect(False, session_expiry_s=0xFFFF_FFFF)
        asked += [cycle] * len(decide(world, OPTIMAL))
        sam.payloads_after_connack()
    assert len(asked) < 20, "rates and the shape of the periods become known"
    assert max(asked) < 100, "then nothing changes"
    found = sam.session.monitor.estimates(world.now, Prior())
    assert found.on.mean_s == pytest.approx(600.0)
    assert found.off.mean_s == pytest.approx(600.0)


def test_a_rule_gives_clients_of_any_version_a_target(make_world: MakeWorld, version: int) -> None:
    world = make_world(response_target=ResponseTarget(5.0))
    sam = world.client("sam", version).lasting()
    sam.subscribe("t", 1)
    assert decide(world, OPTIMAL) == ["sam"]
    assert sam.session.limits.join_threshold == 2.0
    pat = world.client("pat", version).online()
    assert pat.session.target is None, "a session that ends with its connection has no queue to care for"


def test_the_own_target_of_a_client_goes_before_that_of_a_rule_until_it_is_withdrawn(make_world: MakeWorld) -> None:
    world = make_world(response_target=ResponseTarget(5.0))
    sam = world.client("sam").lasting()
    decide(world, OPTIMAL)
    ask(sam, MEAN)
    (question,) = world.broker.targets.questions()
    assert question.target.time_s == 7.0
    decide(world, OPTIMAL)
    sam.drop()
    sam.lasting()
    assert sam.session.target.target.time_s == 7.0
    ask(sam, ("surecast-response-mean-ms", "none"))
    assert sam.session.target is None
    assert sam.session.limits.join_threshold == float("inf")
    sam.drop()
    sam.lasting()
    assert sam.session.target.target.time_s == 5.0


def test_a_session_that_ends_with_its_connection_has_no_target(world: World) -> None:
    pat = world.client("pat").online()
    ask(pat, MEAN)
    answer = pat.one(Suback)
    assert answer.reasons == (ReasonCode.GRANTED_QOS_1,)
    assert "needs a session that outlives its connection" in (answer.properties.reason_string or "")
    ask(pat, MEAN, ("surecast-response-required", "1"))
    assert pat.one(Suback).reasons == (ReasonCode.QUOTA_EXCEEDED,)


def test_a_later_target_answers_the_one_that_waits(world: World) -> None:
    sam = world.client("sam").lasting()
    ask(sam, MEAN)
    ask(sam, ("surecast-response-mean-ms", "9000"), filter="u")
    assert sam.one(Suback).reasons == (ReasonCode.GRANTED_QOS_1,)
    decide(world, OPTIMAL)
    sam.one(Suback)
    assert sam.session.target.target.time_s == 9.0
    assert list(sam.session.subscriptions) == ["t", "u"]
    ask(sam, ("surecast-response-mean-ms", "9000"), filter="v")
    assert dict(sam.one(Suback).properties.user)["surecast-policy"] == "optimal", "what is decided is told at once"


def test_a_decision_that_is_out_of_date_has_no_effect(world: World) -> None:
    sam = world.client("sam").lasting()
    ask(sam, MEAN)
    (old,) = world.broker.targets.questions()
    ask(sam, ("surecast-response-mean-ms", "9000"))
    sam.take()
    world.broker.deciding.decide(old.key, old.revision, OPTIMAL, world.now)
    world.broker.deciding.decide("nobody", 1, OPTIMAL, world.now)
    world.turn()
    assert sam.take() == []
    assert sam.session.limits.join_threshold == float("inf")
    sam.connect(True)  # a new session without the old one's target
    decide(world, OPTIMAL)
    assert sam.session.target is None
    assert not world.broker.targets.undecided


def test_response_times_are_counted_by_cycles_and_the_target_is_judged(world: World) -> None:
    sam, pat = world.client("sam").lasting(), world.client("pat").online()
    ask(sam, MEAN)
    decide(world, OPTIMAL)
    sam.take()
    for _ in range(12):
        sam.drop()
        pat.publish("t", b"waits", 1)
        world.wait(4.0)
        sam.connect(False, session_expiry_s=0xFFFF_FFFF)
        sam.inbox.pop(0)
        world.wait(2.0)
        sam.messages()
        decide(world, OPTIMAL)
    state = sam.session.target
    assert state.results.delivered_count == 12
    assert state.results.response_sum_s == pytest.approx(72.0)
    assert sum(state.results.histogram) == 12
    assert state.results.share.value == pytest.approx(6.0)
    assert state.results.verdict(7.0, 0.0) == "met"
    assert state.results.verdict(5.0, 0.0) == "missed"
    assert sam.session.monitor.served > 0.0
    assert sam.session.monitor.busy_s / sam.session.monitor.served == pytest.approx(2.0)


def test_a_restart_keeps_targets_decisions_and_what_was_seen(world: World) -> None:
    sam = world.client("sam").lasting()
    ask(sam, MEAN)
    decide(world, OPTIMAL)
    for _ in range(3):
        world.wait(50.0)
        sam.drop()
        world.wait(20.0)
        sam.lasting()
    before = sam.session.monitor
    world.restart(after_s=5.0)
    after = world.broker.sessions.by_key["sam"]
    assert after.target.target == ResponseTarget(7.0)
    assert after.limits.join_threshold == 2.0
    assert (after.monitor.on_sum, after.monitor.off_sum) == (before.on_sum, before.off_sum)
    assert not after.monitor.is_connected
    ask(sam.lasting(), MEAN, ("surecast-success-min", "0.1"))
    world.restart()
    assert decide(world, OPTIMAL) == ["sam"], "a decision that was due is due again"


def test_a_snapshot_has_all_of_it_and_goes_on_exactly_there(world: World) -> None:
    sam = world.client("sam").lasting()
    ask(sam, MEAN)
    data = encode_state(world.broker)
    other = BrokerCore()
    decode_state(other, data)
    assert encode_state(other) == data
    assert [question._replace(key="") for question in other.targets.questions()] == [
        question._replace(key="") for question in world.broker.targets.questions()
    ]
    for broker in (world.broker, other):
        (question,) = broker.targets.questions()
        broker.deciding.decide(question.key, question.revision, OPTIMAL, world.now)
    outs = [_out(broker) for broker in (world.broker, other)]
    assert outs[0] == outs[1]
    assert b"threshold 2" in outs[0]
    assert encode_state(other) == encode_state(world.broker)


def _out(broker: BrokerCore) -> bytes:
    (connection,) = broker.connections.values()
    return b"".join(connection.out)


def test_sessions_without_a_target_take_the_quick_ways(world: World) -> None:
    """A PUBACK that comes alone, for a message in flight: nothing of targets is on its way."""
    sam, pat = world.client("sam").online(), world.client("pat").online()
    sam.subscribe("t", 1)
    pat.publish("t", b"x", 1)
    (message,) = sam.messages(acknowledge=False)
    sam.send(Puback(message.packet_id))
    assert sam.session.monitor is None
    assert sam.session.queued == 0


def test_a_client_may_come_and_go_within_a_moment(world: World) -> None:
    sam = world.client("sam").lasting()
    ask(sam, MEAN)
    decide(world, OPTIMAL)
    for _ in range(5):
        sam.drop()
        sam.lasting()
        decide(world, OPTIMAL)
    found = sam.session.monitor.estimates(world.now, Prior())
    assert found.on.mean_s == found.off.mean_s == pytest.approx(0.001)
    assert found.on.variation < 1.0


def test_each_decision_is_in_the_event_log(make_world: MakeWorld, tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        world = make_world({"observer": EventObserver(log)})
        sam = world.client("sam").lasting()
        ask(sam, MEAN)
        decide(world, OPTIMAL)
        ask(sam, ("surecast-response-mean-ms", "6000"))
        decide(world, IMPOSSIBLE)
    lines = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    decided = [line for line in lines if line["type"] == "decided"]
    assert [(line["client"], line["target"], line["policy"], line.get("reason")) for line in decided] == [
        ("sam", "a mean of 7 s", "optimal threshold 2", None),
        ("sam", "a mean of 6 s", "probabilistic join probability 0", "the mean is 9 s at least"),
    ]
    assert (decided[0]["expected_s"], decided[0]["expected_success"]) == (6.9, 0.7)
    assert "expected_s" not in decided[1], "nothing is expected where nothing meets it"


KEPT_FIRST = ("alarm/#", "position/+")
FIRST = [("surecast-keep-first", topic_filter) for topic_filter in KEPT_FIRST]
TOPICS = ("alarm/gas", "position/7", "air", "air/heat")


def rank(topic: str) -> int:
    """The dumb way."""
    return 0 if topic.startswith("alarm/") else 1 if topic.startswith("position/") else 2


@pytest.mark.parametrize("overflow", ["drop-new", "drop-old"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_less_important_goes_first(make_world: MakeWorld, overflow: str, seed: int) -> None:
    """Against a list: threshold 5 while away, and a queue of 8 with what is in flight."""
    draw, expected, gone = random.Random(f"{overflow} {seed}"), [], 0
    world = make_world(queue_messages_max=8, overflow=overflow, inflight_max=2)
    sam, pat = world.client("sam").lasting(), world.client("pat").online()
    ask(sam, MEAN, *FIRST, filter="#")
    decide(world, replace(OPTIMAL, join_threshold=5.0))
    sam.take()
    for number in range(120):
        if number in (50, 90):
            sam.drop()
        elif number == 70:
            sam.connect(False, session_expiry_s=3600)  # two are in flight, and it takes nothing
        topic = draw.choice(TOPICS)
        pat.publish(topic, str(number).encode(), 1)
        inflight = sam.session.inflight_count
        is_away, waiting = not 70 <= number < 90 and number >= 50, expected[inflight:] if number > 1 else []
        if len(expected) >= (5 if is_away else 8):
            worst = max((rank(each) for each, _ in waiting), default=-1)
            victims = [each for each in waiting if rank(each[0]) == worst]
            equal = [each for each in waiting if rank(each[0]) == rank(topic)]
            if worst > rank(topic):
                expected.remove(victims[0])
            elif not is_away and overflow == "drop-old" and equal:
                expected.remove(equal[0])
            else:
                gone += 1
                continue
            gone += 1
        expected.append((topic, number))
    accounts = sam.session.accounts
    assert [
        (d.message.topic, int(d.message.payload)) for d in (*sam.session.inflight.values(), *sam.session.waiting)
    ] == (expected)
    assert accounts.dropped_total == gone
    assert accounts.dropped["displaced"] > 0
    assert accounts.queued == sam.session.queued


def test_what_expired_is_gone_before_what_is_less_important(world: World) -> None:
    sam, pat = world.client("sam").lasting(), world.client("pat").online()
    ask(sam, MEAN, *FIRST, filter="#")
    decide(world, OPTIMAL)
    sam.drop()
    pat.publish("air", b"old", 1, message_expiry_s=5)
    pat.publish("air", b"new", 1)
    pat.publish("alarm/gas", b"first", 1)
    assert sam.session.accounts.dropped == {"displaced": 1}, "the older of the two"
    pat.publish("position/7", b"second", 1, message_expiry_s=5)
    assert [each.message.payload for each in sam.session.waiting] == [b"first", b"second"]
    world.wait(6)
    pat.publish("alarm/fire", b"third", 1)
    assert [each.message.payload for each in sam.session.waiting] == [b"first", b"third"]
    assert (sam.session.accounts.dropped, sam.session.accounts.expired) == ({"displaced": 2}, 1)


def test_importance_survives_a_restart_and_ends_with_another_target(world: World) -> None:
    sam, pat = world.client("sam").lasting(), world.client("pat").online()
    ask(sam, MEAN, *FIRST, filter="#")
    decide(world, OPTIMAL)
    sam.drop()
    for topic in ("air", "air", "alarm/gas"):
        pat.publish(topic, topic.encode(), 1)
    other = BrokerCore()
    decode_state(other, encode_state(world.broker))
    for broker in (world.broker, other):
        broker.announce("position/7", b"here", False, world.now)
        waiting = broker.sessions.by_key["sam"].waiting
        assert [each.message.payload for each in waiting] == [b"alarm/gas", b"here"]
    sam.connect(False, session_expiry_s=3600)
    sam.inbox.pop(0)
    sam.messages()
    ask(sam, MEAN, filter="#")
    decide(world, OPTIMAL)
    sam.drop()
    for topic in ("air", "air", "alarm/gas"):
        pat.publish(topic, topic.encode(), 1)
    assert [each.message.payload for each in sam.session.waiting] == [b"air", b"air"]


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ([("surecast-keep-first", "a")], "surecast-keep-first needs a target beside it"),
        ([MEAN, ("surecast-keep-first", "a/#/b")], "to keep first: "),
        ([MEAN, *[("surecast-keep-first", "a")] * 17], "17 filters to keep first; use 16 at most"),
    ],
)
def test_what_cannot_be_kept_first_is_refused_with_the_reason(
    world: World, user: list[tuple[str, str]], says: str
) -> None:
    sam = world.client("sam").lasting()
    ask(sam, *user)
    answer = sam.one(Suback)
    assert answer.reasons == (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,)
    assert says in (answer.properties.reason_string or "")


def test_the_next_to_expire_goes_among_the_equally_important(make_world: MakeWorld) -> None:
    world = make_world(queue_messages_max=3, overflow="expire-first")
    sam, pat = world.client("sam").lasting(), world.client("pat").online()
    ask(sam, MEAN, *FIRST, filter="#")
    decide(world, replace(OPTIMAL, join_threshold=9.0))
    sam.drop()
    for topic, expiry in (("alarm/gas", 50), ("alarm/fire", 99), ("air", 70), ("alarm/smoke", 5)):
        pat.publish(topic, topic.encode(), 1, message_expiry_s=expiry)
    assert sam.session.accounts.dropped == {"displaced": 1}
    world.wait(6)
    pat.publish("alarm/water", b"alarm/water", 1, message_expiry_s=90)
    pat.publish("alarm/ice", b"alarm/ice", 1, message_expiry_s=80)
    assert [each.message.payload for each in sam.session.waiting] == [b"alarm/fire", b"alarm/water", b"alarm/ice"]
    pat.publish("alarm/wind", b"alarm/wind", 1, message_expiry_s=10)
    assert sam.session.accounts.dropped == {"displaced": 1, "queue-full": 2}
    assert len(sam.session.waiting) == 3
