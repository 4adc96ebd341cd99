"""Covariances of the inputs, drawn as a basis and a spectrum (Ahn et al. 2023; Giannou et al. 2024; Fu et al. 2024)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import real, whole


class Ellipsoid(NamedTuple):
    """Drawn covariances Sigma = Q diag(spectrum) Q', one a prompt."""

    basis: Float[Tensor, "b d d"]
    spectrum: Float[Tensor, "b d"]

    @property
    def matrix(self) -> Float[Tensor, "b d d"]:
        """The covariances Sigma."""
        return (self.basis * self.spectrum[:, None]) @ self.basis.mT

    def colour(self, z: Float[Tensor, "b c d"]) -> Float[Tensor, "b c d"]:
        """Rows of N(0, Sigma) from rows of N(0, I)."""
        return (z * self.spectrum.sqrt()[:, None]) @ self.basis.mT

    def precolour(self, z: Float[Tensor, "b c d"]) -> Float[Tensor, "b c d"]:
        """Rows of N(0, Sigma^-1) from rows of N(0, I)."""
        return (z * self.spectrum.rsqrt()[:, None]) @ self.basis.mT


class Covariance(ABC):
    """A distribution over the covariance of x; one that is `shared` is drawn once for the batch."""

    shared: bool = False

    @abstractmethod
    def draw(self, batch: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Ellipsoid:
        """The covariance of each prompt of a batch."""

    def check(self, d: int) -> None:  # noqa: B027  # most have every dimension
        """Refuse a dimension that this covariance does not have."""

    def rank(self, d: int) -> int:
        """How many dimensions the inputs fill."""
        return d

    def fixed(self, d: int, generator: torch.Generator) -> Given:
        """One draw of it, kept for good."""
        self.check(d)
        return Given(matrix=self.draw(1, d, generator, torch.float64).matrix[0])


@dataclass(frozen=True, kw_only=True)
class Isotropic(Covariance):
    """Sigma = I."""

    def draw(self, batch: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Ellipsoid:
        basis = torch.eye(d, device=generator.device, dtype=dtype).expand(batch, d, d)
        return Ellipsoid(basis, basis.new_ones(batch, d))


@dataclass(frozen=True, kw_only=True, eq=False)
class Given(Covariance):
    """One symmetric positive semidefinite matrix for all prompts; directions below rounding count as flat."""

    matrix: Float[Tensor, "d d"]
    _axes: Ellipsoid = field(init=False, repr=False)

    def __post_init__(self) -> None:
        m = self.matrix
        if not isinstance(m, Tensor) or not m.is_floating_point():
            raise TypeError(f"matrix must be a tensor of floating-point numbers; got {type(m).__name__}")
        if m.ndim != 2 or m.shape[0] != m.shape[1] or not m.numel():
            raise ValueError(f"matrix must be (d, d); got {tuple(m.shape)}")
        if not bool(m.isfinite().all()):
            raise ValueError("matrix must be finite; got NaN or infinity")
        eps = 16 * len(m) * torch.finfo(m.dtype).eps * float(m.abs().max())
        if (apart := float((m - m.mT).abs().max())) > eps:
            raise ValueError(f"matrix must be symmetric; got entries {apart:.1e} apart")
        m = m.detach().cpu().double()
        spectrum, basis = torch.linalg.eigh((m + m.mT) / 2)
        if float(spectrum[-1]) <= 0 or float(spectrum[0]) < -eps:
            raise ValueError(f"matrix must be positive semidefinite, not 0; got an eigenvalue {float(spectrum[0]):.3g}")
        object.__setattr__(self, "_axes", Ellipsoid(basis[None], spectrum.where(spectrum > eps, 0.0)[None]))

    def draw(self, batch: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Ellipsoid:
        basis, spectrum = self.placed(dtype, generator.device)
        return Ellipsoid(basis.expand(batch, d, d), spectrum.expand(batch, d))

    def placed(self, dtype: torch.dtype, device: torch.device) -> Ellipsoid:
        """The one ellipsoid in a dtype on a device."""
        return _placed(self, dtype, device)

    def check(self, d: int) -> None:
        if len(self.matrix) != d:
            raise ValueError(f"the given covariance must be (d, d) = ({d}, {d}); got {tuple(self.matrix.shape)}")

    def rank(self, d: int) -> int:
        return int((self._axes.spectrum > 0).sum())


@lru_cache(maxsize=32)  # a copy to the GPU waits for the GPU: once is enough
def _placed(given: Given, dtype: torch.dtype, device: torch.device) -> Ellipsoid:
    return Ellipsoid(*(v.to(device=device, dtype=dtype) for v in given._axes))


@dataclass(frozen=True, kw_only=True)
class _Rotated(Covariance):
    """A spectrum in a uniformly random basis: one for each prompt or, if `shared`, one for the batch."""

    shared: bool = False

    @abstractmethod
    def spectra(self, count: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Float[Tensor, "b d"]:
        """The eigenvalues of `count` covariances."""

    def draw(self, batch: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Ellipsoid:
        count = 1 if self.shared else batch
        spectrum = self.spectra(count, d, generator, dtype)
        return Ellipsoid(rotations(count, d, generator, dtype).expand(batch, d, d), spectrum.expand(batch, d))


@dataclass(frozen=True, kw_only=True)
class Spectrum(_Rotated):
    """Sigma = U'D^2U with given eigenvalues D^2; by default those of Ahn et al. (2023) at d = 5, condition 16."""

    eigenvalues: tuple[float, ...] = (1.0, 1.0, 0.25, 0.0625, 1.0)

    def __post_init__(self) -> None:
        for value in self.eigenvalues:
            real("every eigenvalue", value, least=0)
        if not any(self.eigenvalues):
            raise ValueError(f"eigenvalues must not all be 0; got {self.eigenvalues}")

    def spectra(self, count: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Float[Tensor, "b d"]:
        out = torch.empty(count, d, device=generator.device, dtype=dtype)
        for i, value in enumerate(self.eigenvalues):
            out[:, i] = value
        return out

    def check(self, d: int) -> None:
        if len(self.eigenvalues) != d:
            raise ValueError(f"eigenvalues must be d = {d} numbers; got {len(self.eigenvalues)}")

    def rank(self, d: int) -> int:
        return sum(v > 0 for v in self.eigenvalues)


@dataclass(frozen=True, kw_only=True)
class Conditioned(_Rotated):
    """Condition number kappa: lmax ~ U[1, 100], lmin = lmax / kappa, the rest U[lmin, lmax] (Giannou et al. 2024).

    The sampler of the paper as it stands: kappa = 1 is lmax I, not I; at d = 1 there is lmax alone.
    """

    kappa: float = 10.0

    def __post_init__(self) -> None:
        real("kappa", self.kappa, least=1)

    def spectra(self, count: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Float[Tensor, "b d"]:
        u = torch.rand(count, d, generator=generator, device=generator.device, dtype=dtype)
        largest = 1 + 99 * u[:, :1]
        share = torch.cat([torch.ones_like(largest), u[:, 1:]], 1)
        if d > 1:
            share[:, 1] = 0
        return largest * (1 / self.kappa + (1 - 1 / self.kappa) * share)


@dataclass(frozen=True, kw_only=True)
class HalfAndHalf(_Rotated):
    """The first half of the eigenvalues `condition` times the second, with trace d (Fu et al. 2024)."""

    condition: float = 100.0

    def __post_init__(self) -> None:
        real("condition", self.condition, least=1)

    def spectra(self, count: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Float[Tensor, "b d"]:
        large = d // 2
        scale = d / (large * self.condition + d - large)
        out = torch.full((count, d), scale, device=generator.device, dtype=dtype)
        out[:, :large] *= self.condition
        return out


@dataclass(frozen=True, kw_only=True)
class Subspace(_Rotated):
    """Inputs in a random subspace, by default of half the dimensions, with trace d (Garg et al. 2022)."""

    dimension: int | None = None

    def __post_init__(self) -> None:
        if self.dimension is not None:
            whole("dimension", self.dimension, 1)

    def spectra(self, count: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Float[Tensor, "b d"]:
        out = torch.zeros(count, d, device=generator.device, dtype=dtype)
        out[:, : self.rank(d)] = d / self.rank(d)
        return out

    def check(self, d: int) -> None:
        if not 1 <= self.rank(d) <= d:
            raise ValueError(f"a subspace must have 1 to d = {d} dimensions; got {self.rank(d)}")

    def rank(self, d: int) -> int:
        return d // 2 if self.dimension is None else self.dimension


def rotations(count: int, d: int, generator: torch.Generator, dtype: torch.dtype) -> Float[Tensor, "b d d"]:
    """Orthogonal matrices, uniform (Haar): the Q of a Gaussian matrix, from the reflections that its QR would take.

    Each reflection is that of a fresh Gaussian vector in one dimension less (Stewart 1980). Their product is
    I - U T U' with T^-1 = triu(U'U, 1) + I/2, which a GPU takes for the whole batch at once, and QR matrix by matrix.
    A vector of length 0 reflects nothing: in the last dimension one in 2^25 of a GPU's is, by rounding in Box-Muller.
    """
    g = torch.randn(count, d, d, generator=generator, device=generator.device, dtype=dtype).tril()
    sign = torch.where(g.diagonal(dim1=1, dim2=2) < 0, -1.0, 1.0).to(dtype)
    u = g + torch.diag_embed(sign * g.norm(dim=1))
    u = u / u.norm(dim=1, keepdim=True).clamp(min=torch.finfo(dtype).tiny)
    eye = torch.eye(d, device=generator.device, dtype=dtype)
    reflected = torch.linalg.solve_triangular((u.mT @ u).triu(1) + eye / 2, u.mT, upper=True)
    out: Tensor = (u @ reflected - eye) * sign[:, None]
    return out
