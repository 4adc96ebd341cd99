"""Distribution shifts (Garg et al. 2022, Section 4): tasks that replace one of the two draws of the task they wrap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import real
from algoformer.tasks.covariance import Covariance, Isotropic, Subspace
from algoformer.tasks.pairs import GaussianInputs, LinearModel, Pairs, Regression, noisy


@dataclass(frozen=True)
class Shift(Pairs):
    """Another task with one of its draws replaced; shifts may wrap shifts, the outermost has the last word.

    What a shift does not replace is the wrapped task's. Inputs are drawn apart from the function, so that the Bayes
    predictor of the wrapped task remains the one of its shift; scaled labels and other noise change it as they must.
    """

    task: Pairs

    def __post_init__(self) -> None:
        if not isinstance(self.task, Pairs):
            raise TypeError(f"{self._name} shifts a task of pairs (x, y); got {type(self.task).__name__}")

    @property
    def d(self) -> int:  # type: ignore[override]
        return self.task.d

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.task.n

    @property
    def queries(self) -> int:  # type: ignore[override]
        return self.task.queries

    @property
    def dense(self) -> bool:  # type: ignore[override]
        return self.task.dense

    @property
    def noise(self) -> float:  # type: ignore[override]
        return self.task.noise

    @property
    def shares(self) -> bool:
        return self.task.shares

    @property
    def rank(self) -> int:
        return self.task.rank

    @property
    def linear(self) -> LinearModel | None:
        return self.task.linear

    def latent(self, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Any:
        return self.task.latent(batch, generator, dtype)

    def inputs(self, latent: Any, count: int, generator: torch.Generator) -> Float[Tensor, "b c d"]:
        return self.task.inputs(latent, count, generator)

    def labels(self, latent: Any, x: Float[Tensor, "b c d"]) -> Float[Tensor, "b c k"]:
        return self.task.labels(latent, x)

    def observed(
        self, latent: Any, x: Float[Tensor, "b c d"], clean: Float[Tensor, "b c k"], generator: torch.Generator
    ) -> Float[Tensor, "b c k"]:
        return self.task.observed(latent, x, clean, generator)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _wrapped(self) -> Iterator[Pairs]:
        task = self.task
        yield task
        while isinstance(task, Shift):
            task = task.task
            yield task

    @property
    def _origin(self) -> Pairs:
        return [*self._wrapped()][-1]

    def _real_labels(self) -> None:
        if not isinstance(self._origin, Regression):
            raise TypeError(f"{self._name} needs real labels; those of {type(self._origin).__name__} are not")

    def _own_queries(self) -> None:
        if self.dense or not self.queries:
            raise TypeError(
                f"{self._name} treats queries apart from examples; this {type(self._origin).__name__} has "
                f"dense = {self.dense}, queries = {self.queries}"
            )


@dataclass(frozen=True)
class ScaledInputs(Shift):
    """x becomes scale x, and y = f(scale x)."""

    _: KW_ONLY
    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        real("scale", self.scale, above=0)

    def inputs(self, latent: Any, count: int, generator: torch.Generator) -> Float[Tensor, "b c d"]:
        return self.scale * self.task.inputs(latent, count, generator)


@dataclass(frozen=True)
class ScaledLabels(Shift):
    """f becomes scale f; the noise stays."""

    _: KW_ONLY
    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        real("scale", self.scale, above=0)
        self._real_labels()

    def labels(self, latent: Any, x: Float[Tensor, "b c d"]) -> Float[Tensor, "b c k"]:
        return self.scale * self.task.labels(latent, x)

    @property
    def linear(self) -> LinearModel | None:
        inner = self.task.linear
        return inner and inner._replace(variance=self.scale**2 * inner.variance)


@dataclass(frozen=True)
class OtherNoise(Shift):
    """Noise of another standard deviation on the labels, in place of the task's."""

    _: KW_ONLY
    noise: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        real("noise", self.noise, least=0)
        self._real_labels()

    def observed(
        self, latent: Any, x: Float[Tensor, "b c d"], clean: Float[Tensor, "b c k"], generator: torch.Generator
    ) -> Float[Tensor, "b c k"]:
        return noisy(clean, self.noise, generator)


@dataclass(frozen=True)
class OtherCovariance(Shift):
    """x ~ N(0, another Sigma); the functions are drawn as before."""

    _: KW_ONLY
    covariance: Covariance = Isotropic()  # noqa: RUF009  # frozen

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self._origin, GaussianInputs):
            raise TypeError(f"{self._name} needs a task of Gaussian inputs; got {type(self._origin).__name__}")
        if not isinstance(self.covariance, Covariance):
            raise TypeError(f"covariance must be a Covariance; got {type(self.covariance).__name__}")
        self.covariance.check(self.d)
        if any(isinstance(task, OrthogonalQuery) for task in self._wrapped()) and self.n >= self.rank:
            raise ValueError(f"a query orthogonal to n = {self.n} examples needs inputs of rank n + 1; got {self.rank}")

    @property
    def shares(self) -> bool:
        return self.task.shares or self.covariance.shared

    @property
    def rank(self) -> int:
        active = self._origin.active  # type: ignore[attr-defined]
        return min(self.covariance.rank(self.d), active or self.d)

    def latent(self, batch: int, generator: torch.Generator, dtype: torch.dtype) -> Any:
        latent = self.task.latent(batch, generator, dtype)
        return latent._replace(covariance=self.covariance.draw(batch, self.d, generator, dtype))


@dataclass(frozen=True)
class HalfSubspace(OtherCovariance):
    """Inputs in a random subspace of half the dimensions, their covariance of trace d."""

    covariance: Covariance = Subspace()  # noqa: RUF009  # frozen


@dataclass(frozen=True)
class OrthogonalQuery(Shift):
    """Queries orthogonal to all examples, of their former length; n must be below the rank of the inputs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._own_queries()
        if any(isinstance(task, RepeatedQuery) for task in self._wrapped()):
            raise TypeError(f"{self._name} keeps the part of a query that no example has; RepeatedQuery leaves none")
        if self.n >= self.rank:
            raise ValueError(f"a query orthogonal to n = {self.n} examples needs inputs of rank n + 1; got {self.rank}")

    def inputs(self, latent: Any, count: int, generator: torch.Generator) -> Float[Tensor, "b c d"]:
        x = self.task.inputs(latent, count, generator)
        examples, queries = x[:, : self.n], x[:, self.n :]
        basis = torch.linalg.qr(examples.mT).Q
        apart = queries
        for _ in range(2):  # once more removes what rounding left
            apart = apart - (apart @ basis) @ basis.mT
        return torch.cat([examples, apart * (queries.norm(dim=-1) / apart.norm(dim=-1))[..., None]], 1)


@dataclass(frozen=True)
class RepeatedQuery(Shift):
    """Queries equal to examples chosen at random; under noise their labels are drawn anew."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._own_queries()
        if self.n < 1:
            raise ValueError(f"{self._name} needs n of at least 1 example; got {self.n}")

    def inputs(self, latent: Any, count: int, generator: torch.Generator) -> Float[Tensor, "b c d"]:
        x = self.task.inputs(latent, count, generator)
        shape = (len(x), max(count - self.n, 0))
        chosen = torch.randint(self.n, shape, generator=generator, device=x.device)
        examples = x[:, : self.n]
        return torch.cat([examples, examples.gather(1, chosen[:, :, None].expand(*shape, self.d))], 1)


@dataclass(frozen=True)
class Quadrants(Shift):
    """Examples in one random orthant, a new one for each prompt; queries anywhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._own_queries()

    def inputs(self, latent: Any, count: int, generator: torch.Generator) -> Float[Tensor, "b c d"]:
        x = self.task.inputs(latent, count, generator)
        coins = torch.randint(2, (len(x), 1, self.d), generator=generator, device=x.device)
        return torch.cat([x[:, : self.n].abs() * (2 * coins - 1), x[:, self.n :]], 1)
