"""The tour: plan, predict, run, learn, lose a broker and check, everything real, on one page.

>>> from surecast.tour import STAGES
>>> [stage.title for stage in STAGES]
['Plan', 'Predict', 'Run', 'Learn', 'Detour', 'Check']
"""

from surecast.tour.stage_content import Result, StageOutcome
from surecast.tour.walk import STAGES, Tour, TourInterrupted, TourObserver, TourStage, take_tour, why_no_spark

__all__ = [
    "STAGES",
    "Result",
    "StageOutcome",
    "Tour",
    "TourInterrupted",
    "TourObserver",
    "TourStage",
    "take_tour",
    "why_no_spark",
]
