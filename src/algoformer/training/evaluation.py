"""How good a model is on fixed fresh prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from algoformer.algorithm import Algorithm
from algoformer.checks import whole
from algoformer.prompt import Dense
from algoformer.task import Task
from algoformer.tasks.chain_of_thought import ChainOfThought
from algoformer.tasks.translation import Parallel
from algoformer.training.data import seeded

TOGETHER = 16  # prompts of a draw, where they share what every draw has anew


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Squared errors by step and asked position: mean, median over prompts and standard error of the mean.

    Where the prompts of a draw share something, such as a covariance, the standard error is that of means of draws. Of
    an even number of prompts the median is the lower of the two in the middle. `zeros` are the errors of the zero
    predictor by position, and `zero` their mean; dividing by it makes errors relative.
    """

    variant: str
    prompts: int
    steps: list[int]
    mean: list[list[float]]
    median: list[list[float]]
    deviation: list[list[float]]
    zero: float
    zeros: list[float]

    @property
    def last(self) -> float:
        """The relative mean error at the last asked position after the last step."""
        return self.mean[-1][-1] / self.zero


@torch.no_grad()
def evaluate(
    model: Algorithm[Any, Any],
    task: Task[Any],
    *,
    prompts: int = 6400,
    steps: Sequence[int] | None = None,
    seed: int = 0,
    batch: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    clean: bool = False,
    portable: bool = False,
    last: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> Evaluation:
    """The errors of a model, or of any other algorithm, after each of `steps` (None: its own number of steps).

    The prompts are a function of task, seed, batch and device, and come from another stream than those of training. As
    many as `batch` are drawn at once (None: 640, and 16 where they share something).
    `clean` holds answers to the truth before noise: the error above the floor that noise sets. `portable` draws on the
    CPU, so that every device is asked the same. Of a dense prompt `last` asks the last position alone. `progress` hears
    how many prompts of how many are done, and what is asked.
    """
    whole("prompts", prompts, 1)
    batch = (TOGETHER if task.shares else 640) if batch is None else batch
    whole("batch", batch, 1)
    if steps is not None and not len(steps):
        raise ValueError("steps must hold at least one number of steps; got none")
    for step in steps or ():
        whole("a number of steps", step)
    if isinstance(task, Parallel):
        raise TypeError("the error of text is its cross-entropy: use `entropy` and `quality`")
    generator = torch.Generator("cpu" if portable else device)
    variant = getattr(model, "variant", type(model).__name__)
    tell = progress or (lambda done, total, what: None)
    tell(0, prompts, variant)
    errors, squares = [], []
    wanted: list[int] = []
    for i, start in enumerate(range(0, prompts, batch)):
        sample = task.sample(min(batch, prompts - start), seeded(generator, seed, "evaluation", i), dtype)
        prompt = sample.prompt.to(device=device) if portable else sample.prompt
        target = sample.truth.clean if clean else sample.target
        if last and isinstance(prompt, Dense):
            prompt, target = prompt.prefix(prompt.asked[1] - 1), target[:, -1:]
        if not target.shape[1]:
            raise ValueError(f"the task must ask at least one answer; got none of {type(task).__name__}")
        q = model.prepare(prompt)
        wanted = sorted(set(steps)) if steps is not None else [model.horizon(q)]
        with undropped(model):
            read = [
                model.read(q, s).reshape(prompt.asked) for t, s in enumerate(model.states(q, wanted[-1])) if t in wanted
            ]
        errors.append((torch.stack(read) - target.to(device)).square().mean(-1).double().cpu())
        squares.append(target.square().mean(-1).double().cpu())
        tell(start + len(target), prompts, variant)
    e, z = torch.cat(errors, 1), torch.cat(squares)
    apart = torch.stack([v.mean(1) for v in errors], 1) if task.shares else e  # what is drawn on its own
    spread = apart.std(1) if apart.shape[1] > 1 else torch.zeros_like(e[:, 0])
    return Evaluation(
        variant=variant,
        prompts=prompts,
        steps=wanted,
        mean=e.mean(1).tolist(),
        median=e.median(1).values.tolist(),
        deviation=(spread / apart.shape[1] ** 0.5).tolist(),
        zero=float(z.mean()),
        zeros=z.mean(0).tolist(),
    )


@contextmanager
def undropped(model: Algorithm[Any, Any]) -> Iterator[None]:
    """A model without its dropout, for a while."""
    modules = [m for m in model.modules() if m.training] if isinstance(model, torch.nn.Module) else []
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module in modules:
            module.training = True


def links(task: Task[Any]) -> int:
    """How many answers belong to one place in a prompt: the states of a chain of thought, or one."""
    return task.layers if isinstance(task, ChainOfThought) and task.dense else 1


def final(task: Task[Any], asked: Sequence[float]) -> float:
    """The error at the last place, with all examples seen: of a chain of thought, the mean over its states."""
    return sum(asked[-links(task) :]) / links(task)
