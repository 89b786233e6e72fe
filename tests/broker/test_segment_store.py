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

from surecast.broker import segment_mark
from surecast.broker.segment_file import ENTRY_BYTES, HEAD_BYTES, entry_head, scan
from surecast.broker.segment_load import LogReader
from surecast.broker.segment_store import SegmentStore
from surecast.broker.store import Operation, StoreError
from surecast.broker.store_base import DamagedError

# A child that commits for ever; commit n follows from n, and it says n when the commit has returned.
WRITER = """
import os, random, sys
from pathlib import Path
from surecast.broker.segment_store import SegmentStore

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
    return max(folder.glob("segment-*.log"))


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
    assert min(tmp_path.glob("segment-*.log")).name > "segment-0000000005.log"


def test_a_commit_cut_off_at_any_byte_is_not_there_and_those_before_are(tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    with SegmentStore(folder) as store:
        store.commit([(b"a", b"1"), (b"b", b"2")])
        before = last_file(folder).stat().st_size
        mark = (folder / "mark").read_bytes()  # as it is while the next commit is under way
        store.commit([(b"a", b"3"), (b"c", b"4" * 30), (b"b", None)])
    whole = last_file(folder).read_bytes()
    (folder / "mark").write_bytes(mark)
    for size in (*range(before, len(whole), 5), len(whole) - 1, len(whole)):
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
    for size in range(0, 60, 6):
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
        assert last_file(folder).name > "segment-0000000100.log"
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
            mark = (folder / "mark").read_bytes()
            store.commit(operations_of(n + 1))
            if n > 200 and sorted(folder.glob("*.log")) == files and len(old) > end + 3_000:
                break
        else:
            pytest.fail("no file was used again")
        copy = shutil.copytree(folder, folder.parent / "copy")  # as a crash leaves it
        (copy / "mark").write_bytes(mark)
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
    for turn in range(30):
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
    file = tmp_path / "segment-0000000001.log"
    whole = file.read_bytes()
    for cut in (whole[:-1], whole[:-3_030], whole[:3_100] + bytes(len(whole) - 3_100)):
        file.write_bytes(cut)
        with pytest.raises(StoreError, match=r"damaged at byte|commit 2 is missing"):
            small(tmp_path)


def test_a_beginning_that_is_gone_is_missed(tmp_path: Path) -> None:
    with small(tmp_path) as store:
        for n in range(6):
            store.commit([(b"k%d" % n, bytes(3_000))])
    first, second, *_ = sorted(tmp_path.glob("segment-*.log"))
    first.write_bytes(first.read_bytes()[:HEAD_BYTES])
    with pytest.raises(
        StoreError, match=f"{first.name}: damaged at byte {HEAD_BYTES}: commit 1 is missing; {second.name}"
    ):
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
    assert data.count(entry_head(0, 0, 0, found.head.salt, b"", 0, [])[:4]) == len(
        found.entries
    )  # all that is looked at


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
    files = sorted(tmp_path.glob("segment-*.log"))
    assert len(files) > 2
    for file, at in ((files[0], 40), (files[1], 3_000)):
        whole = file.read_bytes()
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StoreError, match="damaged at byte"):
            small(tmp_path)
        file.write_bytes(whole)
    files[1].unlink()
    with pytest.raises(StoreError, match=rf"{files[1].name}: damaged at byte 0: the file is missing, with commit \d+"):
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
        with pytest.raises(StoreError, match="the disk is full"):
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
    with SegmentStore(tmp_path), pytest.raises(StoreError, match="another broker"):
        SegmentStore(tmp_path)


class Boot:
    """Stands in for the identity of this start of the machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.number = 1
        monkeypatch.setattr(segment_mark, "_boot", lambda: (self.number, self.number))


def crashed(store: SegmentStore, copy: Path) -> Path:
    """A copy of the folder as it is while the store is open."""
    return Path(shutil.copytree(store.folder, copy))


def test_written_without_sync_it_does_not_open_after_the_machine_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = Boot(monkeypatch)
    with SegmentStore(tmp_path / "store", "os") as store:
        store.commit([(b"a", b"1")])
        killed = crashed(store, tmp_path / "killed")
    boot.number += 1
    with pytest.raises(StoreError, match="lost promises"):
        SegmentStore(killed, "full")
    with SegmentStore(tmp_path / "store", "full") as store:  # closed in order
        assert dict(store.items()) == {b"a": b"1"}
        assert not store.doubt
    boot.number -= 1
    with SegmentStore(killed, "full") as store:  # the process was killed, and the machine went on
        assert dict(store.items()) == {b"a": b"1"}
        assert not store.doubt


# Damage is told from the end of a crash


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The folder of a store of several files whose process was killed after 40 commits."""
    with SegmentStore(tmp_path / "store", "full", 5_000, 10_000) as store:
        for n in range(40):
            store.commit(operations_of(n))
        return crashed(store, tmp_path / "killed")


def refused(folder: Path) -> str:
    """Returns why a store does not open."""
    with pytest.raises(DamagedError) as caught:
        SegmentStore(folder, remedy="call for help")
    assert str(caught.value).endswith("; call for help")
    return str(caught.value).removeprefix(f"{folder}/")


def test_a_file_cut_anywhere_is_told_from_a_commit_that_was_cut_off(killed: Path) -> None:
    files = sorted(killed.glob("segment-*.log"))
    for file in (files[0], files[1], files[-1]):
        whole = file.read_bytes()
        found = scan(whole)
        assert found is not None
        for size in {0, 10, HEAD_BYTES, *range(HEAD_BYTES + 7, found.end, 211), found.end - 1}:
            file.write_bytes(whole[:size])
            assert refused(killed).startswith(f"{file.name}: damaged at byte ")
        file.write_bytes(whole)
    with SegmentStore(killed) as store:
        assert dict(store.items())[b"last"] == b"39"
        assert not store.doubt


def test_every_flipped_bit_is_told(killed: Path) -> None:
    draw = random.Random(11)
    for file in killed.glob("segment-*.log"):
        whole = file.read_bytes()
        found = scan(whole)
        assert found is not None
        for at in (*range(0, HEAD_BYTES, 5), *draw.sample(range(HEAD_BYTES, found.end), 20), found.end - 1):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
            with pytest.raises(StoreError, match=rf"{file.name}: (damaged at byte|it has format)"):
                SegmentStore(killed)
        file.write_bytes(whole)


def test_files_that_are_missing_are_named(killed: Path) -> None:
    files = sorted(killed.glob("segment-*.log"))
    assert len(files) > 3
    for at, said in (
        (0, f"{files[0].name}: damaged at byte 0: the file is missing; {files[1].name} is not the beginning"),
        (1, f"{files[1].name}: damaged at byte 0: the file is missing, with commit "),
        (-1, f"{files[-2].name}: damaged at byte "),
    ):
        whole = files[at].read_bytes()
        files[at].unlink()
        assert refused(killed).startswith(said)
        files[at].write_bytes(whole)
    mark = (killed / "mark").read_bytes()
    (killed / "mark").unlink()
    assert refused(killed).startswith("mark: damaged at byte 0: the file is missing, though segment-")
    (killed / "mark").write_bytes(mark)
    for file in files:
        file.unlink()
    assert refused(killed).startswith("mark: damaged at byte 0: the log is gone, but commit 40 was confirmed")


def test_files_of_another_store_under_another_name_or_set_back_are_named(tmp_path: Path) -> None:
    stores = [SegmentStore(tmp_path / name, "full", 5_000, 10_000) for name in ("one", "two")]
    for n in range(20):
        before = last_file(tmp_path / "one") if n else Path()
        content = before.read_bytes() if n else b""
        for store in stores:
            store.commit(operations_of(n))
        if n > 12 and last_file(tmp_path / "one") == before:
            older = before.name, content
    for store in stores:
        store.close()
    file = last_file(tmp_path / "one")
    whole = file.read_bytes()
    file.write_bytes((tmp_path / "two" / file.name).read_bytes())
    assert "damaged at byte 0: it belongs to another store" in refused(tmp_path / "one")
    first = min((tmp_path / "one").glob("segment-*.log"))
    file.write_bytes(first.read_bytes())
    assert f"is file {int(first.stem[8:])} of the store under another name" in refused(tmp_path / "one")
    file.write_bytes(whole)
    kept = (tmp_path / "one" / older[0]).read_bytes()
    (tmp_path / "one" / older[0]).write_bytes(older[1])
    assert refused(tmp_path / "one").startswith(older[0])
    (tmp_path / "one" / older[0]).write_bytes(kept)
    mark = (tmp_path / "one" / "mark").read_bytes()
    (tmp_path / "one" / "mark").write_bytes((tmp_path / "two" / "mark").read_bytes())
    assert "it belongs to another store" in refused(tmp_path / "one")
    (tmp_path / "one" / "mark").write_bytes(mark)
    with SegmentStore(tmp_path / "one") as store:
        assert dict(store.items())[b"last"] == b"19"


def test_a_damaged_mark_is_refused_or_leaves_the_last_commit_in_doubt(killed: Path) -> None:
    mark = (killed / "mark").read_bytes()
    for at in (0, 4, 9, 17, 64, 72, 80, 88, 96, 104, 128, 144, 152):
        (killed / "mark").write_bytes(mark[:at] + bytes([mark[at] ^ 4]) + mark[at + 1 :])
        copy = Path(shutil.copytree(killed, killed.parent / f"mark{at}"))
        if at < 20:
            with pytest.raises(StoreError, match=r"mark: (damaged|it has format)"):
                SegmentStore(copy)
        else:
            with SegmentStore(copy) as store:
                assert dict(store.items())[b"last"] == b"39"
    (killed / "mark").write_bytes(mark[:100])
    assert refused(killed).startswith("mark: damaged at byte 100: it is not a mark of a store")
    both = bytearray(mark)
    both[64] ^= 1
    both[80] ^= 1
    (killed / "mark").write_bytes(both)
    assert refused(killed).startswith("mark: damaged at byte 64: the number of the last commit cannot be read")
    newest = 64 + 16 * (40 & 1)
    (killed / "mark").write_bytes(mark[:newest] + bytes([mark[newest] ^ 1]) + mark[newest + 1 :])
    last = last_file(killed)
    found = scan(last.read_bytes())
    assert found is not None
    last.write_bytes(last.read_bytes()[: found.end - 1])
    with SegmentStore(killed) as store:  # two faults at once, and still no more than the last commit
        assert dict(store.items())[b"last"] == b"38"
        assert "commit 40 is in doubt" in store.doubt
        assert store.statistics().in_doubt


def test_after_a_loss_of_power_the_last_commit_is_in_doubt(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Boot(monkeypatch)
    with SegmentStore(killed) as store:
        assert f"{last_file(killed)}: commit 41 is in doubt" in store.doubt
    with SegmentStore(killed) as store:
        assert not store.doubt


def test_what_was_not_synced_may_be_lost_and_what_was_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = Boot(monkeypatch)

    def opened(folder: Path) -> SegmentStore:
        return SegmentStore(folder, "os", 5_000, 10_000, may_lose=True, sync_every_s=0)

    with opened(tmp_path / "store") as store:
        for n in range(30):
            store.commit(operations_of(n))
        store.sync()
        for n in range(30, 40):
            store.commit(operations_of(n))
        folder = crashed(store, tmp_path / "killed")
    boot.number += 1
    files = sorted(folder.glob("segment-*.log"))
    entries = {e.number: (f, e) for f in files if (s := scan(f.read_bytes())) is not None for e in s.entries}
    for number, opens in ((29, False), (30, False), (31, True), (37, True), (40, True)):
        copy = Path(shutil.copytree(folder, tmp_path / f"damaged{number}"))
        file, entry = entries[number]
        data = bytearray(file.read_bytes())
        data[entry.end - 1] ^= 1
        (copy / file.name).write_bytes(data)
        if not opens:
            with pytest.raises(DamagedError, match=f"commit {number} is not whole|ends with commit {number - 1}"):
                opened(copy)
            continue
        with opened(copy) as store:
            assert dict(store.items())[b"last"] == b"%d" % (number - 2)
            assert f"commits {number} to 40 were not on the disk" in store.doubt
            store.commit([(b"more", b"1")])
        with opened(copy) as store:
            assert dict(store.items())[b"more"] == b"1"


def test_without_the_mark_a_cut_file_would_pass(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows what the mark is for: this is how it was."""
    monkeypatch.setattr(LogReader, "_check_ends", lambda log, names: None)
    last = last_file(killed)
    last.write_bytes(last.read_bytes()[: HEAD_BYTES + 100])
    with SegmentStore(killed) as store:
        assert int(dict(store.items())[b"last"]) < 39


def test_cleaning_is_spread_over_commits(tmp_path: Path) -> None:
    """No commit moves more than a few times its own size, however much is live in the oldest file."""
    with SegmentStore(tmp_path, "os", segment_bytes=200_000, slack_bytes=100_000) as store:
        for n in range(20):
            store.commit([(b"cold/%d/%d" % (n, i), bytes(100)) for i in range(100)])
        steps, before = [], dict(store._index)
        for n in range(3_000):
            at = store.statistics().log_bytes
            store.commit([(b"hot", bytes(n % 300))])
            steps.append(store.statistics().log_bytes - at)
        assert all(store._index[key] != before[key] for key in before)  # every cold pair was moved
        assert max(steps) < 40_000
        assert store.statistics().log_bytes < 2 * store.statistics().live_bytes + 100_000 + 2 * 200_000
