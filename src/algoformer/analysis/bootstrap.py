"""Bands by the bootstrap: prompts are drawn again with replacement, and seeds first where there are several."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import real, whole


@dataclass(frozen=True, eq=False)
class Band:
    """An estimate with the interval that holds it."""

    value: Float[Tensor, "*shape"]
    low: Float[Tensor, "*shape"]
    high: Float[Tensor, "*shape"]


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """Percentile intervals from `draws` resamples, a function of `seed`.

    Of few rows, or seeds, they are too narrow: at level 0.95 they hold the mean in about 94 of 100 cases of 64 rows, 89
    of 8 and 79 of 4.
    """

    draws: int = 1000
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        whole("draws", self.draws, least=2)
        real("level", self.level, above=0)
        whole("seed", self.seed)
        if self.level >= 1:
            raise ValueError(f"level must be below 1; got {self.level}")

    def means(self, values: Float[Tensor, "b *shape"], seeds: int = 1) -> Float[Tensor, "draws *shape"]:
        """The means of resampled rows; rows come seed by seed, and each resample draws seeds, then rows within them."""
        whole("seeds", seeds, least=1)
        b = len(values)
        if b == 0 or b % seeds:
            raise ValueError(f"values must have rows, as many for each of {seeds} seeds; got {b}")
        each = b // seeds
        g = torch.Generator().manual_seed(int(self.seed))
        rows = torch.randint(each, (self.draws, seeds, each), generator=g)
        if seeds > 1:
            rows = rows + each * torch.randint(seeds, (self.draws, seeds, 1), generator=g)
        counts = torch.zeros(self.draws, b, dtype=values.dtype)
        counts.scatter_add_(1, rows.flatten(1), torch.ones(self.draws, b, dtype=values.dtype))
        means = counts.to(values.device) @ values.reshape(b, -1) / b
        return means.reshape(self.draws, *values.shape[1:])

    def band(self, values: Float[Tensor, "b *shape"], seeds: int = 1) -> Band:
        """The mean over rows with its interval."""
        return self.around(values.mean(0), self.means(values, seeds))

    def around(self, value: Float[Tensor, "*shape"], draws: Float[Tensor, "draws *shape"]) -> Band:
        """A value with the percentiles of its resamples."""
        tail = (1 - self.level) / 2
        low, high = draws.quantile(torch.tensor([tail, 1 - tail], dtype=draws.dtype, device=draws.device), dim=0)
        return Band(value, low, high)
