"""What the store promises when the process, the power or the disk fails in the middle of a commit."""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.store import Operation, SegmentStore

# A child that commits for ever. Commit n writes `last` = n and changes keys that follow from n, so that the state
# after every commit can be worked out; it says n when commit n has returned.
WRITER = """
import os, random, sys
from pathlib import Path
from surecast.broker.store import SegmentStore

store = SegmentStore(Path(sys.argv[1]), sys.argv[2], 20_000, 20_000, may_lose=True)
for n in range(int(sys.argv[3]), int(sys.argv[4])):
    os.write(1, b"begin %d\\n" % n)
    draw = random.Random(n)
    changes = [(b"k%d" % draw.randrange(50), draw.choice([None, draw.randbytes(200)])) for _ in range(20)]
    try:
        store.commit([(b"last", b"%d" % n), *changes])
    except Exception as error:
        os.write(1, b"failed %d %s\\n" % (n, str(error).encode()))
    else:
        os.write(1, b"returned %d\\n" % n)
"""


def operations_of(n: int) -> list[Operation]:
    draw = random.Random(n)
    changes = [(b"k%d" % draw.randrange(50), draw.choice([None, draw.randbytes(200)])) for _ in range(20)]
    return [(b"last", b"%d" % n), *changes]


def state_after(commits: list[int]) -> dict[bytes, bytes]:
    model: dict[bytes, bytes] = {}
    for n in commits:
        for key, value in operations_of(n):
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
    return model


def found_in(folder: Path) -> dict[bytes, bytes]:
    with SegmentStore(folder, "full", 20_000, 20_000) as store:
        return dict(store.items())


@pytest.mark.parametrize("durability", ["full", "os"])
def test_killed_in_the_middle_everything_that_returned_is_there(tmp_path: Path, durability: str) -> None:
    """kill -9 at a moment of chance, several times over the same folder."""
    draw = random.Random(3)
    done = 0  # commits 0 to done - 1 are in the store
    for _ in range(5):
        command = [sys.executable, "-c", WRITER, str(tmp_path), durability, str(done), "1000000"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        enough = done + draw.randrange(1, 400)
        returned = done
        for line in child.stdout:
            word, number = line.split()
            returned = int(number) + 1 if word == "returned" else returned
            if returned >= enough and word == draw.choice(["begin", "returned"]):
                child.send_signal(signal.SIGKILL)
                break
        for line in child.stdout:  # what it still said before it died
            if line.startswith("returned") and line.endswith("\n"):
                returned = int(line.split()[1]) + 1
        child.wait(PATIENCE_S)
        child.stdout.close()
        found = found_in(tmp_path)
        done = int(found[b"last"]) + 1
        assert returned <= done <= returned + 1, "at most the commit under way is there in addition"
        assert found == state_after(list(range(done)))


# What the system was asked to do, in which order


def traced(folder: Path, durability: str, *options: str) -> tuple[list[str], str]:
    """The system calls of five commits and what they said, after commit 0 in an earlier run."""
    if (strace := shutil.which("strace")) is None:
        pytest.skip("no strace here: the order of system calls cannot be seen")
    child = [sys.executable, "-c", WRITER, str(folder), durability]
    subprocess.run([*child, "0", "1"], check=True, capture_output=True, timeout=PATIENCE_S)
    trace = folder / "trace"
    calls = "trace=fsync,fdatasync,write,pwritev,pwritev2,openat"
    command = [strace, "-f", "-y", "-o", str(trace), "-e", calls, *options, *child, "1", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if "ptrace" in done.stderr or "PTRACE" in done.stderr:
        pytest.skip(f"strace is not allowed here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return trace.read_text().splitlines(), done.stdout


def calls_of_each_commit(trace: list[str]) -> list[list[str]]:
    """For each commit, W for a write to the log and S for its synchronisation, in order."""
    commits: list[list[str]] = []
    inside = False
    for line in trace:
        if re.search(r'write\(1<.*"begin', line):
            commits.append([])
            inside = True
        elif re.search(r'write\(1<.*"returned', line):
            inside = False
        elif inside and "segment-" in line:
            commits[-1].append("S" if "sync(" in line else "W")
    return commits


def test_full_durability_synchronises_after_the_last_write_and_before_it_returns(tmp_path: Path) -> None:
    commits = calls_of_each_commit(traced(tmp_path, "full")[0])
    assert len(commits) == 5
    for calls in commits:
        assert "W" in calls
        assert calls[-1] == "S"


def test_os_durability_writes_before_it_returns_and_does_not_synchronise(tmp_path: Path) -> None:
    commits = calls_of_each_commit(traced(tmp_path, "os")[0])
    assert len(commits) == 5
    for calls in commits:
        assert set(calls) == {"W"}


@pytest.mark.parametrize("failure", ["fdatasync:error=EIO:when=3", "pwritev,pwritev2:error=ENOSPC:when=3"])
def test_a_disk_that_fails(tmp_path: Path, failure: str) -> None:
    """Without room that commit fails and no other; what the disk did not confirm is the end of all commits."""
    log = tmp_path / "segment-0000000001.log"
    said = traced(tmp_path, "full", "-P", str(log), "-e", f"inject={failure}")[1]
    failed = [int(n) for n in re.findall(r"^failed (\d+)", said, re.MULTILINE)]
    returned = [int(n) for n in re.findall(r"^returned (\d+)", said, re.MULTILINE)]
    assert sorted(failed + returned) == [1, 2, 3, 4, 5]
    if "ENOSPC" in failure:
        assert (len(failed), returned[-1]) == (1, 5), said
        assert "the disk is full" in said
        assert found_in(tmp_path) == state_after([0, *returned])
    else:
        assert failed == list(range(returned[-1] + 1, 6)), said
        assert "did not confirm" in said
        assert found_in(tmp_path) in (state_after([0, *returned]), state_after([0, *returned, failed[0]]))


FILLER = """
import os, resource, sys
from pathlib import Path
from surecast.broker.store import SegmentStore, StoreError

folder = Path(sys.argv[1])
store = SegmentStore(folder)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
kept, refused = [], []
for i in range(200):
    try:
        store.commit([(b"%d" % i, bytes(20_000))])
        kept.append(i)
    except StoreError as error:
        refused.append(i)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.commit([(b"room", b"again")])
print(kept, refused)
assert sorted(dict(store.items())) == sorted([b"room", *(b"%d" % i for i in kept)])
os._exit(0)  # without closing
"""


def test_files_that_may_not_grow_fail_commits_and_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILLER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    kept, refused = ([int(n) for n in part.split(",")] for part in done.stdout.strip("[]\n").split("] ["))
    assert len(kept) > 50
    assert len(refused) > 50
    with SegmentStore(tmp_path) as store:
        assert dict(store.items()) == {b"room": b"again", **{b"%d" % i: bytes(20_000) for i in kept}}
