"""The store keeps what it promised: against a plain dict, through reopening, cleaning and every kind of refusal."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.broker import store_sqlite
from surecast.broker.store import (
    Cleaning,
    MemoryStore,
    Operation,
    SqliteStore,
    Store,
    StoreError,
    open_store,
)
from surecast.broker.store_rows import checksum, pack, split, unpack
from surecast.errors import ConfigurationError

EAGER = Cleaning(live_factor=1.0, slack_bytes=0, step_factor=2, step_bytes=0, row_bytes=200)
TIGHT = Cleaning(live_factor=2.0, slack_bytes=500, step_factor=4, step_bytes=100, row_bytes=300)
LAZY = Cleaning()


def apply(model: dict[bytes, bytes], operations: list[Operation]) -> None:
    for key, value in operations:
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value


def contents(store: Store) -> dict[bytes, bytes]:
    pairs = list(store.items())
    assert len(dict(pairs)) == len(pairs), "a pair was yielded twice"
    return dict(pairs)


def check_size(store: SqliteStore, model: dict[bytes, bytes]) -> None:
    """The books of the store against a count of what is there."""
    found = store.statistics()
    assert found.live_keys == len(model)
    assert found.live_bytes == sum(len(k) + len(v) + 8 for k, v in model.items())
    sizes = [size for (size,) in store._connection.execute("SELECT length(data) FROM log")]
    assert (found.rows, found.log_bytes) == (len(sizes), sum(sizes) + 32 * len(sizes))


keys = st.binary(max_size=2)
operation = st.tuples(keys, st.none() | st.binary(max_size=60))
step = st.just("reopen") | st.lists(operation, max_size=12)


@settings(max_examples=60)
@given(st.lists(step, max_size=30), st.sampled_from([EAGER, TIGHT, LAZY]))
def test_it_is_a_dict_whatever_happens(steps: list[str | list[Operation]], cleaning: Cleaning) -> None:
    model: dict[bytes, bytes] = {}
    with tempfile.TemporaryDirectory() as name:
        store = SqliteStore(Path(name), "os", cleaning)
        for each in steps:
            if isinstance(each, str):
                store.close()
                store = SqliteStore(Path(name), "os", cleaning)
            else:
                store.commit(each)
                apply(model, each)
            assert contents(store) == model
            check_size(store, model)
        store.close()


@pytest.mark.parametrize("cleaning", [EAGER, TIGHT, LAZY], ids=["eager", "tight", "lazy"])
def test_a_long_life_with_old_and_short_lived_keys(tmp_path: Path, cleaning: Cleaning) -> None:
    """Some keys are written once and stay at the bottom of the log; queues come and go above them."""
    draw = random.Random(7)
    model: dict[bytes, bytes] = {}
    store = SqliteStore(tmp_path, "os", cleaning)
    for turn in range(1500):
        operations: list[Operation] = []
        if turn % 100 == 0:
            operations.append((b"cold/%d" % turn, draw.randbytes(100)))
        for _ in range(draw.randrange(8)):
            key = b"queue/%d" % draw.randrange(40)
            operations.append((key, None if draw.random() < 0.5 else draw.randbytes(draw.randrange(100))))
        store.commit(operations)
        apply(model, operations)
        if turn % 97 == 0:
            store.close()
            store = SqliteStore(tmp_path, "os", cleaning)
            assert contents(store) == model
    assert contents(store) == model
    check_size(store, model)
    found = store.statistics()
    if cleaning is TIGHT:
        assert found.log_bytes < 1.25 * (2 * found.live_bytes + 500) + 2000
    store.close()


def test_the_log_stays_within_its_limit_in_the_worst_case(tmp_path: Path) -> None:
    """Half of the log is old and live, and everything new is dead at once: all that is old has to be moved."""
    cleaning = Cleaning(slack_bytes=10_000, step_bytes=0, row_bytes=2_000)
    largest = 0.0
    with SqliteStore(tmp_path, "os", cleaning) as store:
        store.commit([(b"cold/%d" % i, bytes(200)) for i in range(500)])
        for turn in range(3000):
            store.commit([(b"hot", bytes(turn % 300))])
            found = store.statistics()
            largest = max(largest, found.log_bytes / (2 * found.live_bytes + 10_000))
        assert found.live_keys == 501
        assert 0.9 < largest < 1.25
        assert store._first > 500 * 200 / 2_000  # every row of the cold ones was moved


def test_deletions_leave_the_log_with_the_rows_they_delete(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, "os", EAGER) as store:
        for i in range(50):
            store.commit([(b"%d" % i, b"value")])
        for i in range(50):
            store.commit([(b"%d" % i, None)])
        for _ in range(60):
            store.commit([(b"x", b"y")])
        assert contents(store) == {b"x": b"y"}
        assert store.statistics().rows <= 2
    with SqliteStore(tmp_path, "os", EAGER) as store:
        assert contents(store) == {b"x": b"y"}


def test_a_commit_is_one_row_and_one_that_changes_nothing_is_none(tmp_path: Path) -> None:
    with SqliteStore(tmp_path) as store:
        store.commit([(b"%d" % i, b"v") for i in range(1000)])
        assert store.statistics().rows == 1
        store.commit([])
        store.commit([(b"new", b"1"), (b"new", None), (b"unknown", None)])
        assert store.statistics().rows == 1
        store.commit(iter([(b"0", None), (b"0", b"again")]))
        assert dict(store.items())[b"0"] == b"again"
        store.commit([(b"large", bytes(600_000)), (b"small", b"1"), *((b"1%d" % i, None) for i in range(9))])
        assert store.statistics().rows > 3, "a large commit is several rows"
        assert len(contents(store)) == 1000 + 2 - 9


def test_a_file_that_is_mostly_free_is_made_smaller_at_the_start(tmp_path: Path) -> None:
    cleaning = Cleaning(slack_bytes=10_000, shrink_bytes=1 << 20)
    with SqliteStore(tmp_path, "os", cleaning) as store:
        for i in range(100):
            store.commit([(b"%d" % i, bytes(100_000))])
        for i in range(99):
            store.commit([(b"%d" % i, None)])
        for _ in range(300):
            store.commit([(b"x", b"y")])
    assert store.path.stat().st_size > 8_000_000
    with SqliteStore(tmp_path, "os", cleaning) as store:
        assert contents(store) == {b"99": bytes(100_000), b"x": b"y"}
    assert store.path.stat().st_size < 1_000_000


@given(st.dictionaries(st.binary(max_size=9), st.binary(max_size=40)), st.lists(st.binary(max_size=9)))
def test_rows_come_back_as_they_were_packed(pairs: dict[bytes, bytes], deleted: list[bytes]) -> None:
    assert unpack(pack(pairs, deleted)) == (list(pairs.items()), deleted)
    for part_bytes in (0, 30, 100):
        parts = list(split(pairs, part_bytes))
        assert [pair for part in parts for pair in part.items()] == list(pairs.items())
        assert all(len(part) == 1 or len(pack(part)) <= part_bytes + 8 for part in parts if part)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_row_or_a_value_error(row: bytes) -> None:
    try:
        pairs, deleted = unpack(row)
    except ValueError:
        return
    assert len(row) == 8 + sum(len(k) + len(v) + 8 for k, v in pairs) + sum(len(k) + 4 for k in deleted)


def test_the_settings_of_the_database_are_those_that_durability_needs(tmp_path: Path) -> None:
    for durability, synchronous in (("full", 2), ("os", 1)):
        with SqliteStore(tmp_path / durability, durability) as store:  # type: ignore[arg-type]
            assert store._ask("PRAGMA journal_mode") == "wal"
            assert store._ask("PRAGMA synchronous") == synchronous
            assert store._ask("PRAGMA locking_mode") == "exclusive"
            assert store.durability == durability


def test_open_store_chooses_by_durability(tmp_path: Path) -> None:
    assert isinstance(open_store(None, "memory"), MemoryStore)
    store = open_store(tmp_path, "os")
    assert isinstance(store, SqliteStore)
    assert store.durability == "os"
    store.close()
    store.close()
    with pytest.raises(ConfigurationError, match="'full' needs a folder"):
        open_store(None)
    with pytest.raises(ConfigurationError, match="write one of full, os, memory"):
        open_store(tmp_path, "none")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="write 'full' or 'os'"):
        SqliteStore(tmp_path, "memory")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="live_factor"):
        Cleaning(live_factor=0.5)
    with pytest.raises(ConfigurationError, match="negative"):
        Cleaning(row_bytes=-1)


def test_the_memory_store_is_a_dict_too() -> None:
    store = MemoryStore()
    store.commit([(b"a", b"1"), (b"b", b"22"), (b"a", None), (b"none", None)])
    assert contents(store) == {b"b": b"22"}
    assert store.statistics().live_bytes == 3
    store.close()
    assert contents(store) == {}


# Refusals


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with SqliteStore(tmp_path) as store:
        for i in range(5):
            store.commit([(b"key %d" % i, b"value %d" % i)])
    return tmp_path


OPEN = "import sys; from pathlib import Path; from surecast.broker.store import SqliteStore, StoreError\n"


def opened_elsewhere(folder: Path, before: str = "") -> str:
    """What another process that opens the folder says."""
    code = OPEN + before + "\ntry: SqliteStore(Path(sys.argv[1])); print('opened')\nexcept StoreError as e: print(e)"
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_only_one_broker_uses_a_folder(filled: Path) -> None:
    with SqliteStore(filled) as store:
        assert "another broker is using this folder" in opened_elsewhere(filled)
        with pytest.raises(StoreError, match="another broker is using this folder"):
            SqliteStore(filled)
        store.commit([(b"still", b"works")])
    assert opened_elsewhere(filled) == "opened\n"


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / store_sqlite.FILE_NAME
    file.write_bytes(b"something else entirely" * 100)
    with pytest.raises(StoreError, match="not a Surecast store"):
        SqliteStore(tmp_path)
    assert file.read_bytes() == b"something else entirely" * 100
    file.unlink()
    with sqlite3.connect(file) as foreign:
        foreign.execute("CREATE TABLE recipes (name)")
    foreign.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match="not a Surecast store"):
        SqliteStore(tmp_path)
    assert file.read_bytes() == before


def change(folder: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(folder / store_sqlite.FILE_NAME)
    with connection:
        connection.execute(statement, values)
    connection.close()


def test_a_newer_format_is_refused(filled: Path) -> None:
    change(filled, "PRAGMA user_version = 2")
    with pytest.raises(StoreError, match=r"newer version of Surecast \(format 2, this one reads 1\)"):
        SqliteStore(filled)


def test_a_damaged_row_is_named(filled: Path) -> None:
    change(filled, "UPDATE log SET data = ? WHERE number = 3", pack({b"key 2": b"VALUE 2"}))
    with pytest.raises(StoreError, match="row 3 is damaged: its checksum is wrong"):
        SqliteStore(filled)


def test_a_row_that_is_no_row_is_named(filled: Path) -> None:
    change(filled, "UPDATE log SET data = ?, checksum = ? WHERE number = 3", b"xx" * 9, checksum(3, b"xx" * 9))
    with pytest.raises(StoreError, match="row 3 is damaged: a row shorter than its lengths"):
        SqliteStore(filled)


def test_a_row_in_anothers_place_and_a_missing_row_are_noticed(filled: Path) -> None:
    change(filled, "DELETE FROM log WHERE number = 2")
    with pytest.raises(StoreError, match="row 2 is missing"):
        SqliteStore(filled)
    change(filled, "UPDATE log SET number = 2 WHERE number = 3")
    with pytest.raises(StoreError, match="row 2 is damaged"):
        SqliteStore(filled)


def test_damage_found_while_cleaning_fails_the_commit_and_changes_nothing(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, "os", EAGER) as store:
        store.commit([(b"old", b"1")])
        store._connection.execute("UPDATE log SET checksum = 0")
        for _ in range(2):
            with pytest.raises(StoreError, match="row 1 is damaged"):
                store.commit([(b"new", b"2")])
        assert store.statistics().live_keys == 1
        assert not store._connection.in_transaction


def test_a_damaged_file_is_said_to_be_damaged(filled: Path) -> None:
    file = filled / store_sqlite.FILE_NAME
    data = bytearray(file.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    file.write_bytes(data)
    with pytest.raises(StoreError, match="the file is damaged; restore"):
        SqliteStore(filled)


def test_folders_that_cannot_be_used(filled: Path) -> None:
    with pytest.raises(StoreError, match="a file, not a folder"):
        SqliteStore(filled / store_sqlite.FILE_NAME)
    with pytest.raises(StoreError, match="cannot be made"):
        SqliteStore(filled / store_sqlite.FILE_NAME / "below")
    (filled / "taken" / store_sqlite.FILE_NAME).mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(filled / "taken")


def test_a_folder_without_permission_to_write() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "read only"
        with SqliteStore(folder):
            pass
        Path(name).chmod(0o755)
        (folder / store_sqlite.FILE_NAME).chmod(0o444)
        folder.chmod(0o555)
        lower = "import os\nif os.geteuid() == 0: os.setuid(65534)"  # the superuser may write everywhere
        assert "change the owner or the permissions" in opened_elsewhere(folder, lower)
        (folder / store_sqlite.FILE_NAME).unlink()
        assert "change the owner or the permissions" in opened_elsewhere(folder, lower)
        folder.chmod(0o755)


def test_a_full_file_fails_the_commit_and_the_next_works(tmp_path: Path) -> None:
    model: dict[bytes, bytes] = {}
    with SqliteStore(tmp_path, "full", Cleaning(slack_bytes=1000)) as store:
        store._ask("PRAGMA max_page_count = 30")
        refused = 0
        for i in range(60):
            operations: list[Operation] = [(b"%d" % i, os.urandom(5000))]
            try:
                store.commit(operations)
            except StoreError as error:
                assert "the disk is full" in str(error)
                refused += 1
                store.commit([(b"%d" % (i - 1 - refused), None)])
                model.pop(b"%d" % (i - 1 - refused), None)
            else:
                apply(model, operations)
            assert contents(store) == model
            check_size(store, model)
        assert refused > 5
        store._ask("PRAGMA max_page_count = 3000")
        store.commit([(b"room", b"again")])
        model[b"room"] = b"again"
    with SqliteStore(tmp_path) as store:
        assert contents(store) == model
