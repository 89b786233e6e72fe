"""The memory of events answers for many at once as it does for each."""

from __future__ import annotations

from random import Random

import pytest
from tests.seeds import seeds

from surecast.protocol.overlay.event_id import EventId, SeenEvents


@pytest.mark.parametrize("seed", seeds(10, range(40)))
def test_many_events_are_new_exactly_where_each_of_them_is(seed: int) -> None:
    random = Random(seed)
    seen = SeenEvents(intervals_max=random.choice((2, 5, 100)))
    answers = set()
    for _ in range(300):
        first = EventId(random.choice("ab"), random.randrange(5), random.randrange(60))
        count = random.randrange(1, 12)
        each = [seen.look(first.plus(place)) == "new" for place in range(count)]
        assert seen.are_new(first, count) == all(each)
        answers.add(all(each))
        if random.random() < 0.3:
            seen.add(first, count)
    assert answers == {True, False}
