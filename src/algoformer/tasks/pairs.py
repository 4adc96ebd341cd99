"""Tasks of pairs (x_i, y_i): a function is drawn, then its inputs; everything else is given once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.algorithm import Algorithm, On
from algoformer.checks import flags, real, whole
from algoformer.prompt import Dense, Prompt
from algoformer.solvers.closed import LeastSquares, Ridge
from algoformer.solvers.reductions import Features
from algoformer.task import Sample, Task, Truth
from algoformer.tasks.covariance import Covariance, Isotropic


class LinearModel(NamedTuple):
    """Labels W' phi(x) with weights N(0, variance): with the noise, all that a Bayes predictor must know."""

    variance: float = 1.0
    features: Callable[[Tensor], Tensor] | None = None  # None: phi(x) = x


class Pairs(Task[Prompt | Dense]):
    """A function and inputs, each drawn; n pairs and `queries` more, or all of them as one dense prompt.

    A latent is a NamedTuple that holds the function and, as `covariance`, the ellipsoid of the inputs.
    """

    d: int
    n: int
    queries: int
    dense: bool
    noise: float = 0.0

    @property
    @abstractmethod
    def rank(self) -> int:
        """How many dimensions the inputs fill."""

    @abstractmethod
    def latent(self, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Any:
        """The first draw: the functions."""

    @abstractmethod
    def inputs(self, latent: Any, count: int, generator: torch.Generator) -> Float[Tensor, "b c d"]:
        """The second draw: `count` points a prompt, the first n of them its examples."""

    @abstractmethod
    def labels(self, latent: Any, x: Float[Tensor, "b c d"]) -> Float[Tensor, "b c k"]:
        """The labels before noise."""

    @abstractmethod
    def observed(
        self, latent: Any, x: Float[Tensor, "b c d"], clean: Float[Tensor, "b c k"], generator: torch.Generator
    ) -> Float[Tensor, "b c k"]:
        """The labels as a prompt holds them."""

    @property
    def linear(self) -> LinearModel | None:
        """The labels as a linear model in known features with Gaussian weights; None where they are not one."""
        return None

    @property
    def oracle(self) -> Algorithm[Any, Any] | None:
        if self.linear is None:
            return None
        variance, features = self.linear
        solver = Ridge(strength=self.noise**2 / variance) if self.noise else LeastSquares()
        return solver if features is None else On(solver, Features(features))

    def sample(
        self, batch: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> Sample[Prompt | Dense]:
        drawable(batch, generator, dtype)
        latent = self.latent(batch, generator, dtype)
        x = self.inputs(latent, self.n + self.queries, generator)
        clean = self.labels(latent, x)
        y = self.observed(latent, x, clean, generator)
        if self.dense:
            return Sample(Dense(x, y, check=False), y, Truth(clean, latent))
        n = self.n
        return Sample(Prompt(x[:, :n], y[:, :n], x[:, n:], check=False), y[:, n:], Truth(clean[:, n:], latent))


@dataclass(frozen=True, kw_only=True)
class GaussianInputs(Pairs):
    """Inputs x ~ N(0, Sigma), of which all coordinates from the `active` first on are 0 (Garg et al.'s curriculum)."""

    d: int = 20
    n: int = 40
    queries: int = 1
    dense: bool = False
    covariance: Covariance = Isotropic()  # noqa: RUF009  # frozen
    active: int | None = None

    def __post_init__(self) -> None:
        flags(self)
        whole("d", self.d, 1)
        whole("n", self.n)
        whole("queries", self.queries)
        if self.dense and not self.n + self.queries:
            raise ValueError("a dense prompt must hold at least 1 pair; got n + queries = 0")
        if not isinstance(self.covariance, Covariance):
            raise TypeError(f"covariance must be a Covariance; got {type(self.covariance).__name__}")
        self.covariance.check(self.d)
        if self.active is not None:
            whole("active", self.active, 1)
            if self.active > self.d:
                raise ValueError(f"active must be at most d = {self.d}; got {self.active}")

    @property
    def shares(self) -> bool:
        return self.covariance.shared

    @property
    def rank(self) -> int:
        return min(self.covariance.rank(self.d), self.active or self.d)

    def inputs(self, latent: Any, count: int, generator: torch.Generator) -> Float[Tensor, "b c d"]:
        spectrum = latent.covariance.spectrum
        z = torch.randn(len(spectrum), count, self.d, generator=generator, device=spectrum.device, dtype=spectrum.dtype)
        x: Tensor = latent.covariance.colour(z)
        if self.active is not None:
            x[..., self.active :] = 0
        return x


@dataclass(frozen=True, kw_only=True)
class Regression(GaussianInputs):
    """y = f(x) + noise N(0, I)."""

    noise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        real("noise", self.noise, least=0)

    def observed(
        self, latent: Any, x: Float[Tensor, "b c d"], clean: Float[Tensor, "b c k"], generator: torch.Generator
    ) -> Float[Tensor, "b c k"]:
        return noisy(clean, self.noise, generator)


def noisy(clean: Float[Tensor, "..."], noise: float, generator: torch.Generator) -> Float[Tensor, "..."]:
    """The values with Gaussian noise of this standard deviation."""
    if noise == 0:
        return clean
    return clean + noise * torch.randn(clean.shape, generator=generator, device=clean.device, dtype=clean.dtype)


def drawable(batch: int, generator: torch.Generator, dtype: torch.dtype) -> None:
    """Hold the arguments of `sample` to what they must be."""
    whole("batch", batch, 1)
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator; got {type(generator).__name__}")
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype must be torch.float32 or torch.float64; got {dtype}")
