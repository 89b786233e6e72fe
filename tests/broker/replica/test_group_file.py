"""The group's file: what is right is read, and all that is wrong is said with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from surecast.broker.replica import Address, GroupFileError, GroupSpec, load_group
from surecast.documents.validation import Name
from surecast.errors import ConfigurationError

GOOD = """name: plant
secret_file: group.secret
sync: none
paxos:
  suspect: 500ms
  value_size: 2MB
replicas:
  - {id: 1, peer: "10.0.0.1:7001", client: "10.0.0.1:7101", mqtt: [{port: 1883}]}
  - {id: 2, peer: "[::1]:7001"}
  - {id: 5, peer: "10.0.0.5:7001", joins: true, data: /somewhere}
"""


def write(folder: Path, text: str) -> Path:
    secret = folder / "group.secret"
    secret.write_text("sixteen characters at least\n")
    secret.chmod(0o600)
    (folder / "group.yaml").write_text(text)
    return folder / "group.yaml"


def test_a_good_file(tmp_path: Path) -> None:
    group = load_group(write(tmp_path, GOOD))
    assert group.read_secret() == b"sixteen characters at least"
    assert group.paxos.settings.suspect_s == 0.5
    assert group.paxos.settings.value_bytes_max == 2_000_000
    assert sorted(group.places(1)) == [1, 2]
    assert sorted(group.places(5)) == [1, 2, 5]
    assert group.places(1)[2].peer == Address("::1", 7001)
    assert (group.folder(1), group.folder(5)) == (tmp_path / "data" / "1", Path("/somewhere"))
    assert group.replica(1).mqtt[0].port == 1883
    with pytest.raises(ConfigurationError, match="replica 3: the group plant has only 1, 2, 5"):
        group.replica(3)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("sync: none", "sync: all", ":3: sync: 'all' is not known here; write 'majority' or 'none'"),
        (
            "suspect: 500ms",
            "suspects: 1s",
            "paxos.suspects: is not a field of a group file at this place; did you mean",
        ),
        ("suspect: 500ms", "suspect: 10ms", "paxos.heartbeat_s: 0.05 must be positive and less than suspect_s (0.01)"),
        ('"10.0.0.1:7001"', '"10.0.0.1"', ":8: replicas[0].peer: '10.0.0.1' is no address; write host:port"),
        ('"[::1]:7001"', '"10.0.0.1:7001"', ":9: replicas[1].peer: 10.0.0.1:7001 is replicas[0].peer too; change one"),
        ("id: 2", "id: 1", ":9: replicas[1].id: 1 is that of replicas[0] too; change one"),
        ("id: 5", "id: 0", ":10: replicas[2].id: 0 should be at least 1"),
        ("id: 1, peer", "id: 6, peer", ":10: replicas[2].id: 5: one that joins has a higher number; take one above 6"),
        ("secret_file: group.secret", "secret: short", ":2: secret: the secret has 5 bytes; it must have 16 or more"),
        ("secret_file: group.secret", "secret_file: none", "secret_file: "),
        ("secret_file: group.secret\n", "", "write either secret or secret_file"),
        ("name: plant\n", "", "name: is missing; add it"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, old: str, new: str, found: str) -> None:
    assert old in GOOD
    with pytest.raises(GroupFileError) as caught:
        load_group(write(tmp_path, GOOD.replace(old, new)))
    assert found in str(caught.value)


def test_all_founders_may_have_been_replaced_but_none_may_be_missing(tmp_path: Path) -> None:
    joined = [f"  - {{id: {n}, peer: '10.0.0.{n}:7001', joins: true}}\n" for n in (4, 5, 6)]
    text = f"name: plant\nsecret_file: group.secret\nreplicas:\n{''.join(joined)}"
    with pytest.raises(GroupFileError, match="replicas: all of them join, and the group has no founding"):
        load_group(write(tmp_path, text))
    group = load_group(write(tmp_path, text + "founding: 2242a1f6baad7070\n"))
    assert sorted(group.places(6)) == [4, 5, 6]  # a new one asks those that are there


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    (tmp_path / "group.secret").chmod(0o644)
    with pytest.raises(GroupFileError, match="others may read it; run chmod 600"):
        load_group(path)


def test_no_mapping_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(GroupFileError, match="a group file is a mapping"):
        load_group(write(tmp_path, "- 1\n"))
    with pytest.raises(GroupFileError):
        load_group(tmp_path / "nothing.yaml")


def test_a_program_may_take_fields_of_its_own(tmp_path: Path) -> None:
    class Wider(GroupSpec):
        colour: Name = "red"

    assert load_group(write(tmp_path, GOOD + "colour: blue\n"), Wider).colour == "blue"
    with pytest.raises(GroupFileError, match="colour: is not a field"):
        load_group(write(tmp_path, GOOD + "colour: blue\n"))
