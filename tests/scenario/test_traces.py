"""Availability traces: the four formats, what is estimated from them, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.errors import TraceError
from surecast.scenario.traces import TRACE_FORMATS, AvailabilityTrace, failures_of, read_traces

FTA = """event_id\tnode_name\tevent_type\tevent_start_time\tevent_stop_time
0\tn1\t0\t100\t150
1\tn1\t1\t150\t400
2\tn1\t0\t400\t450
3\tn1\t1\t450\t500
"""
LANL = """System,nodenumz,Prob Started,Prob Fixed
2,0,6/21/2005 10:00,6/21/2005 11:00
2,0,6/22/2005 11:00,6/22/2005 11:30
2,1,6/21/2005 10:00,6/21/2005 11:00
"""
OUTAGES = """start_time,end_time,status,service
0,100,1,mail
50,200,0.5,mail
900,1000,0,mail
1200,1500,1,mail
"""


def read(tmp_path: Path, text: str, format: str) -> list[AvailabilityTrace]:
    file = tmp_path / "trace"
    file.write_text(text)
    return read_traces(file, format)


def test_avt(tmp_path: Path) -> None:
    a, b = read(tmp_path, "a 2 0 40 50 100\nb 1 20 90\n\n", "avt")
    assert a == AvailabilityTrace("a", 0, 100, ((0, 40), (50, 100)))
    assert b.availability == pytest.approx(0.7)
    assert b.counts() == (1, 1)


def test_fta(tmp_path: Path) -> None:
    (node,) = read(tmp_path, FTA, "fta")
    assert node == AvailabilityTrace("n1", 100, 500, ((150, 400), (450, 500)))


def test_lanl(tmp_path: Path) -> None:
    (node,) = read(tmp_path, LANL, "lanl")
    assert node.name == "2-0"
    assert node.availability == pytest.approx(24 / 25.5)


def test_outages_overlap_and_notices_do_not_count(tmp_path: Path) -> None:
    (mail,) = read(tmp_path, OUTAGES, "outages")
    assert mail == AvailabilityTrace("mail", 0, 1500, ((200, 1200),))


def test_compressed_files_read_the_same(tmp_path: Path) -> None:
    (tmp_path / "t.gz").write_bytes(gzip.compress(FTA.encode()))
    assert read_traces(tmp_path / "t.gz", "fta") == read(tmp_path, FTA, "fta")


@pytest.mark.parametrize("shaped", [False, True])
def test_known_parameters_are_recovered(shaped: bool) -> None:
    rng = np.random.default_rng(3)
    ups, downs = rng.exponential(1000, 4000), rng.exponential(50, 4000)
    ends = np.cumsum(ups + downs) - downs
    starts = np.concatenate([[0.0], np.cumsum(ups + downs)[:-1]])
    intervals = tuple(zip(starts.tolist(), ends.tolist(), strict=True))
    failures = failures_of(AvailabilityTrace("x", 0, float(ends[-1] + downs[-1]), intervals), shaped=shaped)
    assert failures is not None
    assert failures.mtbf_s == pytest.approx(1000, rel=0.05)
    assert failures.mttr_s == pytest.approx(50, rel=0.05)
    assert failures.up.squared_cv == pytest.approx(1, abs=0.2)


def test_variability_is_kept_where_asked() -> None:
    rng = np.random.default_rng(4)
    downs = np.where(rng.random(3000) < 0.1, rng.exponential(900, 3000), rng.exponential(10, 3000))
    starts = np.cumsum(np.full(3000, 1000.0) + downs) - 1000.0
    intervals = tuple((float(s), float(s) + 1000.0) for s in starts)
    failures = failures_of(AvailabilityTrace("x", 0, intervals[-1][1] + 1, intervals), shaped=True)
    assert failures is not None
    assert failures.down.squared_cv > 5
    assert failures.up.squared_cv < 0.05


def test_a_component_that_never_failed() -> None:
    assert failures_of(AvailabilityTrace("x", 0, 100, ((0, 100),))) is None


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("avt", "a 2 0 40\n", "trace:1: expected a name"),
        ("avt", "a 1 0 forty\n", "trace:1: expected a number, and found 'forty'"),
        ("avt", "a 2 0 40 30 50\n", "trace:1: sessions must be in order"),
        ("avt", "", "no component"),
        ("fta", "a\tb\n", "trace:1: the first line should name the columns"),
        ("fta", FTA.replace("\t0\t100", "\t7\t100"), "trace:2: event_type is 0 or 1, not '7'"),
        ("fta", FTA + "4\tn1\n", "trace:6: this line has too few columns"),
        ("lanl", LANL.replace("6/22/2005 11:00", "yesterday"), "trace:3: expected times such as"),
        ("outages", OUTAGES.replace("1200", "soon"), "trace:5: expected a number"),
        ("tarot", "x", "there is no trace format 'tarot'"),
    ],
)
def test_bad_traces_are_refused_with_their_line(format: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, text, format)
    assert message in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"a 1 0 5\n" * 100)[:-9])
    (tmp_path / "latin").write_bytes(b"caf\xe9 1 0 5\n")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "cut.gz", tmp_path / "latin"):
        with pytest.raises(TraceError):
            read_traces(path, "avt")


@given(st.binary(max_size=80), st.sampled_from(sorted(TRACE_FORMATS)))
def test_any_bytes_read_or_raise_the_trace_error(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, format: str
) -> None:
    file = tmp_path_factory.mktemp("junk") / "t"
    file.write_bytes(junk)
    try:
        read_traces(file, format)
    except TraceError:
        pass


def test_real_traces(real_data: Path) -> None:
    folder = real_data / "availability"
    grid = read_traces(folder / "grid5000" / "event_trace.tab.gz", "fta")
    assert len(grid) == 561
    assert np.mean([t.availability for t in grid]) == pytest.approx(0.721, abs=0.002)
    desktops = read_traces(folder / "microsoft_pcs" / "microsoft_a.avt.gz", "avt")
    assert len(desktops) == 12916
    assert np.mean([t.availability for t in desktops]) == pytest.approx(0.813, abs=0.003)
    assert len(read_traces(folder / "web_sites" / "web_sites_a.avt.gz", "avt")) == 66
    assert len(read_traces(folder / "lanl" / "lanl_failures.csv.gz", "lanl")) > 1000
    for file in sorted((folder / "cloud_uptime_archive").glob("*.csv")):
        assert all(0 < t.availability < 1 for t in read_traces(file, "outages"))
