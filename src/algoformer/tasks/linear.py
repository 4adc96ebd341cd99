"""Linear regression in context (Garg et al. 2022; Ahn et al. 2023; Fu et al. 2024; Giannou et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import one_of, whole
from algoformer.tasks.covariance import Ellipsoid, Given, Isotropic
from algoformer.tasks.pairs import LinearModel, Regression


class Weights(NamedTuple):
    """The weights of a linear function, and the covariance of its inputs."""

    w: Float[Tensor, "b d k"]
    covariance: Ellipsoid


@dataclass(frozen=True, kw_only=True)
class LinearRegression(Regression):
    """y = w'x + noise: x ~ N(0, Sigma), each of k columns w ~ N(0, I) or, with the prior "inverse", N(0, Sigma^-1)."""

    k: int = 1
    prior: Literal["identity", "inverse"] = "identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("k", self.k, 1)
        one_of("prior", self.prior, ("identity", "inverse"))
        if self.prior == "inverse" and (rank := self.covariance.rank(self.d)) < self.d:
            raise ValueError(f"the prior N(0, Sigma^-1) needs a Sigma of rank d = {self.d}; got rank {rank}")

    def latent(self, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Weights:
        sigma = self.covariance.draw(batch, self.d, generator, dtype)
        z = torch.randn(batch, self.k, self.d, generator=generator, device=generator.device, dtype=dtype)
        return Weights((z if self.prior == "identity" else sigma.precolour(z)).mT, sigma)

    def labels(self, latent: Weights, x: Float[Tensor, "b c d"]) -> Float[Tensor, "b c k"]:
        return x @ latent.w

    @property
    def linear(self) -> LinearModel | None:
        if self.prior == "identity" or isinstance(self.covariance, Isotropic):
            return LinearModel()
        return LinearModel(features=Whitening(self.covariance)) if isinstance(self.covariance, Given) else None


@dataclass(frozen=True)
class Whitening:
    """x -> Sigma^-1/2 x, in which weights of prior N(0, Sigma^-1) have the prior N(0, I)."""

    covariance: Given

    def __call__(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        basis, spectrum = (v[0] for v in self.covariance.placed(x.dtype, x.device))
        return (x @ basis) * spectrum.rsqrt()
