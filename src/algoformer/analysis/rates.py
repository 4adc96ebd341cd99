"""How fast an error falls over steps: linear, quadratic or of order p, with the estimate's uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.analysis.bootstrap import Bootstrap

ROUNDING = 1e-6  # of an order


@dataclass(frozen=True)
class Rate:
    """The order p of e_{t+1} ~ C e_t^p with its interval, and where p is 1 within it the factor e_{t+1}/e_t."""

    order: float
    low: float
    high: float
    factor: float
    pairs: int

    @property
    def linear(self) -> bool:
        """Is 1 within the interval, to rounding?"""
        return self.low <= 1 + ROUNDING and self.high >= 1 - ROUNDING

    def __str__(self) -> str:
        if self.linear:
            return f"linear, factor {self.factor:.3g} a step"
        return f"order {self.order:.2f} ({self.low:.2f} to {self.high:.2f})"


def rate(
    errors: Float[Tensor, "t b"], *, floor: float, ceiling: float = 0.5, bootstrap: Bootstrap | None = None
) -> Rate:
    """Fit log e_{t+1} = p log e_t + log C over the pairs of steps with every e between floor and ceiling.

    Errors are relative, by prompt. Their geometric means over prompts are fitted, and prompts are resampled.
    """
    if not 0 < floor < ceiling:
        raise ValueError(f"floor must be above 0 and below the ceiling {ceiling:g}; got {floor:g}")
    logs = errors.clamp(min=torch.finfo(errors.dtype).tiny).log()
    mean = logs.mean(1)
    inside = (mean > math.log(floor)) & (mean < math.log(ceiling))
    use = (inside[:-1] & inside[1:]).nonzero()[:, 0]
    if len(use) < 2:
        raise ValueError(f"a rate needs 2 pairs of steps with errors from {floor:g} to {ceiling:g}; got {len(use)}")
    sampler = bootstrap or Bootstrap()
    band = sampler.around(_order(mean, use), _order(sampler.means(logs.mT.contiguous()), use))
    factor = float((mean[use + 1] - mean[use]).mean().exp())
    return Rate(float(band.value), float(band.low), float(band.high), factor, len(use))


def _order(logs: Tensor, use: Tensor) -> Tensor:
    x, y = logs[..., use], logs[..., use + 1]
    x, y = x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
    return (x * y).sum(-1) / x.square().sum(-1)
