"""One prediction for each subscriber of path failures, queues, replicated brokers and subscribers that come and go."""

from surecast.prediction.composed.composed_report import composed_mechanisms, predict_composed
from surecast.prediction.composed.parts import COMPOSED_SCHEMES, COMPOSED_VARIANT, composes, parts_of

__all__ = [
    "COMPOSED_SCHEMES",
    "COMPOSED_VARIANT",
    "composed_mechanisms",
    "composes",
    "parts_of",
    "predict_composed",
]
