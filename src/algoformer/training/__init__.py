"""One training loop for every model: readable, resumable, and fast where there is a GPU."""

from algoformer.training.config import Ramp, TrainConfig
from algoformer.training.loop import Interrupted, Progress, Result, TrainingDiverged, train
from algoformer.training.loss import rao_blackwell, window_loss

__all__ = [
    "Interrupted",
    "Progress",
    "Ramp",
    "Result",
    "TrainConfig",
    "TrainingDiverged",
    "rao_blackwell",
    "train",
    "window_loss",
]
