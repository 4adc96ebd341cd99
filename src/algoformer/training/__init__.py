"""One training loop for every model: readable, resumable, and fast where there is a GPU."""

from algoformer.training.config import Ramp, TrainConfig
from algoformer.training.distributed import processes
from algoformer.training.evaluation import Evaluation, evaluate
from algoformer.training.folders import load, recipe_of
from algoformer.training.loop import Interrupted, OutOfTime, Progress, Result, TrainingDiverged, Watch, train
from algoformer.training.loss import rao_blackwell, window_loss
from algoformer.training.presets import PRESETS, Recipe, describe, override, preset, task_named
from algoformer.training.progress import Bar, TensorBoard
from algoformer.training.step import device_named

__all__ = [
    "PRESETS",
    "Bar",
    "Evaluation",
    "Interrupted",
    "OutOfTime",
    "Progress",
    "Ramp",
    "Recipe",
    "Result",
    "TensorBoard",
    "TrainConfig",
    "TrainingDiverged",
    "Watch",
    "describe",
    "device_named",
    "evaluate",
    "load",
    "override",
    "preset",
    "processes",
    "rao_blackwell",
    "recipe_of",
    "task_named",
    "train",
    "window_loss",
]
