"""Function classes of Garg et al. (2022): sparse linear functions, decision trees, two-layer networks, quadratics."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from algoformer.checks import whole
from algoformer.tasks.covariance import Ellipsoid
from algoformer.tasks.linear import Weights
from algoformer.tasks.pairs import LinearModel, Regression


@dataclass(frozen=True, kw_only=True)
class SparseLinear(Regression):
    """y = w'x + noise with w ~ N(0, I) on `nonzeros` random coordinates among the active ones, 0 elsewhere."""

    nonzeros: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("nonzeros", self.nonzeros, 1)
        if self.nonzeros > (active := self.active or self.d):
            raise ValueError(f"nonzeros must be at most the {active} active coordinates; got {self.nonzeros}")

    def latent(self, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Weights:
        sigma = self.covariance.draw(batch, self.d, generator, dtype)
        device = generator.device
        lots = torch.rand(batch, self.active or self.d, generator=generator, device=device, dtype=dtype)
        support = lots.topk(self.nonzeros, 1).indices
        values = torch.randn(batch, self.nonzeros, generator=generator, device=device, dtype=dtype)
        return Weights(values.new_zeros(batch, self.d).scatter(1, support, values)[:, :, None], sigma)

    def labels(self, latent: Weights, x: Float[Tensor, "b c d"]) -> Float[Tensor, "b c 1"]:
        return x @ latent.w


class Trees(NamedTuple):
    """Complete trees: node i asks for the sign of a coordinate and goes on to node 2i + 1 or, if positive, 2i + 2."""

    coordinates: Int[Tensor, "b nodes"]
    leaves: Float[Tensor, "b leaves"]
    covariance: Ellipsoid


@dataclass(frozen=True, kw_only=True)
class DecisionTree(Regression):
    """y = a leaf + noise: a complete tree of this depth that splits by signs of random coordinates, leaves N(0, 1)."""

    depth: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("depth", self.depth)

    def latent(self, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Trees:
        sigma = self.covariance.draw(batch, self.d, generator, dtype)
        device, leaves = generator.device, 2**self.depth
        coordinates = torch.randint(self.d, (batch, leaves - 1), generator=generator, device=device)
        values = torch.randn(batch, leaves, generator=generator, device=device, dtype=dtype)
        return Trees(coordinates, values, sigma)

    def labels(self, latent: Trees, x: Float[Tensor, "b c d"]) -> Float[Tensor, "b c 1"]:
        node = torch.zeros(x.shape[:2], dtype=torch.int64, device=x.device)
        for _ in range(self.depth):
            asked = latent.coordinates.gather(1, node)
            node = 2 * node + 1 + (x.gather(2, asked[:, :, None])[:, :, 0] > 0)
        return latent.leaves.gather(1, node - (2**self.depth - 1))[:, :, None]


class TwoLayers(NamedTuple):
    """The weights of a network with one hidden layer, and the covariance of the inputs."""

    hidden: Float[Tensor, "b d h"]
    out: Float[Tensor, "b h 1"]
    covariance: Ellipsoid


@dataclass(frozen=True, kw_only=True)
class TwoLayerNetwork(Regression):
    """y = sqrt(2 / hidden) v' unit(W x) + noise, all weights N(0, 1)."""

    hidden: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("hidden", self.hidden, 1)

    @abstractmethod
    def unit(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """What a hidden unit makes of its input."""

    def latent(self, batch: int, generator: torch.Generator, dtype: torch.dtype) -> TwoLayers:
        sigma = self.covariance.draw(batch, self.d, generator, dtype)
        z = torch.randn(batch, self.d + 1, self.hidden, generator=generator, device=generator.device, dtype=dtype)
        return TwoLayers(z[:, :-1], z[:, -1:].mT, sigma)

    def labels(self, latent: TwoLayers, x: Float[Tensor, "b c d"]) -> Float[Tensor, "b c 1"]:
        return math.sqrt(2 / self.hidden) * self.unit(x @ latent.hidden) @ latent.out


@dataclass(frozen=True, kw_only=True)
class ReluNetwork(TwoLayerNetwork):
    """y = sqrt(2 / hidden) v' relu(W x) + noise, all weights N(0, 1)."""

    def unit(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return z.relu()


@dataclass(frozen=True, kw_only=True)
class TanhNetwork(TwoLayerNetwork):
    """y = sqrt(2 / hidden) v' tanh(W x) + noise, all weights N(0, 1) (Fu et al. 2024)."""

    def unit(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return z.tanh()


@dataclass(frozen=True, kw_only=True)
class Quadratic(Regression):
    """y = w'(x^2) / sqrt(3) + noise, the square taken by coordinate, w ~ N(0, I)."""

    def latent(self, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Weights:
        sigma = self.covariance.draw(batch, self.d, generator, dtype)
        w = torch.randn(batch, self.d, 1, generator=generator, device=generator.device, dtype=dtype)
        return Weights(w, sigma)

    def labels(self, latent: Weights, x: Float[Tensor, "b c d"]) -> Float[Tensor, "b c 1"]:
        return 3**-0.5 * (x.square() @ latent.w)

    @property
    def linear(self) -> LinearModel:
        return LinearModel(1 / 3, torch.square)
