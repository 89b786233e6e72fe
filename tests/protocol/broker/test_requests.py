"""Requests that name themselves are published once: by one connection or several, in any order, after a restart."""

from __future__ import annotations

import random

import pytest
from tests.protocol.broker.conftest import Client, MakeWorld, World

from surecast.protocol.broker.requests import PROPERTY, WINDOW, RequestError, Requests, request_of
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.mqtt import Properties, Puback, Publish, Pubrec, ReasonCode

REFUSED = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


def ask(client: Client, request: str, qos: int = 1, topic: str = "t", payload: bytes = b"x") -> ReasonCode | None:
    """Publishes a named request; what the broker answers."""
    client.take()
    client.publish(topic, payload, qos, user=(("unit", "mm"), (PROPERTY, request), ("k", "v")))
    answers = [packet for packet in client.take() if isinstance(packet, (Puback, Pubrec))]
    assert len(answers) == (qos > 0)
    return answers[0].reason if answers else None


def subscriber(world: World) -> Client:
    bob = world.client("bob").lasting()
    bob.subscribe("t", 2)
    return bob


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_request_is_published_once_by_whatever_connection_it_comes(world: World, qos: int) -> None:
    bob = subscriber(world)
    ann = world.client("ann").online()
    wanted = ReasonCode.SUCCESS if qos else None
    assert ask(ann, "k:1", qos, payload=b"one") == wanted
    assert ask(ann, "k:1", qos, payload=b"one") == wanted
    assert ask(ann, "k:2", qos, payload=b"two") == wanted
    ann.drop()
    assert ask(world.client("other").online(), "k:1", qos, payload=b"one") == wanted
    assert ask(world.client("other").online(), "l:1", qos, payload=b"three") == wanted
    messages = bob.messages()
    assert [message.payload for message in messages] == [b"one", b"two", b"three"]
    # Subscribers get the other properties, in their order.
    assert {message.properties for message in messages} == {Properties(user=(("unit", "mm"), ("k", "v")))}


@pytest.mark.parametrize("qos", [1, 2])
def test_it_is_known_after_a_restart_with_the_same_outcome(world: World, qos: int) -> None:
    bob = subscriber(world)
    ann = world.client("ann").online()
    assert ask(ann, "k:7", qos, "nobody") == ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert ask(ann, "k:9", qos) == ReasonCode.SUCCESS
    assert len(bob.payloads()) == 1
    world.restart(after_s=5.0)
    bob = subscriber(world)
    ann = world.client("ann").online()
    assert ask(ann, "k:7", qos) == ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert ask(ann, "k:9", qos) == ReasonCode.SUCCESS
    assert bob.payloads() == []
    assert ask(ann, "k:8", qos) == ReasonCode.SUCCESS
    assert len(bob.payloads()) == 1


def test_without_an_answer_it_is_remembered_in_memory_only(world: World) -> None:
    subscriber(world)
    ask(world.client("ann").online(), "k:1", 0)
    assert "i" not in world.disk_counts()
    ask(world.client("ann").online(), "k:2", 1)
    assert world.disk_counts()["i"] == 1


def test_the_outcome_is_committed_with_what_the_message_changed(world: World) -> None:
    bob = subscriber(world)
    bob.disconnect()
    ann = world.client("ann").online()
    with world.one_turn():
        ann.publish("t", b"x", 1, user=((PROPERTY, "k:1"),))
        kinds = [key[:1] for key, _ in world.broker.journal.records]
    assert kinds == [b"m", b"q", b"i"]


def test_requests_out_of_order_are_all_published_and_old_ones_refused(world: World) -> None:
    bob = subscriber(world)
    ann = world.client("ann").online()
    for number in (100, 40, 37, 99, 40):
        assert ask(ann, f"k:{number}", payload=str(number).encode()) == ReasonCode.SUCCESS
    assert bob.payloads() == [b"100", b"40", b"37", b"99"]
    assert ask(ann, "k:36") == REFUSED  # 64 before the highest
    assert ask(ann, "k:101") == ReasonCode.SUCCESS
    assert ask(ann, "k:37") == REFUSED  # it was published, but that is forgotten
    assert len(bob.payloads()) == 1


def test_a_refusal_is_the_outcome_too_but_not_one_by_access_rules(make_world: MakeWorld) -> None:
    allowed = {"t"}
    options = {"authorise": lambda user, client, action, topic: topic in allowed}
    world = make_world(options, queue_messages_max=1, overflow="reject")
    bob = subscriber(world)
    bob.disconnect()
    ann = world.client("ann").online()
    assert [ask(ann, f"k:{number}") for number in (1, 2)] == [ReasonCode.SUCCESS, ReasonCode.QUOTA_EXCEEDED]
    bob = world.client("bob")
    bob.connect(False, session_expiry_s=100)
    bob.inbox.pop(0)
    assert len(bob.payloads()) == 1
    assert ask(ann, "k:2") == ReasonCode.QUOTA_EXCEEDED  # though there is room now: try with another number
    assert ask(ann, "k:3", topic="u") == ReasonCode.NOT_AUTHORIZED
    allowed.add("u")
    world.broker.permissions_changed()
    assert ask(ann, "k:3", topic="u") == ReasonCode.NO_MATCHING_SUBSCRIBERS


@pytest.mark.parametrize("value", ["", "k", ":1", "k:", "k:-1", "k:1.5", "k:" + "9" * 19, "k" * 65 + ":1", "k:\u0661"])
def test_a_malformed_name_is_refused(world: World, value: str) -> None:
    bob = subscriber(world)
    ann = world.client("ann").online()
    assert ask(ann, value) == REFUSED
    assert ask(ann, value, qos=0) is None
    assert bob.payloads() == []
    assert ann.ping()
    assert PROPERTY in world.broker.counters.notices[0]
    with pytest.raises(RequestError):
        request_of(Properties(user=((PROPERTY, value),)))


def test_two_names_are_malformed_and_a_token_may_have_colons(world: World) -> None:
    with pytest.raises(RequestError):
        request_of(Properties(user=((PROPERTY, "k:1"), (PROPERTY, "k:1"))))
    assert request_of(Properties(user=((PROPERTY, "a:b:007"),))) == ("a:b", 7)
    assert request_of(Properties(user=(("other", "k:1"),))) is None


def test_tokens_of_different_users_are_different(world: World) -> None:
    bob = subscriber(world)
    for user in ("ann", "eve", "ann"):
        assert ask(world.client("c-" + user).online(identity=user), "k:1") == ReasonCode.SUCCESS
    assert len(bob.payloads()) == 2


def test_a_qos_2_request_goes_on_to_its_end(world: World) -> None:
    bob = subscriber(world)
    ann = world.client("ann").online()
    for _ in range(2):
        assert ask(ann, "k:1", 2) == ReasonCode.SUCCESS
    assert len(ann.session.received) == 2  # both packet identifiers wait for their PUBREL
    assert len(bob.payloads()) == 1


def test_the_token_that_was_not_used_longest_is_forgotten(make_world: MakeWorld) -> None:
    world = make_world(request_tokens_max=2)
    bob = subscriber(world)
    ann = world.client("ann").online()
    for token in ("a", "b", "a", "c"):
        world.now += 1
        ask(ann, f"{token}:1")
    assert len(bob.payloads()) == 3
    assert world.disk_counts()["i"] == 2
    world.restart()
    bob = subscriber(world)
    ann = world.client("ann").online()
    for token, published in (("a", 0), ("c", 0), ("d", 1), ("c", 0), ("a", 1)):
        world.now += 1
        ask(ann, f"{token}:1")
        assert len(bob.payloads()) == published, token


def test_random_numbers_are_as_a_list_of_all_outcomes_says() -> None:
    rng = random.Random(5)
    requests = Requests(Journal(), 10)
    seen: dict[int, ReasonCode] = {}
    base = 0
    for _ in range(5_000):
        base += rng.choice([0, 0, 1, 1, 3, 200 if rng.random() < 0.01 else 0])
        number = max(0, base - rng.randrange(90))
        highest = max(seen, default=-1)
        if seen and number <= highest - WINDOW:
            with pytest.raises(RequestError):
                requests.outcome("", ("t", number))
            continue
        assert requests.outcome("", ("t", number)) == seen.get(number)
        if number not in seen:
            seen[number] = rng.choice([ReasonCode.SUCCESS, ReasonCode.QUOTA_EXCEEDED])
            requests.keep("", ("t", number), seen[number], rng.randrange(2), 0.0)


def test_properties_that_came_before_mean_the_same_again(world: World) -> None:
    """A broker that has seen them all before passes on what a fresh one does."""
    rng = random.Random(3)
    kinds = []
    for _ in range(40):
        user = [("deadline-ms", str(rng.randrange(1, 9) * 1000)), ("unit", "m" * rng.randrange(300)), ("k", "v")]
        kinds.append(
            Properties(
                message_expiry_s=rng.choice([None, 2, 5]),
                content_type=rng.choice([None, "text"]),
                user=tuple(pair for pair in user if rng.random() < 0.5),
            )
        )
    bob = subscriber(world)
    for _ in range(3):
        for given in rng.sample(kinds, len(kinds)):
            fresh = World()
            fresh.now = world.now
            carl = subscriber(fresh)
            for each in (world, fresh):
                client = each.client("ann").online()
                client.publish("t", b"x", 1, **vars(given))
            delivered, wanted = bob.messages(), carl.messages()
            assert [message.properties for message in delivered] == [message.properties for message in wanted]
            bob.disconnect()
            carl.disconnect()
            for each in (world, fresh):
                each.client("ann").online().publish("t", b"y", 1, **vars(given))
                each.wait(3.5)
            assert world.broker.sessions.by_key["bob"].queued == fresh.broker.sessions.by_key["bob"].queued
            bob = world.client("bob").lasting(clean=True)
            bob.subscribe("t", 2)


def test_an_ordinary_message_is_passed_on_as_it_came(world: World) -> None:
    bob = subscriber(world)
    ann = world.client("ann").online()
    given = (("surecast-requests", "k:1"), ("unit", PROPERTY))
    for _ in range(2):
        ann.publish("t", b"x", 1, user=given)
    assert [message.properties.user for message in bob.messages()] == [given, given]
    assert isinstance(ann.take()[0], (Puback, Publish))
