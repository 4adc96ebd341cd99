"""One training loop for every model: readable, resumable, and fast where there is a GPU."""

from algoformer.training.config import Ramp, TrainConfig
from algoformer.training.evaluation import Evaluation, evaluate
from algoformer.training.folders import load, recipe_of
from algoformer.training.loop import Interrupted, Progress, Result, TrainingDiverged, train
from algoformer.training.loss import rao_blackwell, window_loss
from algoformer.training.presets import PRESETS, Recipe, describe, override, preset
from algoformer.training.step import device_named

__all__ = [
    "PRESETS",
    "Evaluation",
    "Interrupted",
    "Progress",
    "Ramp",
    "Recipe",
    "Result",
    "TrainConfig",
    "TrainingDiverged",
    "describe",
    "device_named",
    "evaluate",
    "load",
    "override",
    "preset",
    "rao_blackwell",
    "recipe_of",
    "train",
    "window_loss",
]
