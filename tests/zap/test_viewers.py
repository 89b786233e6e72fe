"""Viewers of channels, beside an implementation that recounts everything every time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.errors import ConfigurationError, PeerError
from surecast.zap import ChannelChange, ChannelViewers, Event, Status, Viewers
from surecast.zap.viewers import Ranking

channels = st.sampled_from(["A", "B", "C", "Ö", "é"])
boxes = st.integers(1, 6).map(lambda n: f"10.0.0.{n}")
events = st.one_of(
    st.builds(ChannelChange, st.just(0), boxes, channels, channels),
    st.builds(Status, st.just(0), boxes, st.sampled_from(["power", "mute"]), st.integers(0, 1)),
    st.builds(Status, st.just(0), boxes, st.just("volume"), st.integers(0, 100)),
)


class Recount:
    """The dumb one: it keeps all events, and for a question goes through them for every box."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def where(self) -> dict[str, str]:
        tuned: dict[str, str] = {}
        for box in {event.box for event in self.events}:
            channel, on = "", False
            for event in self.events:
                if event.box == box and isinstance(event, ChannelChange):
                    channel, on = event.to_channel, True
                elif event.box == box and isinstance(event, Status) and event.kind == "power":
                    on = bool(event.value)
            if on and channel:
                tuned[box] = channel
        return tuned

    def top(self, n: int) -> list[ChannelViewers]:
        tuned = list(self.where().values())
        counts = sorted((-tuned.count(channel), channel) for channel in set(tuned))
        return [ChannelViewers(channel, -count) for count, channel in counts[:n]]


@given(st.lists(st.lists(events, max_size=6), max_size=12), st.integers(0, 6))
def test_it_counts_what_a_recount_counts(batches: list[list[Event]], n: int) -> None:
    viewers, recount = Viewers(), Recount()
    before: dict[str, int] = {}
    for batch in batches:
        changed = viewers.execute(batch)
        recount.events += batch
        tuned = list(recount.where().values())
        now = {channel: tuned.count(channel) for channel in "ABCÖé"}
        assert {name: viewers.num_viewers(name) for name in "ABCÖé"} == now
        assert viewers.compute_top_list(n) == recount.top(n)
        assert viewers.on == len(tuned)
        assert changed >= {name for name in now if now[name] != before.get(name, 0)}
        before = now


@given(st.lists(events, max_size=30), st.lists(events, max_size=30))
def test_a_restored_state_is_the_same_and_goes_on_the_same(first: list[Event], second: list[Event]) -> None:
    original, copy = Viewers(), Viewers()
    original.execute(first)
    copy.execute(second)  # what was there before is gone
    copy.restore(original.snapshot())
    assert copy.snapshot() == original.snapshot()
    assert copy.execute(second) == original.execute(second)
    assert copy.snapshot() == original.snapshot()
    assert copy.compute_top_list(5) == original.compute_top_list(5)


@given(st.lists(events, max_size=30))
def test_the_same_events_again_change_no_count(batch: list[Event]) -> None:
    viewers = Viewers()
    viewers.execute(batch)
    top = viewers.compute_top_list(10)
    viewers.execute(batch)
    assert viewers.compute_top_list(10) == top


def test_equal_states_have_equal_bytes_however_they_came_about() -> None:
    first = [ChannelChange(0, "10.0.0.1", "B", "A"), ChannelChange(0, "10.0.0.2", "A", "B")]
    one, other = Viewers(), Viewers()
    one.execute(first)
    other.execute(reversed(first))
    assert one.snapshot() == other.snapshot()
    assert Viewers().snapshot() != one.snapshot()


def test_limits_leave_out_and_count() -> None:
    viewers = Viewers(boxes_max=2, channels_max=2)
    viewers.execute(ChannelChange(0, f"10.0.0.{i}", "A", "A") for i in range(4))
    assert (viewers.num_viewers("A"), viewers.refused) == (2, 2)
    viewers.execute([ChannelChange(0, "10.0.0.0", "B", "A"), ChannelChange(0, "10.0.0.1", "C", "A")])
    assert viewers.compute_top_list(9) == [ChannelViewers("A", 1), ChannelViewers("B", 1)]
    assert viewers.refused == 3
    with pytest.raises(ConfigurationError, match="boxes_max"):
        Viewers(boxes_max=0)


def test_a_lost_event_is_noticed_and_does_not_spoil_counts() -> None:
    viewers = Viewers()
    viewers.execute([ChannelChange(0, "10.0.0.1", "A", "X"), ChannelChange(9, "10.0.0.1", "C", "B")])
    assert viewers.broken_chains == 1
    assert [viewers.num_viewers(name) for name in "ABCX"] == [0, 0, 1, 0]


def test_damaged_snapshots_are_refused_and_leave_the_state_alone() -> None:
    viewers = Viewers()
    viewers.execute([ChannelChange(0, "10.0.0.1", "A", "X"), ChannelChange(0, "10.0.0.2", "B", "X")])
    whole = viewers.snapshot()
    for damaged in (whole[:-1], whole + b"x", b"\x09" + whole[1:], whole[:10]):
        with pytest.raises(PeerError, match="snapshot"):
            viewers.restore(damaged)
    assert viewers.snapshot() == whole
    viewers.restore(b"")
    assert viewers.snapshot() == Viewers().snapshot()


@given(st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=200), st.integers(0, 9))
def test_the_ranking_is_a_sorted_list_of_counts(moves: list[tuple[int, bool]], n: int) -> None:
    ranking, counts = Ranking(), dict.fromkeys(range(8), 0)
    for item, up in moves:
        if up:
            ranking.rise(item)
            counts[item] += 1
        elif counts[item]:
            ranking.fall(item)
            counts[item] -= 1
    falling = sorted((count for count in counts.values() if count), reverse=True)
    first = ranking.first(n)
    assert [count for _, count in first][:n] == falling[:n]
    assert all(counts[item] == count for item, count in first)
    if first:
        # all that are as good as the last one come along
        assert len(first) == sum(count >= first[-1][1] for count in falling)
    again = Ranking([counts[item] for item in range(8)])
    assert sorted(again.first(8)) == sorted(ranking.first(8))
