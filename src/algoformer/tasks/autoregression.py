"""Autoregression on a fixed representation of the last q values (Gao et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.algorithm import Algorithm, On
from algoformer.checks import flags, real, whole
from algoformer.prompt import Series
from algoformer.solvers.closed import LeastSquares, Ridge
from algoformer.solvers.reductions import Windows
from algoformer.task import Sample, Task, Truth
from algoformer.tasks.network import SLOPE, LeakyNetwork
from algoformer.tasks.pairs import drawable
from algoformer.tasks.representation import network_fields


class Dynamics(NamedTuple):
    """The matrix of a series."""

    A: Float[Tensor, "b d d"]


@dataclass(frozen=True, kw_only=True)
class Autoregression(Task[Series]):
    """x_{t+1} = A phi([x_{t+1-q}, .., x_t]) + noise N(0, I), x_1 .. x_q ~ N(0, I), A ~ N(0, scale^2 / d).

    A is drawn for each prompt; phi: R^{qd} -> R^d is one network for all, from `seed`, of mean square 1 on N(0, I).
    With `every` all n + 1 values are asked, of which the first q are nothing but noise: their clean answer is 0.

    The paper's A ~ N(0, I) is scale = sqrt(d), and that series explodes. The default keeps 99.9 % of the |x_t| below 10
    (about 7.5) at d = 20, for n = 200 too; a small d has wilder A and needs less (0.2 from d = 2 on).
    """

    d: int = 20
    n: int = 40
    q: int = 3
    noise: float = 1.0
    scale: float = 0.35
    every: bool = False
    layers: int = 3
    width: int | None = None  # of the hidden layers; None: qd
    slope: float = SLOPE
    seed: int = 0

    def __post_init__(self) -> None:
        flags(self)
        whole("d", self.d, 1)
        whole("q", self.q, 1)
        whole("n", self.n)
        if self.n < self.q:
            raise ValueError(f"n must be at least q = {self.q}; got {self.n}")
        real("noise", self.noise, least=0)
        real("scale", self.scale, above=0)
        network_fields(self.layers, self.width, self.slope, self.seed)

    @cached_property
    def phi(self) -> LeakyNetwork:
        """The representation of a window, shared by all prompts."""
        hidden = (self.width or self.q * self.d,) * (self.layers - 1)
        return LeakyNetwork.drawn((self.q * self.d, *hidden, self.d), seed=self.seed, slope=self.slope)

    def sample(self, batch: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Sample[Series]:
        drawable(batch, generator, dtype)
        d, device = self.d, generator.device
        A = self.scale * d**-0.5 * torch.randn(batch, d, d, generator=generator, device=device, dtype=dtype)
        x = torch.randn(batch, self.n + 1, d, generator=generator, device=device, dtype=dtype)
        clean = torch.zeros_like(x)
        x[:, self.q :] *= self.noise
        for t in range(self.q, self.n + 1):
            clean[:, t] = (A @ self.phi(x[:, t - self.q : t].flatten(1))[:, :, None])[:, :, 0]
            x[:, t] += clean[:, t]
        if self.every:
            return Sample(Series(x, every=True, check=False), x, Truth(clean, Dynamics(A)))
        return Sample(Series(x[:, :-1], check=False), x[:, -1:], Truth(clean[:, -1:], Dynamics(A)))

    @property
    def oracle(self) -> Algorithm[Any, Any]:
        solver = Ridge(strength=self.d * (self.noise / self.scale) ** 2) if self.noise else LeastSquares()
        return On(solver, Windows(q=self.q, phi=self.phi))
