"""Users, passwords and access rules."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.broker import security
from surecast.broker.authenticator import Authenticator
from surecast.broker.security import (
    Users,
    UsersFileError,
    read_users,
    remove_user,
    set_password,
)
from surecast.broker.security_acl import AccessFileError, AccessRules, covers, overlaps, parse_rule, read_rules
from surecast.errors import ConfigurationError
from surecast.protocol.broker import Origin
from surecast.protocol.mqtt import Connect, ReasonCode, match


def test_a_users_file_is_private_and_has_no_passwords(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert set_password(file, "ann", "correct horse")
    assert set_password(file, "bob", "battery")
    assert not set_password(file, "bob", "staple")
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text(encoding="utf-8")
    assert "horse" not in text
    assert text.count("$argon2id$") == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["users"]  # nothing half-written is left
    users = Users(read_users(file))
    assert users.verify("bob", b"staple")
    assert not users.verify("bob", b"battery")
    remove_user(file, "bob")
    assert list(read_users(file)) == ["ann"]
    with pytest.raises(UsersFileError, match="there is no user bob"):
        remove_user(file, "bob")


@pytest.mark.parametrize("name", ["", "a:b", "a\nb", " a", "#a", "x" * 201])
def test_names_that_would_break_the_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a user's name"):
        set_password(tmp_path / "users", name, "secret")


@pytest.mark.parametrize(("text", "line"), [("ann\n", 1), ("# users\nann:plain\n", 2), ("a:$argon2x\na:$argon2x\n", 2)])
def test_a_users_file_that_is_none(text: str, line: int, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsersFileError, match=f"users:{line}: "):
        read_users(file)


class CountingHasher:
    """Counts what is verified, as the time it takes would show."""

    def __init__(self, real: object):
        self.real = real
        self.count = 0

    def verify(self, digest: str, password: bytes) -> bool:
        self.count += 1
        return self.real.verify(digest, password)  # type: ignore[attr-defined, no-any-return]

    def hash(self, password: str) -> str:
        return self.real.hash(password)  # type: ignore[attr-defined, no-any-return]


def test_a_user_that_is_not_there_costs_as_much_as_a_wrong_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_password(tmp_path / "users", "ann", "secret")
    users = Users(read_users(tmp_path / "users"))
    hasher = CountingHasher(security._HASHER)
    monkeypatch.setattr(security, "_HASHER", hasher)
    assert not users.verify("ann", b"wrong")
    assert not users.verify("nobody", b"wrong")
    assert hasher.count == 2
    assert users.verify("ann", b"secret")
    assert users.verify("ann", b"secret")  # remembered
    assert hasher.count == 3
    users.replace({})
    assert not users.verify("ann", b"secret")
    assert hasher.count == 4


def test_who_is_let_in() -> None:
    async def main() -> None:
        check = Authenticator(None, lambda listener: listener == "inside")
        assert await check(Connect("c"), Origin("inside", "10.0.0.7:1")) == ""
        assert await check(Connect("c"), Origin("outside", "10.0.0.7:1")) is ReasonCode.BAD_USER_NAME_OR_PASSWORD
        assert await check(Connect("c"), Origin("outside", "10.0.0.7:1", identity="ann")) == "ann"

    asyncio.run(main())


# Access rules, against every topic of a small world.

LEVELS = ("a", "b", "$x")
TOPICS = ["/".join(levels) for depth in (1, 2, 3) for levels in itertools.product(LEVELS, repeat=depth)]
filters = st.lists(st.sampled_from(["a", "b", "$x", "+"]), min_size=1, max_size=3).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels[:2], "#"]), "#"])
)


@given(filters, filters)
def test_covering_and_overlapping_agree_with_all_topics(one: str, other: str) -> None:
    first = {topic for topic in TOPICS if match(one, topic)}
    second = {topic for topic in TOPICS if match(other, topic)}
    if covers(one, other):
        assert second <= first
    if "#" not in one and "+" not in other and "#" not in other:
        assert covers(one, other) == (second <= first)
    # The levels of the small world are all that filters can ask for, so what overlaps does so in it.
    assert overlaps(one, other) == bool(first & second)


@given(st.lists(st.tuples(st.booleans(), filters), max_size=4), filters)
def test_a_subscription_never_gets_more_than_single_topics_would(
    written: list[tuple[bool, str]], subscribed: str
) -> None:
    rules = AccessRules([parse_rule(f"{'allow' if allows else 'deny'} all {text}") for allows, text in written])
    if rules.allows("u", "c", "subscribe", subscribed):
        for topic in TOPICS:
            if match(subscribed, topic):
                assert rules.allows("u", "c", "subscribe", topic), topic


def test_names_in_rules_cannot_be_used_to_widen_them() -> None:
    rules = AccessRules([parse_rule("allow all dev/%c/#"), parse_rule("allow publish home/%u user=*")])
    assert rules.allows("", "c1", "publish", "dev/c1/temperature")
    assert not rules.allows("", "c1", "publish", "dev/c2/temperature")
    for client in ("+", "#", "a/b", "%u", ""):
        assert not rules.allows("ann", client, "subscribe", f"dev/{client}/x")
    assert rules.allows("ann", "c1", "publish", "home/ann")
    assert not rules.allows("", "c1", "publish", "home/")
    unclear = AccessRules([parse_rule("deny all dev/%c/secret"), parse_rule("allow all #")])
    assert not unclear.allows("", "a/b", "publish", "dev/x")  # a denial is never skipped


def test_rules_speak_of_users_clients_and_nobody() -> None:
    rules = AccessRules(
        map(
            parse_rule,
            ["allow subscribe news/# anonymous", "deny all # client=bad-*", 'allow all "my topic/#" user=ann'],
        )
    )
    assert rules.allows("", "c", "subscribe", "news/today")
    assert not rules.allows("ann", "c", "subscribe", "news/today")
    assert rules.allows("ann", "c", "publish", "my topic/x")
    assert not rules.allows("ann", "bad-1", "publish", "my topic/x")
    assert not rules.allows("ann", "c", "subscribe", "$SYS/#")


def test_the_line_of_a_wrong_rule_is_named(tmp_path: Path) -> None:
    file = tmp_path / "acl"
    file.write_text("# who may what\n\nallow all # user=ann\nallow read #\n", encoding="utf-8")
    with pytest.raises(AccessFileError, match="acl:4: 'read' is not an action"):
        read_rules(file)
    for text in ("allow all", "allow all # group=x", "allow all # user=a anonymous", 'allow all "x'):
        with pytest.raises(ConfigurationError):
            parse_rule(text)
