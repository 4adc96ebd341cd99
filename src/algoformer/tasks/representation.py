"""Regression on a fixed representation of the inputs (Gao et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import real, whole
from algoformer.tasks.covariance import Ellipsoid
from algoformer.tasks.network import SLOPE, LeakyNetwork
from algoformer.tasks.pairs import LinearModel, Regression


class Readout(NamedTuple):
    """The matrix over the representation, and the covariance of the inputs."""

    A: Float[Tensor, "b k d"]
    covariance: Ellipsoid


@dataclass(frozen=True, kw_only=True)
class Representation(Regression):
    """y = A phi(x) + noise, A ~ N(0, scale^2 / d) for each prompt; phi: R^d -> R^d is one network for all, from `seed`.

    phi has mean square 1 on x ~ N(0, I), so that Var y = scale^2 + noise^2 there.
    """

    k: int = 1
    layers: int = 3
    width: int | None = None  # of the hidden layers; None: d
    slope: float = SLOPE
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("k", self.k, 1)
        network_fields(self.layers, self.width, self.slope, self.seed)
        real("scale", self.scale, above=0)

    @cached_property
    def phi(self) -> LeakyNetwork:
        """The representation, shared by all prompts."""
        hidden = (self.width or self.d,) * (self.layers - 1)
        return LeakyNetwork.drawn((self.d, *hidden, self.d), seed=self.seed, slope=self.slope)

    def latent(self, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Readout:
        sigma = self.covariance.draw(batch, self.d, generator, dtype)
        z = torch.randn(batch, self.k, self.d, generator=generator, device=generator.device, dtype=dtype)
        return Readout(self.scale * self.d**-0.5 * z, sigma)

    def labels(self, latent: Readout, x: Float[Tensor, "b c d"]) -> Float[Tensor, "b c k"]:
        return self.phi(x) @ latent.A.mT

    @property
    def linear(self) -> LinearModel:
        return LinearModel(self.scale**2 / self.d, self.phi)


def network_fields(layers: int, width: int | None, slope: float, seed: int) -> None:
    """Hold the fields of a task with a fixed network to what they must be."""
    whole("layers", layers, 1)
    if width is not None:
        whole("width", width, 1)
    real("slope", slope, above=0)
    whole("seed", seed)
