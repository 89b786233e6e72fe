"""Subscriptions to topics of which the rules allow only some: refused, or taken and every delivery checked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.broker.conftest import Client, MakeWorld, World

from surecast.broker.security_acl import AccessRules, Wildcards, parse_rule
from surecast.protocol.broker import BrokerCore
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import GroupMachine
from surecast.protocol.group.commands import ENTRY, Entry, Item, pack
from surecast.protocol.mqtt import V5, Connect, Publish, ReasonCode, Subscribe, SubscriptionRequest, encode, match
from surecast.protocol.paxos import Context

RULES = ("deny subscribe secret/#", "deny subscribe +/secret client=ann", "allow all #")


class Ruled:
    """A world whose rules can be changed while it runs."""

    def __init__(self, make_world: MakeWorld, *rules: str, wildcards: Wildcards = "filter", **others: Any):
        self.world: World = make_world({"authorise": lambda *asked: self.access.allows(*asked)}, **others)
        self.use(*rules, wildcards=wildcards)

    def use(self, *rules: str, wildcards: Wildcards = "filter") -> None:
        self.access = AccessRules(map(parse_rule, rules), wildcards)
        self.world.broker.permissions_changed(self.access.checks_deliveries)

    def online(self, name: str, *filters: str, qos: int = 1, version: int = V5) -> Client:
        client = self.world.client(name, version).lasting()
        for each in filters:
            client.subscribe(each, qos)
        return client


def test_a_rule_that_denies_a_topic_denies_every_wildcard_over_it_or_filters(make_world: MakeWorld) -> None:
    ruled = Ruled(make_world, *RULES, wildcards="deny")
    for wildcards, reason in (("deny", ReasonCode.NOT_AUTHORIZED), ("filter", 1)):
        ruled.use(*RULES, wildcards=wildcards)
        assert ruled.online(f"c-{wildcards}").subscribe("#", 1, check=False).reasons == (reason,)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_a_client_gets_what_it_may_have(make_world: MakeWorld, qos: int, wanted: int, version: int) -> None:
    ruled = Ruled(make_world, *RULES)
    ann = ruled.online("ann", "#", "+/+", qos=wanted, version=version)
    bob = ruled.online("bob", "#", qos=wanted, version=version)
    pub = ruled.online("pub", version=version)
    for topic in ("a/b", "secret/x", "a/secret", "secret", "b"):
        for _ in range(3):
            pub.publish(topic, topic.encode(), qos)
    assert set(ann.payloads()) == {b"a/b", b"b"}
    assert set(bob.payloads()) == {b"a/b", b"a/secret", b"b"}


def test_what_can_never_be_allowed_is_refused(make_world: MakeWorld) -> None:
    ruled = Ruled(make_world, *RULES)
    ann = ruled.online("ann")
    for refused in ("secret/#", "secret/+/x", "secret", "+/secret", "a/secret"):
        assert ann.subscribe(refused, check=False).reasons == (ReasonCode.NOT_AUTHORIZED,)
    none = Ruled(make_world, "allow publish #")
    assert none.online("ann").subscribe("#", check=False).reasons == (ReasonCode.NOT_AUTHORIZED,)


def test_messages_in_one_run_are_filtered_too(make_world: MakeWorld) -> None:
    """Many messages in one read take shorter ways through the core."""
    ruled = Ruled(make_world, *RULES)
    ann, pub = ruled.online("ann", "#"), ruled.online("pub")
    for topic in ("secret/x", "a/b"):
        pub.send(*(Publish(topic, b"%d" % n, 1, packet_id=100 + n) for n in range(20)))
        pub.send(*(Publish(topic, b"%d" % n) for n in range(20)))
    assert {message.topic for message in ann.messages()} == {"a/b"}


def test_retained_messages_are_filtered(make_world: MakeWorld) -> None:
    ruled = Ruled(make_world, *RULES)
    pub = ruled.online("pub")
    for topic in ("a/b", "secret/x", "x/secret"):
        pub.publish(topic, topic.encode(), 1, retain=True)
    ann = ruled.online("ann")
    ann.subscribe("#", 1)
    assert ann.payloads() == [b"a/b"]


def test_a_member_of_a_shared_subscription_that_may_not_have_a_message_is_passed_over(make_world: MakeWorld) -> None:
    ruled = Ruled(make_world, *RULES)
    ann, bob = (ruled.online(name, "$share/both/#") for name in ("ann", "bob"))
    pub = ruled.online("pub")
    for n in range(6):
        pub.publish("x/secret", b"%d" % n, n % 2)
        pub.publish("secret/y", b"no", n % 2)
    assert ann.payloads() == []
    assert sorted(bob.payloads()) == [b"%d" % n for n in range(6)]
    ruled.use("allow all #")
    for n in range(4):
        pub.publish("secret/y", b"%d" % n, 1)
    assert (len(ann.payloads()), len(bob.payloads())) == (2, 2)


def test_rules_that_change_hold_for_the_next_message(make_world: MakeWorld) -> None:
    ruled = Ruled(make_world, "allow all #")
    ann, pub = ruled.online("ann", "#"), ruled.online("pub")
    pub.publish("secret/x", b"1", 1)
    ruled.use(*RULES)
    pub.publish("secret/x", b"2", 1)
    ruled.use("allow all #", wildcards="deny")
    pub.publish("secret/x", b"3", 1)
    assert ann.payloads() == [b"1", b"3"]


def test_the_queue_of_a_session_that_is_away_is_filtered_after_a_restart_too(make_world: MakeWorld) -> None:
    ruled = Ruled(make_world, *RULES)
    ann, pub = ruled.online("ann", "#"), ruled.online("pub")
    ann.disconnect()
    pub.publish("secret/x", b"no", 1).publish("a/b", b"1", 1)
    ruled.world.restart()
    ruled.use(*RULES)
    ruled.online("pub").publish("secret/x", b"no", 1).publish("a/b", b"2", 1)
    assert ann.connect(False, session_expiry_s=9).payloads_after_connack() == [b"1", b"2"]


LEVELS = st.sampled_from(["a", "b", "secret"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=3).map("/".join)
FILTERS = st.builds(
    lambda levels, end: "/".join([*levels, *end]),
    st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=2),
    st.sampled_from([[], ["#"]]),
)
WRITTEN = st.lists(st.tuples(st.booleans(), FILTERS), max_size=4)


@settings(max_examples=100, deadline=None)
@given(first=WRITTEN, then=WRITTEN, filters=st.lists(FILTERS, max_size=3), topics=st.lists(TOPICS, max_size=4))
def test_deliveries_are_as_a_look_at_every_message_says(
    first: list[tuple[bool, str]], then: list[tuple[bool, str]], filters: list[str], topics: list[str]
) -> None:
    """The oracle looks at each message: it goes where a taken filter matches and the first rule that matches allows."""

    def texts(rules: list[tuple[bool, str]]) -> list[str]:
        return ["allow publish #", *(f"{'allow' if allows else 'deny'} subscribe {text}" for allows, text in rules)]

    ruled = Ruled(lambda options: World(None, **options), *texts(first))
    ann, pub = ruled.online("ann"), ruled.online("pub")
    taken = [each for each in filters if ann.subscribe(each, 1, check=False).reasons == (1,)]
    for each in set(filters) - set(taken):  # nothing of what is refused could have come
        assert not any(match(each, topic) and allowed(first, topic) for topic in topics)
    for rules in (first, then):
        ruled.use(*texts(rules))
        for topic in topics:
            pub.publish(topic, b"x", 1)
        expected = [t for t in topics if allowed(rules, t) and any(match(each, t) for each in taken)]
        assert [message.topic for message in ann.messages()] == expected


def allowed(rules: list[tuple[bool, str]], topic: str) -> bool:
    return next((allows for allows, text in rules if match(text, topic)), False)


def test_the_choice_is_part_of_the_log_of_a_group() -> None:
    """Replicas that carried out the log, and one that took a snapshot, deliver the same before and after a change."""

    def make() -> GroupMachine:
        def rules(data: bytes) -> Any:
            wildcards, *lines = data.decode().splitlines()
            access = AccessRules(map(parse_rule, lines), "filter" if wildcards == "filter" else "deny")
            return access.allows, access.checks_deliveries

        core = lambda authorise: BrokerCore(authorise=authorise, journal=NoJournal(), watches=False)  # noqa: E731
        return GroupMachine(1, core, make_rules=rules)

    machines, position = [make(), make()], 0

    def execute(*items: tuple[Item, int, bytes]) -> None:
        nonlocal position
        position += 1
        command = b"".join(pack(1, 1, position, [(*item, None) for item in items])[0])
        for machine in machines:
            machine.execute(command, Context(position, position * 1_000_000))

    def enter(number: int, name: str) -> tuple[Item, int, bytes]:
        connect = encode(Connect(name, version=V5), V5)
        return Item.ENTER, number, ENTRY.encode(Entry("mqtt", "peer", "", connect))

    def publish() -> None:
        for topic in ("a/b", "secret/x", "c/secret"):
            execute((Item.PACKETS, 2, encode(Publish(topic, b"x"), V5)))

    execute((Item.RULES, 0, "\n".join(["filter", *RULES]).encode()))
    execute(enter(1, "ann"), enter(2, "pub"))
    execute((Item.PACKETS, 1, encode(Subscribe(1, (SubscriptionRequest("#"),)), V5)))
    publish()
    machines.append(make())
    machines[2].restore(machines[0].snapshot())
    publish()
    execute((Item.RULES, 0, b"filter\nallow all #"))
    publish()
    states = [machine.snapshot() for machine in machines]
    assert states[0] == states[1] == states[2]
    assert machines[2].broker.sessions.by_key["ann"].accounts.matched == 1 + 1 + 3
    execute((Item.RULES, 0, "\n".join(["deny", *RULES]).encode()))
    assert machines[0].broker.sessions.by_key["ann"].subscriptions == {}
