"""How long a training takes on one H200, from what was measured there."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from algoformer.models import AlgoFormerConfig, LoopedConfig, TransformerConfig
from algoformer.task import Task
from algoformer.tasks import LinearRegression
from algoformer.training import Recipe, TrainConfig
from algoformer.training.cost import cost

# seconds a step at the default sizes (82 tokens, width 256, T = 20, window 15, 12 layers), batch 64, bf16
MEASURED: dict[type, float] = {AlgoFormerConfig: 4.0e-3, LoopedConfig: 2.95e-3, TransformerConfig: 2.44e-3}
LEAST = 1e-3  # assumed: a step of a small model is its launches
SPEED = 2e13  # assumed of all others, in floating-point operations a second
START = 20.0  # seconds: kernels, graphs, evaluation

_TASK = LinearRegression(d=20, n=40, dense=True)


def seconds_a_step(recipe: Recipe) -> float:
    """The measured time of its kind of model at the default size, scaled by floating-point operations."""
    operations = flops(recipe)
    kind = type(recipe.model)
    if kind not in MEASURED:
        return max(operations / SPEED, LEAST)
    known = flops(Recipe(model=kind(), task=_TASK, train=TrainConfig()))
    return max(operations / known * MEASURED[kind], LEAST)


def seconds(recipe: Recipe) -> float:
    """The time of a whole training."""
    return START + recipe.train.steps * seconds_a_step(recipe)


def flops(recipe: Recipe) -> int:
    """Floating-point operations of a step, in its matrix products."""
    return _cost(recipe)["flops"]


def parameters(recipe: Recipe) -> int:
    """Trainable numbers of its model."""
    return _cost(recipe)["parameters"]


def _cost(recipe: Recipe) -> dict[str, int]:
    t = recipe.train
    return _counted(recipe.model, recipe.task, t.batch, t.window, t.gradient_loops)


@lru_cache(maxsize=512)
def _counted(model: Any, task: Task[Any], batch: int, window: int | None, gradient: int | None) -> dict[str, int]:
    return cost(model, task, TrainConfig(batch=batch, window=window, gradient_loops=gradient))
