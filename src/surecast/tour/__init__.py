"""The tour: plan, predict, run, learn and check, everything real, on one page.

>>> from surecast.tour import STAGES
>>> [stage.title for stage in STAGES]
['Plan', 'Predict', 'Run', 'Learn', 'Check']
"""

from surecast.tour.content import Outcome, Result
from surecast.tour.walk import STAGES, Listener, Stage, Tour, TourInterrupted, take_tour, why_no_spark

__all__ = ["STAGES", "Listener", "Outcome", "Result", "Stage", "Tour", "TourInterrupted", "take_tour", "why_no_spark"]
