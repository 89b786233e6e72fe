"""The store of a replica: what returned is there, what was cut off is not, and damage is never passed over."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from surecast.broker.replica.segment_file import ENTRY_BYTES, HEAD_BYTES, entry_head, scan
from surecast.broker.replica.segment_store import SegmentStore
from surecast.broker.store import Operation, StoreError

# A child that commits for ever; commit n follows from n, and it says n when the commit has returned.
WRITER = """
import os, random, sys
from pathlib import Path
from surecast.broker.replica.segment_store import SegmentStore

store = SegmentStore(Path(sys.argv[1]), sys.argv[2], segment_bytes=20_000, slack_bytes=40_000)
for n in range(int(sys.argv[3]), 1_000_000):
    draw = random.Random(n)
    changes = [(b"k%d" % draw.randrange(50), draw.choice([None, draw.randbytes(200)])) for _ in range(20)]
    store.commit([(b"last", b"%d" % n), *changes])
    os.write(1, b"%d\\n" % n)
"""


def operations_of(n: int) -> list[Operation]:
    draw = random.Random(n)
    changes = [(b"k%d" % draw.randrange(50), draw.choice([None, draw.randbytes(200)])) for _ in range(20)]
    return [(b"last", b"%d" % n), *changes]


def apply(model: dict[bytes, bytes], operations: list[Operation]) -> None:
    for key, value in operations:
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value


def small(folder: Path) -> SegmentStore:
    return SegmentStore(folder, "os", segment_bytes=5_000, slack_bytes=10_000)


def last_file(folder: Path) -> Path:
    return max(folder.glob("paxos-*.log"))


def test_it_is_a_map_over_many_files_and_starts(tmp_path: Path) -> None:
    model: dict[bytes, bytes] = {}
    most = 0
    for start in range(6):
        with small(tmp_path) as store:
            assert dict(store.items()) == model
            for n in range(start * 60, start * 60 + 60):
                store.commit(operations_of(n))
                apply(model, operations_of(n))
                most = max(most, store.statistics().log_bytes)
            assert dict(store.items()) == model
            live = sum(len(key) + len(value) + 8 for key, value in model.items())
            assert store.statistics().live_bytes == live
    assert most < 2 * 50 * 220 + 10_000 + 2 * 5_000 + 20_000  # old files go: garbage does not pile up
    assert min(tmp_path.glob("paxos-*.log")).name > "paxos-0000000005.log"


def test_a_commit_cut_off_at_any_byte_is_not_there_and_those_before_are(tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    with SegmentStore(folder) as store:
        store.commit([(b"a", b"1"), (b"b", b"2")])
        before = last_file(folder).stat().st_size
        store.commit([(b"a", b"3"), (b"c", b"4" * 30), (b"b", None)])
    whole = last_file(folder).read_bytes()
    for size in range(before, len(whole) + 1):
        copy = tmp_path / "cut"
        shutil.copytree(folder, copy)
        last_file(copy).write_bytes(whole[:size])
        expected = {b"a": b"3", b"c": b"4" * 30} if size == len(whole) else {b"a": b"1", b"b": b"2"}
        with SegmentStore(copy) as store:
            assert dict(store.items()) == expected
            assert store.cut_bytes == (0 if size == len(whole) else size - before)
            store.commit([(b"d", b"5")])
        with SegmentStore(copy) as store:
            assert dict(store.items()) == {**expected, b"d": b"5"}
        shutil.rmtree(copy)


def test_a_torn_commit_of_zeros_or_noise_is_cut_away(tmp_path: Path) -> None:
    for tail in (bytes(500), random.Random(1).randbytes(500), b"\xa5SE\x5a" + bytes(100)):
        with SegmentStore(tmp_path / "s") as store:
            store.commit([(b"a", b"1")])
        with last_file(tmp_path / "s").open("ab") as file:
            file.write(tail)
        with SegmentStore(tmp_path / "s") as store:
            assert dict(store.items()) == {b"a": b"1"}
            assert store.cut_bytes == len(tail)


def test_a_file_that_was_just_being_made_is_no_damage(tmp_path: Path) -> None:
    for size in range(60):
        (tmp_path / "spare-0000000001.log").write_bytes(bytes(size))
        with small(tmp_path) as store:
            store.commit([(b"a", b"%d" % size)])
        with small(tmp_path) as store:
            assert dict(store.items()) == {b"a": b"%d" % size}


def test_files_that_left_the_log_are_used_again(tmp_path: Path) -> None:
    model: dict[bytes, bytes] = {}
    used: set[int] = set()
    folder = tmp_path / "store"
    with small(folder) as store:
        for n in range(600):
            store.commit(operations_of(n))
            apply(model, operations_of(n))
            used |= {path.stat().st_ino for path in folder.glob("*.log")}
        assert last_file(folder).name > "paxos-0000000100.log"
        assert len(used) < 20
        assert last_file(folder).stat().st_size > 5_000  # what was there before is still there
        crashed = shutil.copytree(folder, tmp_path / "crashed")
    with small(crashed) as store:
        assert store.cut_bytes == 0
        assert dict(store.items()) == model
        store.commit([(b"more", b"1")])
    with small(crashed) as store:
        assert dict(store.items()) == {**model, b"more": b"1"}


def over_old_content(folder: Path) -> tuple[Path, int, bytes, dict[bytes, bytes], list[Operation]]:
    """A store whose last commit was written over old content.

    Its folder, where in the last file that commit begins, what the file held before, the state before, the commit.
    """
    with small(folder) as store:
        for n in range(300):
            store.commit(operations_of(n))
            end = store._segments[max(store._segments)].bytes
            files = sorted(folder.glob("*.log"))
            old, state = last_file(folder).read_bytes(), dict(store.items())
            store.commit(operations_of(n + 1))
            if n > 200 and sorted(folder.glob("*.log")) == files and len(old) > end + 3_000:
                break
        else:
            pytest.fail("no file was used again")
        copy = shutil.copytree(folder, folder.parent / "copy")  # as a crash leaves it
    return copy, end, old, state, operations_of(n + 1)


def test_a_commit_torn_over_old_content_is_cut_away(tmp_path: Path) -> None:
    folder, end, old, state, commit = over_old_content(tmp_path / "store")
    whole = last_file(folder).read_bytes()
    size = ENTRY_BYTES + int.from_bytes(whole[end + 4 : end + 8], "big")
    for kept in (1, 15, 16, 21, size // 2, size - 1):
        last_file(folder).write_bytes(whole[: end + kept] + old[end + kept :])
        copy = shutil.copytree(folder, tmp_path / f"torn{kept}")
        with small(copy) as store:
            assert dict(store.items()) == state
            assert store.cut_bytes == (size if kept > 15 else 0)
            store.commit(commit)
            after = dict(store.items())
        with small(copy) as store:
            assert dict(store.items()) == after


def test_a_commit_of_which_the_disk_has_some_sectors_is_there_or_not(tmp_path: Path) -> None:
    """A disk may write the sectors of an unconfirmed commit in any order, and lose power in between."""
    folder, _, old, before, commit = over_old_content(tmp_path / "store")
    whole = last_file(folder).read_bytes()
    after = dict(before)
    apply(after, commit)
    changed = [at for at in range(0, len(whole), 64) if whole[at : at + 64] != old[at : at + 64]]
    draw, seen = random.Random(3), set[bool]()
    for turn in range(60):
        written = set(changed) if turn == 0 else set(draw.sample(changed, draw.randrange(len(changed))))
        parts = [(whole if at in written else old)[at : at + 64] for at in range(0, len(whole), 64)]
        copy = shutil.copytree(folder, tmp_path / f"power{turn}")
        last_file(copy).write_bytes(b"".join(parts))
        with small(copy) as store:
            found = dict(store.items())
        assert found in (before, after)
        seen.add(found == after)
    assert seen == {False, True}


def test_the_end_of_a_file_is_missed_though_the_next_one_is_empty(tmp_path: Path) -> None:
    with small(tmp_path) as store:
        store.commit([(b"a", bytes(3_000))])
        store.commit([(b"b", bytes(3_000))])
        os.close(store._begin(2).file)
    file = tmp_path / "paxos-0000000001.log"
    whole = file.read_bytes()
    for cut in (whole[:-1], whole[:-3_030], whole[:3_100] + bytes(len(whole) - 3_100)):
        file.write_bytes(cut)
        with pytest.raises(StoreError, match=r"damaged at byte|commit 2 is missing"):
            small(tmp_path)


def test_a_beginning_that_is_gone_is_missed(tmp_path: Path) -> None:
    with small(tmp_path) as store:
        for n in range(6):
            store.commit([(b"k%d" % n, bytes(3_000))])
    first, second, *_ = sorted(tmp_path.glob("paxos-*.log"))
    first.write_bytes(first.read_bytes()[:HEAD_BYTES])
    with pytest.raises(StoreError, match=f"{second.name}: commit 1 is missing"):
        small(tmp_path)


def test_what_a_client_sends_does_not_make_opening_slow(tmp_path: Path) -> None:
    """Old content is searched for whole commits: payloads that look like beginnings of some must not count."""
    fake = b"\xa5SE\x5a" + (1 << 22).to_bytes(4, "big") + bytes(8)
    folder = tmp_path / "store"
    with SegmentStore(folder, "os", segment_bytes=1 << 20, slack_bytes=1 << 20) as store:
        for n in range(40):
            store.commit([(b"k", fake * 8_000), (b"last", b"%d" % n)])
        crashed = shutil.copytree(folder, tmp_path / "crashed")
    data = last_file(crashed).read_bytes()
    found = scan(data)
    assert found is not None
    assert not found.follows
    assert fake in data[found.end :]
    assert data.count(entry_head(0, found.head.salt, b"", [])[:4]) == len(found.entries)  # all that is looked at


def test_a_store_of_another_version_is_named(tmp_path: Path) -> None:
    with small(tmp_path) as store:
        store.commit([(b"a", b"1")])
    whole = last_file(tmp_path).read_bytes()
    last_file(tmp_path).write_bytes(whole[:7] + b"\x01" + whole[8:])
    with pytest.raises(StoreError, match="format 1, of another version"):
        small(tmp_path)


def test_damage_before_the_end_is_refused(tmp_path: Path) -> None:
    with small(tmp_path) as store:
        for n in range(30):
            store.commit(operations_of(n))
    files = sorted(tmp_path.glob("paxos-*.log"))
    assert len(files) > 2
    for file, at in ((files[0], 40), (files[1], 3_000)):
        whole = file.read_bytes()
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StoreError, match="damaged at byte"):
            small(tmp_path)
        file.write_bytes(whole)
    files[1].unlink()
    with pytest.raises(StoreError, match=r"commit \d+ is missing"):
        small(tmp_path)


def test_damage_in_the_last_file_is_refused_where_a_whole_commit_follows(tmp_path: Path) -> None:
    with SegmentStore(tmp_path) as store:
        for n in range(3):
            store.commit(operations_of(n))
    whole = last_file(tmp_path).read_bytes()
    for at in range(24, len(whole) * 2 // 3, 97):
        last_file(tmp_path).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StoreError, match="damaged at byte"):
            SegmentStore(tmp_path)


@pytest.mark.parametrize("durability", ["full", "os"])
def test_killed_in_the_middle_everything_that_returned_is_there(tmp_path: Path, durability: str) -> None:
    draw = random.Random(5)
    done = 0
    for _ in range(2):
        command = [sys.executable, "-c", WRITER, str(tmp_path), durability, str(done)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        enough = done + draw.randrange(50, 300)
        for line in child.stdout:
            if int(line) >= enough:
                child.send_signal(signal.SIGKILL)
                break
        said = [int(line) for line in child.stdout.read().split()]
        child.wait()
        child.stdout.close()
        returned = max([enough, *said]) + 1
        with SegmentStore(tmp_path, "os") as store:
            found = dict(store.items())
        done = int(found[b"last"]) + 1
        assert done in (returned, returned + 1)  # the commit that was killed may be there, but then whole
        model: dict[bytes, bytes] = {}
        for n in range(done):
            apply(model, operations_of(n))
        assert found == model


def test_a_disk_without_room_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SegmentStore(tmp_path) as store:
        store.commit([(b"a", b"1")])
        real = os.pwritev

        def half(file: int, parts: list[bytes], at: int) -> int:
            real(file, [b"".join(parts)[:10]], at)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "pwritev", half)
        with pytest.raises(StoreError, match="No space left"):
            store.commit([(b"b", b"2")])
        monkeypatch.setattr(os, "pwritev", real)
        store.commit([(b"c", b"3")])
    with SegmentStore(tmp_path) as store:
        assert dict(store.items()) == {b"a": b"1", b"c": b"3"}


def test_after_a_disk_that_did_not_confirm_nothing_more_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: int) -> None:
        raise OSError(5, "Input/output error")

    with SegmentStore(tmp_path) as store:
        store.commit([(b"a", b"1")])
        monkeypatch.setattr(os, "fdatasync", refuse)
        for _ in range(2):
            with pytest.raises(StoreError, match="did not confirm"):
                store.commit([(b"b", b"2")])


def test_only_one_process_at_a_time(tmp_path: Path) -> None:
    with SegmentStore(tmp_path), pytest.raises(StoreError, match="another process"):
        SegmentStore(tmp_path)


def test_written_without_sync_it_does_not_open_after_the_machine_started_anew(tmp_path: Path) -> None:
    with SegmentStore(tmp_path, "os") as store:
        store.commit([(b"a", b"1")])
        boot = (tmp_path / "unsynced").read_text()
    assert not (tmp_path / "unsynced").exists()  # closed in order
    (tmp_path / "unsynced").write_text("another start" + boot)
    with pytest.raises(StoreError, match="lost promises"):
        SegmentStore(tmp_path, "full")
    (tmp_path / "unsynced").write_text(boot)  # the process was killed, and the machine went on
    with SegmentStore(tmp_path, "full") as store:
        assert dict(store.items()) == {b"a": b"1"}
