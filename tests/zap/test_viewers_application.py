"""ZapViewers as an application of a replicated broker: deterministic, paced by log time, and never raising."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.group.world import Client, World

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.mqtt import NO_PROPERTIES, Unsuback, Unsubscribe, validate_filter, validate_topic_name
from surecast.zap import Generator, Traffic, Viewers, ZapViewers, parse_line
from surecast.zap.traffic import DayCycle
from surecast.zap.viewers_application import LISTS_MAX, Publication

if TYPE_CHECKING:
    from surecast.protocol.group.application import Application

S = 1_000_000
lines = st.sampled_from(
    [
        b"2024-01-01,20:00:00,10.0.0.1,A,B",
        b"2024-01-01,20:00:00,10.0.0.1,B,A",
        b"2024-01-01,20:00:00,10.0.0.2,Canal+/#$%,A",
        b"2024-01-01,20:00:00,10.0.0.2,Power: 0",
        b"2024-01-01,20:00:00,10.0.0.2,Power: 1",
        b"2024-01-01,20:00:00,10.0.0.3,B,A\r",
        b"hello",
        b"\xff\xfe",
        b"",
    ]
)
steps = st.lists(st.tuples(st.integers(0, 3 * S), st.one_of(st.none(), st.lists(lines).map(b"\n".join), st.binary())))


def run(application: ZapViewers, moves: list[tuple[int, bytes | None]], time_us: int = 0) -> list[list[Publication]]:
    said: list[list[Publication]] = []
    for wait_us, payload in moves:
        time_us += wait_us
        told = application.tick(time_us) if payload is None else application.published("zap/events/1", payload, time_us)
        said.append(list(told))
    return said


def test_it_is_an_application() -> None:
    application: Application = ZapViewers()
    for topic in application.topics:
        validate_filter(topic)
    assert application.name == "zap"


@given(steps, st.integers(0, 20))
def test_a_replica_that_was_restored_says_what_the_others_say(moves: list[tuple[int, bytes | None]], cut: int) -> None:
    one, other = ZapViewers(top=(2, 10)), ZapViewers(top=(2, 10))
    assert run(one, moves[:cut]) == run(other, moves[:cut])
    late = ZapViewers(top=(2, 10))
    run(late, [(0, b"2024-01-01,20:00:00,10.0.0.9,Z,A")])
    late.restore(one.snapshot())
    assert late.snapshot() == one.snapshot()
    now = sum(wait for wait, _ in moves[:cut])
    assert run(late, moves[cut:], now) == run(one, moves[cut:], now)
    assert late.snapshot() == one.snapshot()


@given(steps)
def test_what_was_published_last_is_the_state_once_time_has_passed(moves: list[tuple[int, bytes | None]]) -> None:
    application = ZapViewers(top=(3,))
    retained: dict[str, bytes] = {}
    published_us: list[int] = []
    now = 0
    for wait_us, payload in [*moves, (2 * S, None)]:
        now += wait_us
        for topic, data, retain in run(application, [(0, payload)], now)[0]:
            validate_topic_name(topic)
            assert retain
            retained[topic] = data
            published_us.append(now)
    times = sorted(set(published_us))
    assert all(later - earlier >= S for earlier, later in pairwise(times))
    plain = Viewers()
    bad = 0
    for _, payload in moves:
        for line in (payload or b"").split(b"\n"):
            try:
                plain.execute([parse_line(line.removesuffix(b"\r").decode())])
            except Exception:  # any reason at all
                bad += line.removesuffix(b"\r") != b""
    assert int(retained.pop("zap/errors", b"0")) == bad
    top = [{"channel": one.channel, "viewers": one.viewers} for one in plain.compute_top_list(3)]
    assert json.loads(retained.pop("zap/top/3", b"[]")) == top
    assert {topic: int(data) for topic, data in retained.items() if int(data)} == {
        {"A": "zap/viewers/A", "B": "zap/viewers/B"}.get(name, "zap/viewers/Canal%2B%2F%23%24%25"): count
        for name in plain.channels
        if (count := plain.num_viewers(name))
    }


def test_figures_wait_for_their_time_and_only_changes_are_published() -> None:
    application = ZapViewers(every_s=5.0)
    first = run(application, [(S, b"2024-01-01,20:00:00,10.0.0.1,A,B")])[0]
    assert [topic for topic, *_ in first] == ["zap/viewers/A", "zap/top/10"]
    there_and_back = b"2024-01-01,20:00:04,10.0.0.1,B,A\n2024-01-01,20:00:08,10.0.0.1,A,B"
    assert run(application, [(2 * S, there_and_back), (4 * S, None), (9 * S, None)]) == [[], [], []]
    move = b"2024-01-01,20:00:09,10.0.0.1,B,A"
    found = run(application, [(16 * S, move), (S, move)])
    assert [topic for topic, *_ in found[0]] == ["zap/viewers/A", "zap/viewers/B", "zap/top/10"]
    assert found[1] == []


def lists_of(publications: list[Publication]) -> dict[str, list[str] | None]:
    """The channels of each list that is published; None for one that is removed."""
    return {
        topic: [each["channel"] for each in json.loads(payload)] if payload else None
        for topic, payload, _ in publications
        if topic.startswith("zap/top/")
    }


def test_a_list_of_any_length_is_published_while_somebody_subscribes_to_it() -> None:
    application = ZapViewers(top=(10,), every_s=1.0)
    application.subscribed("zap/top/3", True)
    assert lists_of(application.tick(S)) == {"zap/top/3": []}
    names = ["A", "B", "C", "D", "E"]
    lines = "\n".join(f"2024-01-01,20:00:00,10.0.0.{i},{name},X" for i, name in enumerate(names))
    assert lists_of(list(application.published("zap/events/1", lines.encode(), 3 * S))) == {
        "zap/top/3": names[:3],
        "zap/top/10": names,
    }
    application.subscribed("zap/top/1000", True)
    assert application.tick(3 * S + 1) == []  # paced like all figures
    assert lists_of(application.tick(5 * S)) == {"zap/top/1000": names}
    application.subscribed("zap/top/3", False)
    application.subscribed("zap/top/10", True)
    application.subscribed("zap/top/10", False)
    assert lists_of(application.tick(7 * S)) == {"zap/top/3": None}
    assert application.tick(9 * S) == []


def test_lists_have_a_limit_and_other_topics_are_none() -> None:
    application = ZapViewers(top=(10,), every_s=0.0)
    for text in ("0", "1001", "03", "x", "+", "#", "", "3/4", "-1", "٣"):
        application.subscribed(f"zap/top/{text}", True)
    assert application.tick(S) == []
    for n in range(100, 0, -1):
        application.subscribed(f"zap/top/{n}", True)
    shortest = [n for n in range(1, 100) if n != 10][:LISTS_MAX]
    assert lists_of(application.tick(2 * S)).keys() == {f"zap/top/{n}" for n in (*shortest, 10)}
    application.subscribed("zap/top/5", False)
    application.subscribed("zap/top/5", True)
    assert application.tick(3 * S) == []
    application.subscribed("zap/top/5", False)
    assert lists_of(application.tick(4 * S)) == {"zap/top/5": None, f"zap/top/{shortest[-1] + 1}": []}
    application.subscribed("zap/top/5", True)
    assert application.tick(5 * S) == []  # nothing that is published is taken away


class Leaver(Client):
    """A subscriber that can take its subscription back."""

    def answer(self, packet: object) -> None:
        if not isinstance(packet, Unsuback):
            super().answer(packet)


@pytest.mark.parametrize("seed", range(8))
def test_replicas_learn_of_subscriptions_alike(seed: int) -> None:
    """With clients at different replicas, and replicas that die and come back from their own state or another's."""
    world = World(seed, applications=lambda: [ZapViewers(top=(2,), every_s=0.03)])
    lines = [f"2024-01-01,20:00:00,10.0.0.{box},{name},X".encode() for box in range(9) for name in "ABCDE"]
    contents = [(line, NO_PROPERTIES) for line in lines]
    Client(world, "boxes", topics=["zap/events/1"], publish_qos=1, count=60, contents=contents)
    asking = {n: Leaver(world, f"top {n}", topics=[f"zap/top/{n}"], subscribe_qos=1) for n in (1, 3, 4)}
    rng = random.Random(seed)
    for _ in range(150):
        world.step()
        if rng.random() < 0.05:
            if len(world.up) > 2:
                world.kill(rng.choice(world.up))
            elif len(world.up) < len(world.sites):
                world.revive(next(site for site in world.sites if site not in world.up))
    for site in world.sites:
        if site not in world.up:
            world.revive(site)
    world.catch_up()

    def unsubscribe(client: Client, topic: str) -> None:
        """A second later; so whatever waited for its time is published."""
        world.now += 1.0
        client.say(Unsubscribe(9, (topic,)))
        world.catch_up()

    unsubscribe(asking[1], "nothing")
    applications = [site.machine.applications["zap"] for site in world.sites]
    assert len({application.snapshot() for application in applications}) == 1
    first = applications[0]
    assert isinstance(first, ZapViewers)
    assert first.viewers.on > 0
    for n, client in asking.items():
        top = first.viewers.compute_top_list(n)
        assert json.loads(client.got[-1]) == [{"channel": each.channel, "viewers": each.viewers} for each in top]
    # Nobody is left who asks for one of the lists.
    unsubscribe(asking[3], "zap/top/3")
    assert {b"zap/top/3" in site.machine.snapshot() for site in world.sites} == {False}
    assert len({site.machine.applications["zap"].snapshot() for site in world.sites}) == 1


def test_generated_traffic_in_batches_gives_the_viewers_of_all_events() -> None:
    application, plain = ZapViewers(), Viewers()
    generator = Generator(Traffic(boxes=300), 1_704_139_200, seed=3, announce=True)
    for batch in generator.batches(1800):
        plain.execute(batch.events.events())
        payload = "\n".join(batch.events.lines()).encode()
        list(application.published("zap/events/1", payload, int(batch.sent_s * S)))
    assert application.bad_lines == 0
    assert application.viewers.snapshot() == plain.snapshot()
    # all but those that are off, or were switched on a moment ago
    assert plain.on == pytest.approx(300 * DayCycle(generator.traffic).on_share(1_704_141_000.0), rel=0.25)


def test_wrong_settings_and_snapshots_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="top"):
        ZapViewers(top=(0,))
    with pytest.raises(ConfigurationError, match="every_s"):
        ZapViewers(every_s=-1.0)
    with pytest.raises(PeerError, match="snapshot of ZapViewers"):
        ZapViewers().restore(b"x")
    fresh = ZapViewers()
    fresh.restore(b"")
    assert fresh.snapshot() == ZapViewers().snapshot()
