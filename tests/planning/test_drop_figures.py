"""The numbers of the dropping paper's figures: mixtures of mechanisms, rows, and the names of their series."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest

from surecast.errors import ConfigurationError
from surecast.planning.drop_figures import HYBRIDS, Effort, Setting, drop_figures, hybrid, save_rows
from surecast.prediction.dropping import program_bound
from surecast.prediction.dropping.cases import Case, all_gives
from surecast.studio.drop_page import SHOWN, figure_charts

CASE = Case(2.0, 8.0, 20.0, 20.0, 16.0, target_s=7.0)
ALONE = replace(CASE, input_per_s=math.inf)


def test_pages_have_a_name_for_each_mixture() -> None:
    assert set(HYBRIDS) <= set(SHOWN)


def test_mixtures_are_no_worse_than_their_parts_and_admission_keeps_below_its_ceiling() -> None:
    for rate in (0.5, 4.0, 7.7):
        case = replace(CASE, arrival_per_s=rate)
        single = {given.kind: given for given in all_gives(case)}
        both = [hybrid(case, name) for name in HYBRIDS]
        shares = [given.outcome.success_share if given.outcome else math.nan for given in both]
        parts = {kind: given.outcome.success_share for kind, given in single.items() if given.outcome is not None}
        assert shares[0] >= max(parts["finite-buffer"], parts["probabilistic"]) - 1e-12
        assert shares[1] >= parts["exponential-expiry"] - 1e-12
        ceiling = program_bound(case.outlet.queue, 7.0 - case.before_s, 200, protect_connected=False).success_share
        assert shares[0] <= ceiling + 1e-7
        assert all(given.met for given in both)


def test_rows_of_the_figures(tmp_path) -> None:  # type: ignore[no-untyped-def]
    setting = Setting(rates=(2.0, 7.7), response_rates=(0.05, 2.0), fine=3)
    steps: list[tuple[int, int]] = []
    rows = drop_figures(setting, Effort(runs=2, runs_max=2, duration_s=5000.0), lambda *at: steps.append(at))
    assert steps[-1][0] == steps[-1][1]
    values = {(r.figure, r.series, r.arrival_per_s, r.metric): r.value for r in rows if r.how == "formula"}
    # dropping Eq. 28 by hand: join probability 1, two events per second
    assert values[4, "join probability 1", 2.0, "response_mean_s"] == pytest.approx(20.5)
    assert values[6, "finite-buffer", 7.7, "success_share"] == pytest.approx(0.5091, abs=5e-5)
    assert values[7, "finite-buffer", 7.7, "failed_connected_share"] == pytest.approx(0.059, abs=5e-5)
    assert values[7, "probabilistic", 7.7, "failed_connected_share"] == 0.0
    charts = figure_charts(rows, setting)
    assert len(charts) == 7
    for name in ("figure-6", "figure-6-gain", "figure-7"):
        # between the rates that all share a line would seem to cross another
        assert all(set(layer.x) <= set(setting.rates) for layer in charts[name].layers), name
    read = pyarrow.parquet.read_table(save_rows(rows, tmp_path / "r.parquet")).to_pylist()
    assert len(read) == len(rows)
    assert np.isclose(read[0]["value"], rows[0].value)
    with pytest.raises(ConfigurationError, match="end its name in"):
        save_rows(rows, tmp_path / "r.csv")
