"""Wrong passwords at full speed, and the right ones that have to get in all the same."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.patience import PATIENCE_S

from surecast.broker.authenticator import Authenticator
from surecast.broker.password_queue import CheckQueue, Pair, Spacing
from surecast.broker.security import Users, set_password
from surecast.client import Client, ClientError
from surecast.protocol.broker import Origin
from surecast.protocol.mqtt import Connect, ReasonCode

Running = Callable[..., AbstractAsyncContextManager[Any]]
HERE = "10.0.0.7"


def checks_until(queue: CheckQueue[str], wanted: str, again: Callable[[], None], now: float = 0.0) -> int:
    """Returns how many checks are begun until one is; after each, an attacker asks `again`. Time passes as it must."""
    for count in range(1, 10_000):
        found = queue.take(now)
        while found is None:
            now = max(now, queue.next_at())
            found = queue.take(now)
        item, pair = found
        if item == wanted:
            return count
        queue.done(pair, False, now)
        again()
    raise AssertionError(f"{wanted} was never checked")


def attacked(
    users: tuple[str, ...], outstanding: int, failures: int = 100
) -> tuple[CheckQueue[str], Callable[[], None]]:
    """A queue in which one address has so many checks of each user all the time, after many failures."""
    queue = CheckQueue[str](spacing=Spacing(20, 60.0, 0.25))
    for user in users:
        for _ in range(failures):
            queue.add("wrong", HERE, user, 0.0)
            found = queue.take(1e6)
            assert found is not None
            queue.done(found[1], False, 0.0)

    def refill() -> None:
        for user in users:
            pair = queue._pairs.get((HERE, user))
            for _ in range(outstanding - (len(pair.items) if pair is not None else 0)):
                queue.add("wrong", HERE, user, 0.0)

    refill()
    return queue, refill


def test_another_user_behind_the_same_address_is_next() -> None:
    queue, refill = attacked(("ann", "bob"), 500)
    queue.add("right", HERE, "carol", 0.0)
    assert checks_until(queue, "right", refill) <= 3


def test_another_address_is_next() -> None:
    for failures in (0, 100):
        queue, refill = attacked(tuple(f"user-{n}" for n in range(50)), 10, failures)
        queue.add("right", "10.0.0.8", "ann", 0.0)
        assert checks_until(queue, "right", refill) <= 2


def test_the_attacked_user_itself_gets_in_behind_those_that_came_before() -> None:
    """However many come after it, and though checks are spaced: a quarter of a second for each before it at most."""
    queue, refill = attacked(("ann", "bob"), 40)
    queue.add("right", HERE, "ann", 0.0)
    assert checks_until(queue, "right", refill) <= 2 * 41


def test_guessing_is_slow() -> None:
    queue, refill = attacked(("ann",), 5)
    now, count = 0.0, 0
    while now < 60.0 and count < 1_000:
        found = queue.take(now)
        if found is None:
            now = queue.next_at()
            continue
        count += 1
        queue.done(found[1], False, now)
        refill()
    assert 200 <= count <= 250  # four in a second, and no check at the same time as another


def test_failures_are_forgotten_in_time() -> None:
    queue, _ = attacked(("ann",), 0, failures=100)
    queue.add("right", HERE, "ann", 0.1)
    assert queue.take(0.1) is None
    assert queue.take(0.25) is not None
    queue, _ = attacked(("ann",), 0, failures=100)
    queue.add("right", HERE, "ann", 61.0)
    assert queue.take(61.0) is not None


def test_the_address_with_the_most_makes_room() -> None:
    queue = CheckQueue[str](waiting_max=10)
    assert queue.add("right", "10.0.0.8", "ann", 0.0) is None
    dropped = Counter(queue.add(f"{n % 3}", HERE, f"user-{n % 3}", 0.0) for n in range(100))
    assert (dropped[None], dropped["right"]) == (9, 0)
    assert queue.waiting == 10


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.booleans()), max_size=60)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, waiting_max=st.integers(1, 9))
def test_every_check_is_begun_once_or_makes_room(steps: list[tuple[str, str, bool]], waiting_max: int) -> None:
    """Nothing is lost, nothing is checked twice, and the checks of one user from one address keep their order."""
    queue: CheckQueue[int] = CheckQueue(waiting_max, Spacing(1, 60.0, 0.25))
    fates: Counter[int] = Counter()
    begun: dict[tuple[str, str], list[int]] = {}
    in_flight: deque[Pair[int]] = deque()

    def take(now: float) -> bool:
        found = queue.take(now)
        if found is not None:
            number, pair = found
            assert pair not in in_flight
            in_flight.append(pair)
            begun.setdefault((pair.address, pair.user), []).append(number)
            fates[number] += 1
        return found is not None

    now = 0.0
    for number, (address, user, takes) in enumerate(steps):
        now += 0.05
        dropped = queue.add(number, address, user, now)
        if dropped is not None:
            fates[dropped] += 1
        if takes:
            take(now)
        if len(in_flight) > 1:
            queue.done(in_flight.popleft(), number % 2 == 0, now)
        assert queue.waiting <= waiting_max
    while in_flight or queue.waiting:
        while in_flight:
            queue.done(in_flight.popleft(), False, now)
        if not take(now):
            now = max(now, queue.next_at())
    assert all(fates[number] == 1 for number in range(len(steps)))
    assert all(numbers == sorted(numbers) for numbers in begun.values())


class SlowUsers(Users):
    """Users whose passwords are their names, and which count what was checked."""

    def __init__(self) -> None:
        super().__init__({})
        self.checked: list[tuple[str, bytes]] = []
        self.known: set[tuple[str, bytes]] = set()

    def remembers(self, name: str, password: bytes) -> bool:
        return (name, password) in self.known

    def verify(self, name: str, password: bytes) -> bool:
        self.checked.append((name, password))
        if name.encode() == password:
            self.known.add((name, password))
        return name.encode() == password


def test_a_password_that_was_right_before_needs_no_turn() -> None:
    async def main() -> None:
        users = SlowUsers()
        check = Authenticator(users, lambda listener: False)
        assert await check.check("ann", b"ann", HERE) is True
        attack = [asyncio.create_task(check.check("ann", b"%d" % n, HERE)) for n in range(100)]
        await asyncio.sleep(0)
        before = len(users.checked)
        assert await check.check("ann", b"ann", HERE) is True
        assert len(users.checked) == before
        for task in attack:
            task.cancel()

    asyncio.run(main())


def test_who_has_gone_is_not_checked_and_who_finds_no_room_is_told() -> None:
    async def main() -> None:
        users = SlowUsers()
        check = Authenticator(users, lambda listener: False)
        check.limit(5, Spacing())
        gone = [asyncio.create_task(check.check("ann", b"%d" % n, HERE, lambda strictly: False)) for n in range(3)]
        assert await asyncio.gather(*gone) == [None, None, None]
        assert users.checked == []
        connects = [Connect("c", username="ann", password=b"%d" % n) for n in range(30)]
        verdicts = await asyncio.gather(*(check(connect, Origin(peer=f"{HERE}:1")) for connect in connects))
        assert set(verdicts) == {ReasonCode.SERVER_BUSY, ReasonCode.BAD_USER_NAME_OR_PASSWORD}
        assert check.counts["busy"] == verdicts.count(ReasonCode.SERVER_BUSY)
        assert check.counts["gone"] == 3
        assert check.waiting == 0

    asyncio.run(main())


def test_right_passwords_get_in_while_wrong_ones_come_at_full_speed(running: Running, tmp_path: Path) -> None:
    """20 wrong passwords once locked out the right ones of an address, for a minute and for everybody behind it."""
    for user in ("ann", "bob", "carol"):
        set_password(tmp_path / "users", user, f"of {user}")

    async def attack(port: int, user: str, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with suppress(ClientError, OSError):
                await Client(port=port, client_id="till", username=user, password=b"guess %d" % number).connect()

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), running({"security.users": tmp_path / "users"}) as service:
            port, counts = service.listeners[0].port, service._authenticator.counts
            stop = asyncio.Event()
            attackers = [asyncio.create_task(attack(port, user, stop)) for user in ("ann", "bob") for _ in range(4)]
            while counts["wrong"] < 45:
                await asyncio.sleep(0.01)
            for user, most in (("carol", 8), ("ann", 24), ("ann", 8)):
                before = counts["wrong"]
                password = f"of {user}".encode()
                async with Client(port=port, client_id="till", username=user, password=password, timeout_s=50.0):
                    assert counts["wrong"] - before <= most
            assert counts["remembered"] == 1
            stop.set()
            await asyncio.gather(*attackers)

    asyncio.run(main())


def test_the_metrics_say_what_became_of_passwords(running: Running, tmp_path: Path) -> None:
    set_password(tmp_path / "users", "ann", "secret")

    async def main() -> None:
        async with running({"security.users": tmp_path / "users"}) as service:
            port = service.listeners[0].port
            for password in (b"secret", b"secret", b"wrong"):
                with suppress(ClientError):
                    async with Client(port=port, username="ann", password=password):
                        pass
            from surecast.broker.metrics import metrics_text

            text = metrics_text(service._collector).decode()
            for result in ("remembered", "right", "wrong"):
                assert f'surecast_password_checks_total{{result="{result}"}} 1.0' in text
            assert "surecast_password_checks_waiting 0.0" in text

    asyncio.run(main())
