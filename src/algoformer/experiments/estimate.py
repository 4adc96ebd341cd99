"""How long a training takes on one H200, from what was measured there; and what a step costs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from algoformer.models import (
    AlgoFormerConfig,
    LinearSelfAttentionConfig,
    LoopedConfig,
    LSTMConfig,
    Model,
    TransformerConfig,
)
from algoformer.models.tokens import interleaved, paired
from algoformer.task import Task
from algoformer.tasks import LinearRegression
from algoformer.training import Recipe, TrainConfig
from algoformer.training.codec import model_of
from algoformer.training.config import Plan
from algoformer.training.cost import cost

# seconds a step at the default sizes (82 tokens, width 256, T = 20, window 15, 12 layers), batch 64, bf16, of whole
# trainings with their learning curves, those of ours_headline; START is what ours_linear took beyond them
MEASURED: dict[type, float] = {AlgoFormerConfig: 4.13e-3, LoopedConfig: 2.92e-3, TransformerConfig: 2.53e-3}
PEAK = {"NVIDIA H200": 7.8e14}  # operations a second of one large product in bf16 (benchmarks/train-h200.json)
TF32 = 7.57 / 3.92  # times as long as bf16
LSTM = 1.9e-3  # the same of 10 layers
LINEAR = 0.5e-3, 0.6e-3  # of linear attention with 2,000 prompts: a step, and each layer (3.77e-3 of 6, by bench)
LEAST = 0.07e-3  # of a block forward or backward, however small
START = 4.0  # seconds: graphs, checkpoints, evaluation

_TASK = LinearRegression(d=20, n=40, dense=True)


def seconds_a_step(recipe: Recipe) -> float:
    """The measured time of its kind of model at the default size, scaled by the work; of other kinds by layers."""
    c, kind = recipe.model, type(recipe.model)
    if isinstance(c, LSTMConfig):
        return LSTM * c.layers / 10
    if isinstance(c, LinearSelfAttentionConfig):
        return LINEAR[0] + LINEAR[1] * c.layers
    least = LEAST * sum(_blocks(recipe, at_once=True))
    if kind not in MEASURED:
        return least
    default = Recipe(model=kind(), task=_TASK, train=TrainConfig())
    slower = TF32 if recipe.train.precision == "tf32" else 1.0
    return max(work(recipe) / work(default) * MEASURED[kind] * slower, least)


def seconds(recipe: Recipe) -> float:
    """The time of a whole training."""
    return START + recipe.train.steps * seconds_a_step(recipe)


def work(recipe: Recipe) -> float:
    """Multiplications of the blocks of a softmax model in a step: matrices of 12 width^2, and attention."""
    c = recipe.model
    forward, backward = _blocks(recipe)
    s = _tokens(c, recipe.task)
    return float((forward + 2 * backward) * recipe.train.batch * s * (12 * c.width**2 + 2 * s * c.width))


def _blocks(recipe: Recipe, *, at_once: bool = False) -> tuple[int, int]:
    """Blocks that a step passes forward and backward; `at_once` counts those of the post-transformer as one reading."""
    c, plan = recipe.model, Plan.of(_shape(recipe.model), recipe.train)
    if isinstance(c, AlgoFormerConfig):
        ends = c.pre + c.post * (1 if at_once else plan.window)
        return ends + c.loop * c.loops, ends + c.loop * plan.gradient
    if isinstance(c, LoopedConfig):
        return c.layers * c.loops, c.layers * plan.gradient
    return c.layers, c.layers


def flops(recipe: Recipe) -> int:
    """Floating-point operations of a step, in its matrix products."""
    t = recipe.train
    return _counted(recipe.model, recipe.task, t.batch, t.window, t.gradient_loops)


def parameters(recipe: Recipe) -> int:
    """Trainable numbers of its model."""
    return sum(v.numel() for v in _shape(recipe.model).parameters())


@lru_cache(maxsize=512)
def _counted(model: Any, task: Task[Any], batch: int, window: int | None, gradient: int | None) -> int:
    return cost(model, task, TrainConfig(batch=batch, window=window, gradient_loops=gradient))["flops"]


@lru_cache(maxsize=512)
def _shape(model: Any) -> Model:
    """The model without its weights."""
    with torch.device("meta"):
        return model_of(model)


@lru_cache(maxsize=512)
def _tokens(model: Any, task: Task[Any]) -> int:
    prompt = task.sample(1, torch.Generator().manual_seed(0)).prompt
    width = max(model.features, model.labels)
    values = interleaved(prompt, width)[0] if model.causal else paired(prompt, model.features, model.labels)[0]
    return int(values.shape[1])
