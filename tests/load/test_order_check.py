"""The check of order against one that remembers everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from surecast.load.order_check import OrderCheck

MESSAGES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=60)


def by_memory(messages: list[tuple[int, int]]) -> tuple[int, int, int]:
    """Distinct ones, those behind a later one of their stream, and those that came before."""
    seen: list[tuple[int, int]] = []
    distinct = disordered = duplicates = 0
    for stream, number in messages:
        if (stream, number) in seen:
            duplicates += 1
        else:
            distinct += 1
            disordered += any(other == stream and later > number for other, later in seen)
        seen.append((stream, number))
    return distinct, disordered, duplicates


@given(MESSAGES, st.integers(1, 7))
def test_loss_disorder_and_repetition_are_told_apart(messages: list[tuple[int, int]], in_read: int) -> None:
    check = OrderCheck()
    for at in range(0, len(messages), in_read):
        streams, numbers = zip(*messages[at : at + in_read], strict=True)
        check.take(streams, numbers)
    assert (check.distinct, check.disordered, check.duplicates) == by_memory(messages)


@given(st.lists(st.integers(1, 50), max_size=20))
def test_a_faultless_stream_has_no_faults(reads: list[int]) -> None:
    check, number = OrderCheck(), 0
    for count in reads:
        check.take([4] * count, range(number, number + count))
        number += count
    assert (check.distinct, check.disordered, check.duplicates) == (number, 0, 0)
