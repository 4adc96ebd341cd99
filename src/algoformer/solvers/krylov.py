"""Conjugate gradients and quasi-Newton methods for |Xw - y|²/2, each label by itself, from w₀ = 0.

Their step sizes are ratios of |X|⁶|y|², which has no room in float32 where X and y are 1e5 or 1e-5. So a state holds w
as it is and all else as numbers, X and y in units of their own, powers of two. What the formulas call r, v, g and H a
state gives in the units of the prompt, infinite where there is no room.

Once the gradient is rounding noise w stays where it is. Where the gradient is X'r that noise is |X||r| in rounding, far
below what a small singular value adds to it. BFGS, whose H loses its sign there, stops at the rounding of X'y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from algoformer.checks import one_of, whole
from algoformer.prompt import Prompt
from algoformer.solvers.linear import Linear, extremes, origin, ratio, unit

Search = Literal["exact", "unit"]


class Units(NamedTuple):
    """Of the inputs of each prompt [b 1 1], and of each label [b 1 k]."""

    x: Tensor
    y: Tensor

    @property
    def w(self) -> Tensor:
        """The unit of weights."""
        return self.y / self.x

    def slope(self, numbers: Tensor) -> Tensor:
        """Numbers that are a gradient, in the units of the prompt."""
        return numbers * self.x * self.y


class Conjugate(NamedTuple):
    """The iterate; as numbers the residual, the direction, |g|², the noise of g by |r|, and X; and the units."""

    w: Tensor
    rest: Tensor
    along: Tensor
    g2: Tensor
    noise: Tensor
    x: Tensor
    unit: Units

    @property
    def r(self) -> Tensor:
        """The residual y - Xw."""
        return self.unit.y * self.rest

    @property
    def v(self) -> Tensor:
        """The direction."""
        return self.unit.slope(self.along)


@dataclass(frozen=True, kw_only=True)
class ConjugateGradient(Linear[Conjugate]):
    """w ← w + α v, α = |g|²/|Xv|²; v ← g + (|g|²/|g₋₁|²) v with g = X'(y - Xw) (Hestenes and Stiefel)."""

    steps: int = 20

    def __post_init__(self) -> None:
        whole("steps", self.steps)

    def init(self, p: Prompt) -> Conjugate:
        x, y, units = _measured(p)
        g = x.mT @ y
        return Conjugate(origin(p), y, g, _dot(g, g), _rounding(x), x, units)

    def step(self, p: Prompt, s: Conjugate, t: int) -> Conjugate:
        xv = s.x @ s.along
        alpha = ratio(s.g2.where(_heard(s.g2, s.rest, s.noise), 0.0), _dot(xv, xv))
        r = s.rest - alpha * xv
        g = s.x.mT @ r
        g2 = _dot(g, g)
        w = s.w + s.unit.w * (alpha * s.along)
        return s._replace(w=w, rest=r, along=g + ratio(g2, s.g2) * s.along, g2=g2)


class Curved(NamedTuple):
    """The iterate; as numbers the gradient, its noise, the inverse Hessians [b k d d], the inputs; and the units."""

    w: Tensor
    slope: Tensor
    noise: Tensor
    inverse: Tensor
    x: Tensor
    unit: Units

    @property
    def g(self) -> Tensor:
        """The gradient X'(Xw - y)."""
        return self.unit.slope(self.slope)

    @property
    def h(self) -> Tensor:
        """The inverse Hessians H [b k d d]."""
        return self.inverse / self.unit.x[..., None] / self.unit.x[..., None]


@dataclass(frozen=True, kw_only=True)
class BFGS(Linear[Curved]):
    """w ← w + α v, v = -H ∇(w), H ← (I - ρ s z') H (I - ρ z s') + ρ s s', s = α v, z = S s, ρ = 1/<s, z>; H₀ = I/λmax.

    α is 1 or, with `search="exact"`, the minimum along v; then the iterates are those of conjugate gradients.
    """

    steps: int = 20
    search: Search = "exact"

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        one_of("search", self.search, ("exact", "unit"))

    def init(self, p: Prompt) -> Curved:
        x, y, units = _measured(p)
        top, _ = extremes(x)
        eye = torch.eye(x.shape[2], dtype=x.dtype, device=x.device)
        h = (ratio(torch.ones_like(top), top) * eye)[:, None].expand(-1, y.shape[2], -1, -1)
        g = -x.mT @ y
        noise = 32 * torch.finfo(x.dtype).eps * g.norm(dim=1, keepdim=True)
        return Curved(origin(p), g, noise, h, x, units)

    def step(self, p: Prompt, s: Curved, t: int) -> Curved:
        v = -torch.einsum("bkde,bek->bdk", s.inverse, s.slope)
        v, xv = _searched(self.search, s, v.where(_dot(s.slope, s.slope) > s.noise.square(), 0.0))
        z = s.x.mT @ xv
        rho = ratio(torch.ones_like(v[:, :1]), _dot(v, z)).mT[..., None]
        a, c = v.mT[..., None], z.mT[..., None]  # columns [b k d 1]
        hz = s.inverse @ c
        h = s.inverse - rho * (hz @ a.mT + a @ hz.mT) + (rho.square() * (c.mT @ hz) + rho) * (a @ a.mT)
        return s._replace(w=s.w + s.unit.w * v, slope=s.slope + z, inverse=h)


class Remembered(NamedTuple):
    """The iterate; as numbers residual, gradient, its noise by |r|, the last s and z = S s, 1/λmax, X; the units."""

    w: Tensor
    rest: Tensor
    slope: Tensor
    noise: Tensor
    past: tuple[tuple[Tensor, Tensor], ...]
    scale: Tensor
    x: Tensor
    unit: Units

    @property
    def g(self) -> Tensor:
        """The gradient X'(Xw - y)."""
        return self.unit.slope(self.slope)


@dataclass(frozen=True, kw_only=True)
class LBFGS(Linear[Remembered]):
    """BFGS by the two-loop recursion over the last `memory` steps; H₀ = I <s, z>/|z|² of the last, I/λmax at first."""

    memory: int = 10
    steps: int = 20
    search: Search = "exact"

    def __post_init__(self) -> None:
        whole("memory", self.memory, least=1)
        whole("steps", self.steps)
        one_of("search", self.search, ("exact", "unit"))

    def init(self, p: Prompt) -> Remembered:
        x, y, units = _measured(p)
        top, _ = extremes(x)
        return Remembered(origin(p), y, -x.mT @ y, _rounding(x), (), ratio(torch.ones_like(top), top), x, units)

    def step(self, p: Prompt, s: Remembered, t: int) -> Remembered:
        v = -s.slope
        weights = []
        for a, z in reversed(s.past):
            weights.append(ratio(_dot(a, v), _dot(a, z)))
            v = v - weights[-1] * z
        v = v * (ratio(_dot(*s.past[-1]), _dot(s.past[-1][1], s.past[-1][1])) if s.past else s.scale)
        for (a, z), weight in zip(s.past, reversed(weights), strict=True):
            v = v + (weight - ratio(_dot(z, v), _dot(a, z))) * a
        v, xv = _searched(self.search, s, v.where(_heard(_dot(s.slope, s.slope), s.rest, s.noise), 0.0))
        r, past = s.rest - xv, (*s.past, (v, s.x.mT @ xv))[-self.memory :]
        return s._replace(w=s.w + s.unit.w * v, rest=r, slope=-s.x.mT @ r, past=past)


def _measured(p: Prompt) -> tuple[Tensor, Tensor, Units]:
    """The inputs and the labels as numbers, and their units."""
    x, y = p.pairs
    units = Units(unit(x.flatten(1)[:, :, None]), unit(y))
    return x / units.x, y / units.y, units


def _searched(search: Search, s: Curved | Remembered, v: Tensor) -> tuple[Tensor, Tensor]:
    """The step along v, and what X makes of it."""
    xv = s.x @ v
    if search == "unit":
        return v, xv
    alpha = ratio(-_dot(s.slope, v), _dot(xv, xv))
    return alpha * v, alpha * xv


def _rounding(x: Tensor) -> Tensor:
    """Of X'r, by |r|."""
    size: Tensor = x.norm(dim=(1, 2), keepdim=True)
    return 8 * torch.finfo(x.dtype).eps * size


def _heard(g2: Tensor, r: Tensor, noise: Tensor) -> Tensor:
    """Where the gradient X'r, of squared norm g2, is above its rounding; an r of 0 is taken for that of its labels."""
    size: Tensor = r.norm(dim=1, keepdim=True) + torch.finfo(r.dtype).eps
    return g2 > (noise * size).square()


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1, keepdim=True)
