"""Training data as a function of (seed, step)."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from algoformer.prompt import Dense
from algoformer.task import Sample, Task
from algoformer.tasks.covariance import Ellipsoid
from algoformer.training.config import TrainConfig


class Size(NamedTuple):
    """How large the problems of a step are; None where the task's own size holds."""

    dims: int | None
    examples: int | None
    loops: int


class Batch(NamedTuple):
    """Prompts, their answers, the weight of each asked position, and the covariance of the inputs where it is used."""

    prompt: Any
    target: Float[Tensor, "b o k"]
    weight: Float[Tensor, " o"]
    covariance: Ellipsoid | None

    def tensors(self) -> list[Tensor]:
        """Everything that changes from step to step."""
        values = (getattr(self.prompt, f.name) for f in fields(self.prompt))
        return [v for v in values if isinstance(v, Tensor)] + [self.target, self.weight]


def seeded(generator: torch.Generator, *parts: object) -> torch.Generator:
    """Seed a generator by a few names and numbers."""
    return generator.manual_seed(seed_of(*parts))


def seed_of(*parts: object) -> int:
    """A seed from a few names and numbers, all of which reach its low 32 bits: a CPU takes no others."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def resized(task: Task[Any], size: Size) -> Task[Any]:
    """The task at a curriculum's size."""
    changes = {"active": size.dims, "n": size.examples}
    changes = {name: value for name, value in changes.items() if value is not None}
    for name in changes:
        if name not in (f.name for f in fields(task)):  # type: ignore[arg-type]
            raise ValueError(f"a curriculum needs a task with a field {name}; got {type(task).__name__}")
    return replace(task, **changes) if changes else task  # type: ignore[type-var]


class Data:
    """The batches of a run; of several processes each takes its rows of the same batch.

    `padded` fills short dense prompts with zeros of weight 0, so that every batch has one shape.
    """

    def __init__(
        self,
        task: Task[Any],
        config: TrainConfig,
        device: torch.device,
        dtype: torch.dtype,
        *,
        rank: int = 0,
        world: int = 1,
        padded: bool = False,
    ) -> None:
        if config.batch % world:
            raise ValueError(f"batch must be a multiple of the {world} processes; got {config.batch}")
        self.task, self.config, self.dtype, self.padded = task, config, dtype, padded
        self.generator = torch.Generator(device)
        share = config.batch // world
        self.rows = slice(rank * share, (rank + 1) * share)
        self.pool: tuple[Size, Sample[Any]] | None = None

    def batch(self, step: int, size: Size) -> Batch:
        """The batch of a step."""
        sized = size._replace(loops=0)
        task, config = resized(self.task, sized), self.config
        if config.pool is None:
            sample = task.sample(config.batch, seeded(self.generator, config.seed, "data", step), self.dtype)
            rows: slice | Tensor = self.rows
        else:
            if self.pool is None or self.pool[0] != sized:
                self.pool = sized, task.sample(config.pool, seeded(self.generator, config.seed, "pool"), self.dtype)
            sample = self.pool[1]
            rows = self.rows
            if config.pool > config.batch:
                g = seeded(self.generator, config.seed, "rows", step)
                rows = torch.randperm(config.pool, generator=g, device=g.device)[self.rows]
        prompt, target, covariance = sample.prompt, sample.target, None
        if config.loss == "rao-blackwell":
            covariance = Ellipsoid(*(v[rows] for v in sample.truth.latent.covariance))
        if isinstance(rows, Tensor) or rows != slice(0, len(target)):
            prompt, target = prompt[rows], target[rows]
        weight = target.new_ones(target.shape[1])
        if self.padded and isinstance(prompt, Dense) and size.examples is not None:
            missing = self.task.n + self.task.queries - target.shape[1]  # type: ignore[attr-defined]
            x, y, target = (F.pad(v, (0, 0, 0, missing)) for v in (prompt.x, prompt.y, target))
            prompt, weight = Dense(x, y, check=False), F.pad(weight, (0, missing))
        return Batch(prompt, target, weight, covariance)
