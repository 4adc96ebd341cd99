"""Leaky-ReLU networks without biases: the fixed representations of Gao et al. (2024)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import real, whole

SLOPE = 0.01  # assumed: no paper states it


def leaky(z: Float[Tensor, "*shape"], slope: float) -> Float[Tensor, "*shape"]:
    """The leaky ReLU: z where z >= 0, slope z elsewhere."""
    return torch.nn.functional.leaky_relu(z, slope)


def unleaky(s: Float[Tensor, "*shape"], slope: float) -> Float[Tensor, "*shape"]:
    """The z whose leaky ReLU is s."""
    return torch.where(s < 0, s / slope, s)


@dataclass(frozen=True, kw_only=True, eq=False)
class LeakyNetwork:
    """h_l = leaky(W_l h_{l-1}), h_0 = x; the weights follow the dtype and device of x."""

    weights: tuple[Float[Tensor, "out inn"], ...]
    slope: float = SLOPE

    def __post_init__(self) -> None:
        real("slope", self.slope, above=0)
        if not self.weights:
            raise ValueError("a network must have at least 1 layer; got no weights")
        sizes = [tuple(w.shape) for w in self.weights]
        if any(len(s) != 2 for s in sizes) or any(a[0] != b[1] for a, b in pairwise(sizes)):
            raise ValueError(f"weights must be matrices (out, in) that follow each other; got {sizes}")

    @classmethod
    def drawn(cls, sizes: tuple[int, ...], *, seed: int, slope: float = SLOPE) -> LeakyNetwork:
        """Gaussian weights, a function of the seed, scaled so that every h_l has mean square 1 when x ~ N(0, I).

        The mean square of a layer is measured on 2^14 inputs, which leaves it within about 1 %.
        """
        whole("seed", seed)
        for size in sizes:
            whole("every width", size, 1)
        generator = torch.Generator().manual_seed(seed)
        h = torch.randn(2**14, sizes[0], generator=generator, dtype=torch.float64)
        weights = []
        for inn, out in pairwise(sizes):
            w = torch.randn(out, inn, generator=generator, dtype=torch.float64)
            h = leaky(h @ w.mT, slope)
            scale = h.square().mean().rsqrt()
            weights.append(scale * w)
            h = scale * h
        return cls(weights=tuple(weights), slope=slope)

    def __call__(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch f"]:
        return self.states(x)[-1]

    def states(self, x: Float[Tensor, "*batch d"]) -> list[Tensor]:
        """x and the output of every layer."""
        if x.shape[-1] != self.weights[0].shape[1]:
            raise ValueError(f"x must be (..., {self.weights[0].shape[1]}); got {tuple(x.shape)}")
        states = [x]
        for w in self.placed(x.dtype, x.device):
            states.append(leaky(states[-1] @ w.mT, self.slope))
        return states

    def placed(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
        """The weights in a dtype on a device."""
        return _placed(self, dtype, device)


@lru_cache(maxsize=32)  # a copy to the GPU waits for the GPU: once is enough
def _placed(network: LeakyNetwork, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    return tuple(w.to(device=device, dtype=dtype) for w in network.weights)
