"""Closed forms: least squares, ridge, averaging, nearest neighbours; and the lasso, whose answer is iterative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.checks import real, whole
from algoformer.prompt import Dense, Prompt
from algoformer.solvers.linear import Linear, answers, counts, cutoff, extremes, origin, ratio
from algoformer.solvers.spectrum import directions, outweighed, prefixes, ridged


class Solution(NamedTuple):
    """The weights of a closed form."""

    w: Tensor


class _Closed(Linear[Solution]):
    steps: ClassVar[int] = 0  # type: ignore[misc]
    limit: ClassVar[int] = 0  # type: ignore[misc]

    def step(self, p: Prompt, s: Solution, t: int) -> Solution:
        raise ValueError(f"{type(self).__name__} is a closed form and has no step")


@dataclass(frozen=True, kw_only=True)
class LeastSquares(_Closed):
    """w = X⁺ y, the minimum-norm least-squares solution, by the singular values of X; for every prefix at once."""

    kinds: ClassVar[tuple[type, ...]] = (Prompt, Dense)

    def prepare(self, p: Any) -> Any:
        through = torch.is_grad_enabled() and isinstance(p, Dense) and p.x.requires_grad
        return p.expand() if through else super().prepare(p)  # eigenvectors have no gradient where values are equal

    def init(self, p: Any) -> Solution:
        if isinstance(p, Dense):
            along = prefixes(p)
            return Solution(along.solved(torch.ones_like(along.s)))
        x, y = p.pairs
        return Solution(torch.linalg.pinv(x, rtol=cutoff(x)[:, 0]) @ y if x.shape[1] else origin(p))

    def read(self, p: Any, s: Solution) -> Float[Tensor, "b o k"]:
        return answers(p, s.w)


@dataclass(frozen=True, kw_only=True)
class Ridge(_Closed):
    """argmin |Xw - y|² + strength |w|²: as strength goes to 0, the minimum-norm least-squares solution.

    By the singular values of X; differentiated by X, by QR of X over sqrt(strength) I, which must be above
    rounding for that.
    """

    strength: float = 1.0

    def __post_init__(self) -> None:
        real("strength", self.strength, above=0)

    def init(self, p: Prompt) -> Solution:
        x, y = p.pairs
        along = directions(x.detach(), y, self.strength)
        w = along.solved(torch.ones_like(along.s))
        if not (torch.is_grad_enabled() and x.requires_grad):
            return Solution(w)
        q, r = torch.linalg.qr(ridged(x, y, self.strength)[0])
        by_x = torch.linalg.solve_triangular(r, x, upper=True, left=False)
        q = by_x.where(outweighed(x, self.strength), q[:, : x.shape[1]])
        by_qr = torch.linalg.solve_triangular(r, q.mT @ y, upper=True)
        return Solution(w.detach() + (by_qr - by_qr.detach()))


@dataclass(frozen=True, kw_only=True)
class Averaging(_Closed):
    """w = (1/n) Σ x_i y_i: the weights that one gradient step of size 1 reaches."""

    def init(self, p: Prompt) -> Solution:
        x, y = p.pairs
        return Solution(x.mT @ y / counts(p))


@dataclass(frozen=True, kw_only=True)
class NearestNeighbours(Algorithm[Prompt, Float[Tensor, "b m k"]]):
    """The mean label of the nearest seen examples; of all where there are fewer. Of equals the first is nearer."""

    neighbours: int = 3
    steps: ClassVar[int] = 0  # type: ignore[misc]
    limit: ClassVar[int] = 0  # type: ignore[misc]

    def __post_init__(self) -> None:
        whole("neighbours", self.neighbours, least=1)

    def init(self, p: Prompt) -> Tensor:
        x, y, seen = p.seen_first  # so that an unseen one is behind its equals
        mode = "donot_use_mm_for_euclid_dist"  # by differences, without their [b m n d]; a product would lose digits
        distance = torch.cdist(p.queries.double(), x.double(), compute_mode=mode).where(seen[:, None], torch.inf)
        near = distance.argsort(dim=-1, stable=True)[..., : self.neighbours]
        rows = torch.arange(len(y), device=y.device)[:, None, None]
        used = seen[rows, near].to(y.dtype)  # [b m j]; labels of unseen pairs are 0
        return ratio(y[rows, near].sum(2), used.sum(2)[..., None])

    def step(self, p: Prompt, s: Tensor, t: int) -> Tensor:
        raise ValueError("NearestNeighbours is a closed form and has no step")

    def read(self, p: Prompt, s: Tensor) -> Float[Tensor, "b m k"]:
        return s


class Shrinking(NamedTuple):
    """The iterate of the lasso and what its steps need."""

    w: Tensor
    x: Tensor
    y: Tensor
    eta: Tensor


@dataclass(frozen=True, kw_only=True)
class Lasso(Linear[Shrinking]):
    """argmin |Xw - y|²/2n + strength |w|₁ by proximal gradient: w ← shrink(w - η X'(Xw - y), strength η n), η = 1/λmax.

    shrink(v, c) = sign(v) max(|v| - c, 0); λmax is that of X'X.
    """

    strength: float = 0.01
    steps: int = 100

    def __post_init__(self) -> None:
        real("strength", self.strength, least=0)
        whole("steps", self.steps)

    def init(self, p: Prompt) -> Shrinking:
        x, y = p.pairs
        top, _ = extremes(x)
        return Shrinking(origin(p), x, y, ratio(torch.ones_like(top), top))

    def step(self, p: Prompt, s: Shrinking, t: int) -> Shrinking:
        w = s.w - s.eta * (s.x.mT @ (s.x @ s.w - s.y))
        return s._replace(w=w.sign() * (w.abs() - self.strength * s.eta * counts(p)).clamp(min=0))
