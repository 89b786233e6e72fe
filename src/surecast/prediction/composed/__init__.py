"""One prediction for each subscriber of path failures, queues, replicated brokers and subscribers that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.lazy import lazy_names
from surecast.prediction.composed.parts import COMPOSED_SCHEMES, COMPOSED_VARIANT, composes, parts_of

if TYPE_CHECKING:
    from surecast.prediction.composed.composed_report import composed_mechanisms, predict_composed
else:
    __getattr__ = lazy_names(
        __name__, {"surecast.prediction.composed.composed_report": ["composed_mechanisms", "predict_composed"]}
    )

__all__ = [
    "COMPOSED_SCHEMES",
    "COMPOSED_VARIANT",
    "composed_mechanisms",
    "composes",
    "parts_of",
    "predict_composed",
]
