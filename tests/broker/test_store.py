"""The store keeps what it promised: against a plain dict, through reopening, cleaning and every kind of refusal."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.patience import PATIENCE_S

from surecast.broker import segment_clean
from surecast.broker import store as store_module
from surecast.broker.segment_file import scan
from surecast.broker.store import (
    DamagedError,
    MemoryStore,
    Operation,
    SegmentStore,
    Store,
    StoreError,
    open_store,
)
from surecast.broker.store_salvage import salvage
from surecast.errors import ConfigurationError
from surecast.protocol.rows import pack, unpack

EAGER = (200, 0)  # the bytes of a file, and how much garbage is left alone
TIGHT = (2_000, 1_000)
LAZY = (4 << 20, 8 << 20)


def opened(folder: Path, sizes: tuple[int, int] = LAZY) -> SegmentStore:
    return SegmentStore(folder, "os", *sizes, may_lose=True)


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


def check_size(store: SegmentStore, model: dict[bytes, bytes]) -> None:
    """The accounts of the store against a count of what is there."""
    found = store.statistics()
    assert found.live_keys == len(model)
    assert found.live_bytes == sum(len(k) + len(v) + 8 for k, v in model.items())


keys = st.binary(max_size=2)
operation = st.tuples(keys, st.none() | st.binary(max_size=60))
step = st.just("reopen") | st.lists(operation, max_size=12)


@settings(max_examples=40)
@given(st.lists(step, max_size=30), st.sampled_from([EAGER, TIGHT, LAZY]))
def test_it_is_a_dict_whatever_happens(steps: list[str | list[Operation]], sizes: tuple[int, int]) -> None:
    model: dict[bytes, bytes] = {}
    with tempfile.TemporaryDirectory() as name:
        store = opened(Path(name), sizes)
        for each in steps:
            if isinstance(each, str):
                store.close()
                store = opened(Path(name), sizes)
            else:
                store.commit(each)
                apply(model, each)
            assert contents(store) == model
            check_size(store, model)
        store.close()


@pytest.mark.parametrize("keys_max", [0, 1000], ids=["by entries", "by index"])
@pytest.mark.parametrize("sizes", [TIGHT, LAZY], ids=["tight", "lazy"])
def test_a_long_life_with_old_and_short_lived_keys(
    tmp_path: Path, sizes: tuple[int, int], keys_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some keys are written once and stay at the bottom of the log; queues come and go above them."""
    monkeypatch.setattr(segment_clean, "_INDEX_MAX", keys_max)
    draw = random.Random(7)
    model: dict[bytes, bytes] = {}
    store = opened(tmp_path, sizes)
    for turn in range(1000):
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
            store = opened(tmp_path, sizes)
            assert contents(store) == model
    assert contents(store) == model
    check_size(store, model)
    found = store.statistics()
    store.sync()
    store.commit([(b"more", b"1")])
    assert sizes is not TIGHT or store.statistics().log_bytes < 2 * found.live_bytes + 3 * sum(TIGHT)
    store.close()


def test_the_log_stays_within_its_limit_in_the_worst_case(tmp_path: Path) -> None:
    """Half of the log is old and live, and everything new is dead at once: all that is old has to be moved."""
    most = 0
    with SegmentStore(tmp_path, "os", 20_000, 10_000) as store:
        for n in range(0, 500, 50):
            store.commit([(b"cold/%d" % i, bytes(200)) for i in range(n, n + 50)])
        before = dict(store._index)
        for turn in range(3000):
            store.commit([(b"hot", bytes(turn % 300))])
            most = max(most, store.statistics().log_bytes)
        found = store.statistics()
        assert found.live_keys == 501
        assert most < 2 * found.live_bytes + 10_000 + 3 * 20_000, most
        assert all(store._index[key] != before[key] for key in before)  # all of the cold ones were moved


def test_deletions_leave_the_log_with_the_files_of_what_they_delete(tmp_path: Path) -> None:
    with SegmentStore(tmp_path, "os", *EAGER) as store:
        for i in range(50):
            store.commit([(b"%d" % i, b"value")])
        for i in range(50):
            store.commit([(b"%d" % i, None)])
        for _ in range(60):
            store.commit([(b"x", b"y")])
        assert contents(store) == {b"x": b"y"}
        assert store.statistics().rows <= 2
    with SegmentStore(tmp_path, "os", *EAGER) as store:
        assert contents(store) == {b"x": b"y"}


def test_a_commit_that_changes_nothing_is_none(tmp_path: Path) -> None:
    with SegmentStore(tmp_path) as store:
        store.commit([(b"%d" % i, b"v") for i in range(1000)])
        store.commit([])
        store.commit([(b"new", b"1"), (b"new", None), (b"unknown", None)])
        assert store.statistics().commits == 1
        store.commit(iter([(b"0", None), (b"0", b"again")]))
        assert dict(store.items())[b"0"] == b"again"
        assert store.statistics().commits == 2


def test_the_folder_of_an_overwritten_store_stays_small(tmp_path: Path) -> None:
    with closing(open_store(tmp_path, "os")) as store:
        for n in range(3_000):
            store.commit([(b"%d" % (i * n % 200), bytes(500)) for i in range(40)])
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 48 << 20  # 60 MB were written


@given(st.dictionaries(st.binary(max_size=9), st.binary(max_size=40)), st.lists(st.binary(max_size=9)))
def test_rows_come_back_as_they_were_packed(pairs: dict[bytes, bytes], deleted: list[bytes]) -> None:
    assert unpack(pack(pairs, deleted)) == (list(pairs.items()), deleted)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_row_or_a_value_error(row: bytes) -> None:
    try:
        pairs, deleted = unpack(row)
    except ValueError:
        return
    assert len(row) == 8 + sum(len(k) + len(v) + 8 for k, v in pairs) + sum(len(k) + 4 for k in deleted)


def test_open_store_chooses_by_durability(tmp_path: Path) -> None:
    assert isinstance(open_store(None, "memory"), MemoryStore)
    store = open_store(tmp_path, "os")
    assert isinstance(store, SegmentStore)
    assert store.durability == "os"
    store.close()
    store.close()
    with pytest.raises(ConfigurationError, match="'full' needs a folder"):
        open_store(None)
    with pytest.raises(ConfigurationError, match="write one of full, os, memory"):
        open_store(tmp_path, "none")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="write 'full' or 'os'"):
        SegmentStore(tmp_path, "memory")  # type: ignore[arg-type]


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
    with SegmentStore(tmp_path) as store:
        for i in range(5):
            store.commit([(b"key %d" % i, b"value %d" % i)])
    return tmp_path


OPEN = "import sys; from pathlib import Path; from surecast.broker.store import StoreError, open_store\n"


def opened_elsewhere(folder: Path, before: str = "") -> str:
    """What another process that opens the folder says."""
    code = OPEN + before + "\ntry: open_store(Path(sys.argv[1])); print('opened')\nexcept StoreError as e: print(e)"
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout


def test_only_one_broker_uses_a_folder(filled: Path) -> None:
    with SegmentStore(filled) as store:
        assert "another broker is using this folder" in opened_elsewhere(filled)
        with pytest.raises(StoreError, match="another broker is using this folder"):
            SegmentStore(filled)
        store.commit([(b"still", b"works")])
    assert opened_elsewhere(filled) == "opened\n"


def test_the_state_of_an_earlier_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "broker.db").write_bytes(b"SQLite format 3\0")
    with pytest.raises(StoreError, match=r"broker.db: the state of an earlier version of surecast.*move it away"):
        open_store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["broker.db"]


@pytest.mark.parametrize("keys_max", [0, 1000], ids=["by entries", "by index"])
def test_damage_found_while_cleaning_fails_the_commit_and_changes_nothing(
    tmp_path: Path, keys_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_clean, "_INDEX_MAX", keys_max)
    with SegmentStore(tmp_path, "os", *EAGER) as store:
        store.commit([(b"old", bytes(300))])
        file = min(tmp_path.glob("segment-*.log"))
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + b"x")
        for _ in range(3):
            store.commit([(b"new", bytes(300))])
        for _ in range(2):
            with pytest.raises(
                StoreError, match=rf"{file.name}: damaged at byte .*(not what was written|so no more).*; restore"
            ):
                store.commit([(b"newer", b"1")])
        assert store.statistics().live_keys == 2
        file.write_bytes(whole)
        store.commit([(b"newer", b"1")])
        assert contents(store).keys() == {b"old", b"new", b"newer"}


def test_folders_that_cannot_be_used(filled: Path) -> None:
    with pytest.raises(StoreError, match="a file, not a folder"):
        SegmentStore(filled / "mark")
    with pytest.raises(StoreError, match="mark"):
        SegmentStore(filled / "mark" / "below")


def test_a_folder_without_permission_to_write() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "read only"
        with SegmentStore(folder):
            pass
        Path(name).chmod(0o755)
        folder.chmod(0o555)
        lower = "import os\nif os.geteuid() == 0: os.setuid(65534)"  # the superuser may write everywhere
        assert "change the owner or the permissions" in opened_elsewhere(folder, lower)
        folder.chmod(0o755)


def test_a_value_that_changed_on_the_disk_is_not_given_out(filled: Path) -> None:
    with SegmentStore(filled) as store:
        file = filled / "segment-0000000001.log"
        at = file.read_bytes().index(b"value 3")
        with file.open("r+b") as opened_file:
            opened_file.seek(at)
            opened_file.write(b"V")
        with pytest.raises(DamagedError, match=f"{file.name}: damaged at byte {at}: a value is not what was written"):
            contents(store)


# Salvage


def test_what_stands_before_the_damage_is_salvaged_and_nothing_is_deleted(filled: Path) -> None:
    file = filled / "segment-0000000001.log"
    whole = file.read_bytes()
    at = whole.index(b"value 3")
    file.write_bytes(whole[:at] + b"V" + whole[at + 1 :])
    with pytest.raises(DamagedError, match="surecast broker salvage"):
        open_store(filled)
    found = salvage(filled)
    assert (found.kept_commit, found.last_commit, found.pairs) == (3, 5, 3)
    assert "commit 4 is not whole, commit 5 is" in found.reason
    assert found.aside is not None
    assert (found.aside / file.name).read_bytes() == whole[:at] + b"V" + whole[at + 1 :]
    with SegmentStore(filled) as store:
        assert contents(store) == {b"key %d" % i: b"value %d" % i for i in range(3)}
    again = salvage(filled)
    assert (again.reason, again.pairs, again.aside) == ("", 3, None)
    with pytest.raises(StoreError, match="there is no store in this folder"):
        salvage(filled.parent / "elsewhere")


def test_pairs_that_cleaning_moved_past_the_damage_are_salvaged(tmp_path: Path) -> None:
    with SegmentStore(tmp_path, "os", 5_000, 10_000) as store:
        store.commit([(b"cold %d" % i, bytes(100)) for i in range(40)])
        for n in range(400):
            store.commit([(b"hot", b"%d" % n), (b"filler", bytes(200))])
    files = sorted(tmp_path.glob("segment-*.log"))
    assert files[0].name > "segment-0000000002.log"
    data = bytearray(files[0].read_bytes())
    log = scan(bytes(data))
    assert log is not None
    data[log.end - 1] ^= 1
    files[0].write_bytes(data)
    found = salvage(tmp_path)
    with SegmentStore(tmp_path) as store:
        pairs = contents(store)
    assert pairs[b"hot"] == b"%d" % (found.kept_commit - 2)
    assert found.last_commit == 401
    assert sum(key.startswith(b"cold") for key in pairs) >= 40 - found.moved
    assert found.moved
    assert sum(key.startswith(b"cold") for key in pairs) == 40


def test_a_store_whose_mark_or_beginning_is_lost_is_salvaged(filled: Path) -> None:
    (filled / "mark").unlink()
    assert salvage(filled).pairs == 5
    with SegmentStore(filled) as store:
        assert len(contents(store)) == 5
    file = filled / "segment-0000000001.log"
    file.write_bytes(b"")
    found = salvage(filled)
    assert (found.kept_commit, found.pairs, found.last_commit) == (0, 0, 1)


WAITS_FOR_THE_DISK = {
    "broker/event_log.py": "the event log, where it is asked to",
    "broker/private.py": "files that are written once",
    "broker/replica/snapshot_files.py": "snapshots, which a child process writes and syncs",
    "broker/segment_mark.py": "the store",
    "broker/segment_store.py": "the store",
    "pipeline/spool.py": "messages of a subscription, which are acknowledged then",
    "report/report_files.py": "files that are written once",
}


def test_there_is_one_append_only_store() -> None:
    """Brokers and replicas keep their state in a SegmentStore. Who waits for the disk somewhere else has a reason."""
    source = Path(store_module.__file__).parents[1]
    waiting = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\bos\.f(data)?sync\(", path.read_text(encoding="utf-8"))
    }
    assert waiting == set(WAITS_FOR_THE_DISK)
