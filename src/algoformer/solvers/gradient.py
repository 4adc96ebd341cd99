"""Gradient methods for least squares, all from w₀ = 0.

The loss is |Xw - y|²/2n with `gradient="mean"` and |Xw - y|²/2 with `gradient="sum"`; S is its Hessian, λ its spectrum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from algoformer.algorithm import Algorithm
from algoformer.checks import one_of, real, whole
from algoformer.prompt import Dense, Prompt
from algoformer.solvers.linear import Linear, answers, counts, extremes, no_autograd, origin, ratio, roots
from algoformer.solvers.spectrum import Directions, directions, prefixes

Gradient = Literal["mean", "sum"]
Rate = float | Literal["1/lmax", "2/(lmax+lmin)"]


class Descent(NamedTuple):
    """The iterate, the iterate before it, the examples scaled to the loss, the step size and the momentum."""

    w: Tensor
    last: Tensor
    x: Tensor
    y: Tensor
    eta: Tensor
    beta: Tensor

    def slope(self, w: Tensor) -> Tensor:
        """The gradient of the loss at w."""
        return self.x.mT @ (self.x @ w - self.y)


class Solved(NamedTuple):
    """The solved share g [... r] of each singular direction, η λ [... r], and the directions."""

    g: Tensor
    rate: Tensor
    along: Directions

    @property
    def w(self) -> Tensor:
        """The weights."""
        return self.along.solved(self.g)


@dataclass(frozen=True, kw_only=True)
class GradientDescent(Algorithm[Any, Any]):
    """w ← w - η ∇(w), with η fixed or from each prompt's spectrum (λmin the smallest that is not 0).

    `form="spectral"` takes the same steps along the singular vectors of X, where each is a number: the share of a
    direction that is solved goes g ← g + η λ (1 - g). It is for thousands of steps, and for every prefix at once.
    """

    eta: Rate = "1/lmax"
    steps: int = 20
    gradient: Gradient = "mean"
    form: Literal["iterated", "spectral"] = "iterated"

    def __post_init__(self) -> None:
        _check_rate(self.eta)
        whole("steps", self.steps)
        one_of("gradient", self.gradient, ("mean", "sum"))
        one_of("form", self.form, ("iterated", "spectral"))

    @property
    def kinds(self) -> tuple[type, ...]:  # type: ignore[override]
        return (Prompt, Dense) if self.form == "spectral" else (Prompt,)

    def init(self, p: Prompt | Dense) -> Descent | Solved:
        if self.form == "spectral":
            no_autograd(self, p, 'form="iterated" has one')
            along = directions(*p.pairs) if isinstance(p, Prompt) else prefixes(p)
            values = along.values / _counts(p) if self.gradient == "mean" else along.values
            top = pad(values, (0, 1)).amax(-1, keepdim=True)
            least = pad(values.where(values > 0, torch.inf), (0, 1), value=torch.inf).amin(-1, keepdim=True)
            eta = _rule(self.eta, top, least.where(least.isfinite(), 0.0))
            return Solved(torch.zeros_like(values), eta * values, along)
        x, y = _scaled(p, self.gradient)  # type: ignore[arg-type]
        return Descent(origin(p), origin(p), x, y, _rate(self.eta, x), x.new_zeros(()))  # type: ignore[arg-type]

    def step(self, p: Prompt | Dense, s: Any, t: int) -> Any:
        if isinstance(s, Solved):
            return s._replace(g=s.g + s.rate * (1 - s.g))
        return s._replace(w=s.w - s.eta * s.slope(s.w))

    def read(self, p: Prompt | Dense, s: Any) -> Float[Tensor, "b o k"]:
        return answers(p, s.w)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreconditionedGradientDescent(Linear[Descent]):
    """w ← w - η P ∇(w) for a fixed matrix P; η by rule is that of the preconditioned loss."""

    preconditioner: Float[Tensor, "d d"]
    eta: Rate = 1.0
    steps: int = 20
    gradient: Gradient = "mean"

    def __post_init__(self) -> None:
        _check_rate(self.eta)
        whole("steps", self.steps)
        one_of("gradient", self.gradient, ("mean", "sum"))
        if not isinstance(self.preconditioner, Tensor):
            raise TypeError(f"preconditioner must be a (d, d) tensor; got {type(self.preconditioner).__name__}")
        if isinstance(self.eta, str):
            _check_definite(self.preconditioner, self.eta)

    def init(self, p: Prompt) -> Descent:
        x, y = _scaled(p, self.gradient)
        P = self.preconditioner.to(x)
        if P.shape != (x.shape[2], x.shape[2]):
            raise ValueError(f"preconditioner must be (d, d) = {(x.shape[2],) * 2}; got {tuple(P.shape)}")
        # P S has the spectrum of R' S R with P = R R'
        eta = _rate(self.eta, x @ torch.linalg.cholesky(P) if isinstance(self.eta, str) else x)
        return Descent(origin(p), origin(p), x, y, eta, x.new_zeros(()))

    def step(self, p: Prompt, s: Descent, t: int) -> Descent:
        return s._replace(w=s.w - s.eta * (self.preconditioner.to(s.w) @ s.slope(s.w)))


@dataclass(frozen=True, kw_only=True)
class HeavyBall(Linear[Descent]):
    """w ← w - η ∇(w) + β (w - w₋₁) (Polyak).

    By default η = 4/(√λmax + √λmin)² and β = ((√λmax - √λmin)/(√λmax + √λmin))².
    """

    eta: float | None = None
    momentum: float | None = None
    steps: int = 20
    gradient: Gradient = "mean"

    def __post_init__(self) -> None:
        _check_momentum(self)

    def init(self, p: Prompt) -> Descent:
        x, y = _scaled(p, self.gradient)
        top, least = roots(x)
        eta = ratio(4 * torch.ones_like(top), (top + least).square()) if self.eta is None else top.new_tensor(self.eta)
        beta = ratio(top - least, top + least).square() if self.momentum is None else top.new_tensor(self.momentum)
        return Descent(origin(p), origin(p), x, y, eta, beta)

    def step(self, p: Prompt, s: Descent, t: int) -> Descent:
        return s._replace(w=s.w - s.eta * s.slope(s.w) + s.beta * (s.w - s.last), last=s.w)


@dataclass(frozen=True, kw_only=True)
class Nesterov(Linear[Descent]):
    """v = w + β (w - w₋₁), w ← v - η ∇(v); by default η = 1/λmax and β = (√κ - 1)/(√κ + 1), κ = λmax/λmin."""

    eta: float | None = None
    momentum: float | None = None
    steps: int = 20
    gradient: Gradient = "mean"

    def __post_init__(self) -> None:
        _check_momentum(self)

    def init(self, p: Prompt) -> Descent:
        x, y = _scaled(p, self.gradient)
        top, least = roots(x)
        eta = ratio(torch.ones_like(top), top.square()) if self.eta is None else top.new_tensor(self.eta)
        beta = ratio(top - least, top + least) if self.momentum is None else top.new_tensor(self.momentum)
        return Descent(origin(p), origin(p), x, y, eta, beta)

    def step(self, p: Prompt, s: Descent, t: int) -> Descent:
        v = s.w + s.beta * (s.w - s.last)
        return s._replace(w=v - s.eta * s.slope(v), last=s.w)


class Transformed(NamedTuple):
    """The iterate, the map that the inputs have gone through, and the examples scaled to the loss."""

    w: Tensor
    h: Tensor
    x: Tensor
    y: Tensor


@dataclass(frozen=True, kw_only=True)
class GradientDescentPlusPlus(Linear[Transformed]):
    """GD++ (von Oswald et al. 2023): gradient steps on inputs that are themselves transformed, x ← (I - γ_t S_t) x.

    With inputs X H_t: w ← w - η_t H_t H_t' ∇(w), H_{t+1} = H_t (I - γ_t H_t' S H_t), H_0 = I. One pair η_t, γ_t a step.
    """

    eta: tuple[float, ...]
    gamma: tuple[float, ...]
    gradient: Gradient = "mean"

    def __post_init__(self) -> None:
        for name in ("eta", "gamma"):
            values = getattr(self, name)
            if not isinstance(values, tuple):
                raise TypeError(f"{name} must be a tuple of numbers, one a step; got {values!r}")
            for value in values:
                real(name, value)
        if len(self.eta) != len(self.gamma):
            raise ValueError(f"gamma must be as long as eta, {len(self.eta)} numbers; got {len(self.gamma)}")
        one_of("gradient", self.gradient, ("mean", "sum"))

    @property
    def steps(self) -> int:  # type: ignore[override]
        return len(self.eta)

    @property
    def limit(self) -> int:  # type: ignore[override]
        return len(self.eta)

    def init(self, p: Prompt) -> Transformed:
        x, y = _scaled(p, self.gradient)
        h = torch.eye(x.shape[2], dtype=x.dtype, device=x.device).expand(len(x), -1, -1)
        return Transformed(origin(p), h, x, y)

    def step(self, p: Prompt, s: Transformed, t: int) -> Transformed:
        x = s.x @ s.h
        w = s.w + self.eta[t] * (s.h @ (x.mT @ (s.y - s.x @ s.w)))
        return s._replace(w=w, h=s.h - self.gamma[t] * (s.h @ (x.mT @ x)))


def _scaled(p: Prompt, gradient: Gradient) -> tuple[Tensor, Tensor]:
    x, y = p.pairs
    root = counts(p).sqrt() if gradient == "mean" else 1.0
    return x / root, y / root


def _counts(p: Prompt | Dense) -> Tensor:
    """How many pairs a prompt shows, or each prefix of a dense one, at least 1: [b 1] or [n 1]."""
    if isinstance(p, Prompt):
        return counts(p)[..., 0]
    return torch.arange(p.x.shape[1], dtype=p.x.dtype, device=p.x.device).clamp(min=1)[:, None]


def _rate(eta: Rate, x: Tensor) -> Tensor:
    return x.new_tensor(eta) if not isinstance(eta, str) else _rule(eta, *extremes(x))


def _rule(eta: Rate, top: Tensor, least: Tensor) -> Tensor:
    """η from the largest eigenvalue and the smallest that is not 0."""
    if not isinstance(eta, str):
        return torch.full_like(top, eta)
    return ratio(torch.ones_like(top), top) if eta == "1/lmax" else ratio(2 * torch.ones_like(top), top + least)


def _check_rate(eta: object) -> None:
    if isinstance(eta, str):
        one_of("eta", eta, ("1/lmax", "2/(lmax+lmin)"))
    else:
        real("eta", eta, above=0)


def _check_definite(P: Tensor, eta: str) -> None:
    must = f"preconditioner must be symmetric and positive definite for eta = {eta!r}"
    if P.ndim != 2 or P.shape[0] != P.shape[1] or not P.is_floating_point():
        raise ValueError(f"{must}; got {tuple(P.shape)} of {P.dtype}")
    if not len(P):
        return
    apart, most = float((P - P.mT).abs().max()), float(P.abs().max())
    if not apart <= torch.finfo(P.dtype).eps ** 0.5 * most:
        raise ValueError(f"{must}; got one that is up to {apart:.6g} from its transpose")
    least = float(torch.linalg.eigvalsh(P)[0])
    if least <= 0:
        raise ValueError(f"{must}; got one with the eigenvalue {least:.6g}")


def _check_momentum(solver: HeavyBall | Nesterov) -> None:
    if solver.eta is not None:
        real("eta", solver.eta, above=0)
    if solver.momentum is not None:
        real("momentum", solver.momentum, least=0)
    whole("steps", solver.steps)
    one_of("gradient", solver.gradient, ("mean", "sum"))
