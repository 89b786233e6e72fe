"""Learns a scenario from the tables of the pipeline: estimates with intervals, verdicts, and what the logs do not tell.

>>> fit = choose_lifetime(Times.of([30.0, 50.0], cut_off_s=[40.0]))
>>> fit.mean_s, fit.verdict
(60.0, 'exponential taken: 2 ends are too few to test')
"""

from __future__ import annotations

from surecast.pipeline.learn.describe import WORKLOADS, learn_scenario
from surecast.pipeline.learn.distribution_choice import LifetimeFit, choose_lifetime
from surecast.pipeline.learn.filter_samples import FilterSamples, fit_attributes, read_filter_samples
from surecast.pipeline.learn.learned_scenario import Learned, LearnedValue, Missing
from surecast.pipeline.learn.log_statistics import Statistics
from surecast.pipeline.learn.popularity import PopularityFit, fit_popularity
from surecast.pipeline.learn.rates import RateFit, fit_rate
from surecast.pipeline.learn.samples import Times

__all__ = [
    "WORKLOADS",
    "FilterSamples",
    "Learned",
    "LearnedValue",
    "LifetimeFit",
    "Missing",
    "PopularityFit",
    "RateFit",
    "Statistics",
    "Times",
    "choose_lifetime",
    "fit_attributes",
    "fit_popularity",
    "fit_rate",
    "learn_scenario",
    "read_filter_samples",
]
