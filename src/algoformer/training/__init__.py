"""One training loop for every model: readable, resumable, and fast where there is a GPU."""

from algoformer.training.config import Ramp, TrainConfig
from algoformer.training.distributed import processes
from algoformer.training.evaluation import Evaluation, evaluate
from algoformer.training.folders import load, recipe_of
from algoformer.training.loop import Interrupted, OutOfTime, Progress, Result, TrainingDiverged, Watch, train
from algoformer.training.loss import cross_entropy, rao_blackwell, window_loss
from algoformer.training.presets import PRESETS, Recipe, describe, override, preset, task_named, with_data
from algoformer.training.progress import Bar, TensorBoard
from algoformer.training.representation import Represented, represented
from algoformer.training.step import device_named
from algoformer.training.translation import Course, Entropy, Quality, Translator, entropy, quality, validated

__all__ = [
    "PRESETS",
    "Bar",
    "Course",
    "Entropy",
    "Evaluation",
    "Interrupted",
    "OutOfTime",
    "Progress",
    "Quality",
    "Ramp",
    "Recipe",
    "Represented",
    "Result",
    "TensorBoard",
    "TrainConfig",
    "TrainingDiverged",
    "Translator",
    "Watch",
    "cross_entropy",
    "describe",
    "device_named",
    "entropy",
    "evaluate",
    "load",
    "override",
    "preset",
    "processes",
    "quality",
    "rao_blackwell",
    "recipe_of",
    "represented",
    "task_named",
    "train",
    "validated",
    "window_loss",
    "with_data",
]
