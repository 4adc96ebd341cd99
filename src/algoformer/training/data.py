"""Training data as a function of (seed, step)."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from algoformer.prompt import Dense, Text
from algoformer.task import Sample, Task
from algoformer.tasks.byte_pairs import PAD
from algoformer.tasks.covariance import Ellipsoid
from algoformer.tasks.translation import Parallel
from algoformer.training.config import TrainConfig


class Size(NamedTuple):
    """How large the problems of a step are; None where the task's own size holds."""

    dims: int | None
    examples: int | None
    loops: int


class Batch(NamedTuple):
    """Prompts, their answers, the weight of each asked position, and the covariance of the inputs where it is used.

    Of text `at` are the asked positions in the flattened batch; their weights sum to 1 over all processes.
    """

    prompt: Any
    target: Float[Tensor, "b o k"] | Int[Tensor, " c"]
    weight: Float[Tensor, " o"]
    covariance: Ellipsoid | None
    at: Int[Tensor, " c"] | None = None

    def tensors(self) -> list[Tensor]:
        """Everything that changes from step to step."""
        values = (getattr(self.prompt, f.name) for f in fields(self.prompt))
        return [v for v in (*values, self.target, self.weight, self.at) if isinstance(v, Tensor)]


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
    if size.examples is not None and size.examples > task.n:  # type: ignore[attr-defined]
        raise ValueError(f"examples must end at most at the task's n = {task.n}; got {size.examples}")  # type: ignore[attr-defined]
    return replace(task, **changes) if changes else task  # type: ignore[type-var]


class Data:
    """The batches of a run; of several processes each takes its rows of the same batch.

    `padded` fills short dense prompts with zeros of weight 0, so that every batch has one shape; the asked positions of
    text are filled up to a multiple of an eighth of the batch, so that a width has one shape or two.
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
        self.text, self.rank, self.world, self.device = isinstance(task, Parallel), rank, world, device
        if config.batch % world:
            raise ValueError(f"batch must be a multiple of the {world} processes; got {config.batch}")
        self.task, self.config, self.dtype, self.padded = task, config, dtype, padded
        self.generator = torch.Generator("cpu" if self.text else device)  # a batch of text has a shape of its own
        share = config.batch // world
        self.rows = slice(rank * share, (rank + 1) * share)
        self.pool: tuple[Size, Sample[Any]] | None = None
        self.drawn: tuple[tuple[int, Size], Sample[Any]] | None = None
        self.sized: tuple[Size, Task[Any]] | None = None

    def batch(self, step: int, size: Size) -> Batch:
        """The batch of a step."""
        sized = size._replace(loops=0)
        task, config = self._resized(sized), self.config
        if self.text:
            return self._text(task.sample(config.batch, seeded(self.generator, config.seed, "data", step), self.dtype))
        rows: slice | Tensor = self.rows
        if config.pool is None:
            turn, place = divmod(step, config.ahead)
            if self.drawn is None or self.drawn[0] != (turn, sized):
                g = seeded(self.generator, config.seed, "data", turn)
                self.drawn = (turn, sized), task.sample(config.ahead * config.batch, g, self.dtype)
            sample, begin = self.drawn[1], place * config.batch
            rows = slice(begin + self.rows.start, begin + self.rows.stop)
        else:
            if self.pool is None or self.pool[0] != sized:
                self.pool = sized, task.sample(config.pool, seeded(self.generator, config.seed, "pool"), self.dtype)
            sample = self.pool[1]
            if config.pool > config.batch:
                g = seeded(self.generator, config.seed, "rows", step)
                rows = torch.randperm(config.pool, generator=g, device=g.device)[self.rows]
        prompt, target, covariance = sample.prompt, sample.target, None
        if config.loss == "rao-blackwell":
            basis, spectrum = (v[rows] for v in sample.truth.latent.covariance)
            active = torch.arange(task.d, device=basis.device) < (task.active or task.d)  # type: ignore[attr-defined]
            covariance = Ellipsoid(basis * active[:, None], spectrum)  # of inputs that are 0 elsewhere
        if isinstance(rows, Tensor) or rows != slice(0, len(target)):
            prompt, target = prompt[rows], target[rows]
        weight = target.new_ones(target.shape[1])
        if self.padded and isinstance(prompt, Dense) and size.examples is not None:
            missing = self.task.n + self.task.queries - target.shape[1]  # type: ignore[attr-defined]
            x, y, target = (F.pad(v, (0, 0, 0, missing)) for v in (prompt.x, prompt.y, target))
            prompt, weight = Dense(x, y, check=False), F.pad(weight, (0, missing))
        return Batch(prompt, target, weight, covariance)

    def _resized(self, size: Size) -> Task[Any]:
        """The task at a size: one object for as long as the size stays, for what it computes once, as a network."""
        if self.sized is None or self.sized[0] != size:
            self.sized = size, resized(self.task, size)
        return self.sized[1]

    def _text(self, sample: Sample[Text]) -> Batch:
        total, b = int((sample.target != PAD).sum()), len(sample.target)
        mine = slice(b * self.rank // self.world, b * (self.rank + 1) // self.world)
        prompt, target = sample.prompt[mine], sample.target[mine].flatten()
        at = target.nonzero()[:, 0]
        target, weight = target[at], torch.full((len(at),), 1 / total, dtype=self.dtype)
        if self.padded:
            missing = -len(at) % max(self.config.batch // 8, 1)
            at, target, weight = (F.pad(v, (0, missing)) for v in (at, target, weight))
        target, weight, at = (v.to(self.device, non_blocking=True) for v in (target, weight, at))
        return Batch(prompt.to(device=self.device), target, weight, None, at)
