"""Outside of training: shifted problems, loops far past the last trained one, queries far away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.analysis.compare import readings
from algoformer.checks import whole
from algoformer.prompt import Prompt
from algoformer.task import Task


@dataclass(frozen=True)
class Error:
    """Mean and median over prompts of the squared error over the zero predictor's; heavy tails part them.

    Of an even number of prompts the median is the lower of the two in the middle.
    """

    mean: float
    median: float


def relative_error(answer: Float[Tensor, "b o k"], target: Float[Tensor, "b o k"]) -> Error:
    """The error of a batch of answers."""
    each = (answer - target).detach().square().mean((1, 2)) / target.square().mean()
    return Error(float(each.mean()), float(each.median()))


def under_shifts(
    algorithms: Mapping[str, Algorithm[Any, Any]],
    tasks: Mapping[str, Task[Any]],
    *,
    batch: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
) -> dict[str, dict[str, Error]]:
    """Every algorithm on every task, all on the same prompts; by task, then algorithm."""
    table: dict[str, dict[str, Error]] = {}
    with torch.no_grad():
        for title, task in tasks.items():
            sample = task.sample(batch, torch.Generator().manual_seed(int(seed)), dtype)
            last = {name: a.trace(sample.prompt)[-1] for name, a in algorithms.items()}
            table[title] = {name: relative_error(answer, sample.target) for name, answer in last.items()}
    return table


def past_training(
    algorithm: Algorithm[Any, Any], prompt: Any, target: Float[Tensor, "b o k"], steps: Iterable[int]
) -> dict[int, Error]:
    """The error after each number of steps, trained or not."""
    at = list(steps)
    with torch.no_grad():
        answers = readings(algorithm, prompt, at)
    return {t: relative_error(answer, target) for t, answer in zip(at, answers, strict=True)}


@dataclass(frozen=True, eq=False)
class Settling:
    """How a looped algorithm settles: the change of its answer at each step, relative to the answer, and its ratio.

    `contraction` is the median ratio of successive changes over prompts; below 1 the answers approach a fixed point.
    """

    change: Float[Tensor, "t b"]
    contraction: Float[Tensor, " u"]


def settling(algorithm: Algorithm[Any, Any], prompt: Any, steps: int) -> Settling:
    """Watch the answers of consecutive steps."""
    whole("steps", steps, least=2)
    with torch.no_grad():
        trace = algorithm.trace(prompt, steps).flatten(2)
    size = trace[-1].norm(dim=-1)
    change = trace.diff(dim=0).norm(dim=-1) / size.where(size > 0, 1.0)
    ratio = change[1:] / change[:-1].clamp(min=torch.finfo(change.dtype).tiny)
    return Settling(change, ratio.quantile(0.5, dim=1))


def sweep(
    algorithm: Algorithm[Any, Any], prompt: Prompt, values: Float[Tensor, " v"], coordinate: int = 0
) -> Float[Tensor, "b v k"]:
    """The answers when one coordinate of the first query takes each value (Giannou et al. 2024, Figures 3 to 6)."""
    if prompt.queries.shape[1] < 1:
        raise ValueError("a sweep moves the first query; the prompt has none")
    if not 0 <= coordinate < prompt.x.shape[2]:
        raise ValueError(f"coordinate must be 0 to d - 1 = {prompt.x.shape[2] - 1}; got {coordinate}")
    queries = prompt.queries[:, :1].repeat(1, len(values), 1)
    queries[:, :, coordinate] = values.to(queries)
    with torch.no_grad():
        return algorithm.predict(replace(prompt, queries=queries))
