"""Solvers for the regularised logistic loss (Giannou et al. 2024, eq. 3.5).

    f(w) = mean_i log(1 + exp(-y_i <a_i, w>)) + μ/2 |w|²

Labels are -1 and +1, each column a problem of its own; the prediction is the margin <w, query>.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from algoformer.checks import one_of, real, whole
from algoformer.prompt import Prompt
from algoformer.solvers.linear import Linear, counts, extremes, origin


class Fit(NamedTuple):
    """The iterate, the examples, their number, and what bounds a step: R of `DampedNewton`, η of gradient descent."""

    w: Tensor
    x: Tensor
    y: Tensor
    n: Tensor
    bound: Tensor

    def slope(self, mu: float) -> Tensor:
        """The gradient of the loss: -mean y p a + μ w with p = sigmoid(-y <a, w>)."""
        return mu * self.w - self.x.mT @ (self.y * torch.sigmoid(-self.y * (self.x @ self.w))) / self.n


@dataclass(frozen=True, kw_only=True)
class DampedNewton(Linear[Fit]):
    """w ← w - η H⁻¹∇ with η = 2√μ/(2√μ + R λ), λ² = <∇, H⁻¹∇>, R = max(1, max|a_i|).

    Giannou et al. 2024, Theorem 5.2 assumes |a_i| <= 1, which makes R = 1.
    `damping="none"` is Newton's method, η = 1.
    """

    mu: float = 0.1
    steps: int = 12
    damping: Literal["self-concordant", "none"] = "self-concordant"

    def __post_init__(self) -> None:
        real("mu", self.mu, above=0)
        whole("steps", self.steps)
        one_of("damping", self.damping, ("self-concordant", "none"))

    def init(self, p: Prompt) -> Fit:
        return _fit(p)

    def step(self, p: Prompt, s: Fit, t: int) -> Fit:
        margin = s.x @ s.w
        curvature = torch.sigmoid(margin) * torch.sigmoid(-margin) / s.n
        eye = torch.eye(s.x.shape[2], dtype=s.x.dtype, device=s.x.device)
        hessian = torch.einsum("bnd,bnk,bne->bkde", s.x, curvature, s.x) + self.mu * eye
        g = s.slope(self.mu)
        change = torch.cholesky_solve(g.mT[..., None], torch.linalg.cholesky(hessian))[..., 0].mT
        if self.damping == "none":
            return s._replace(w=s.w - change)
        decrement = (g * change).sum(1, keepdim=True)
        # sqrt has no derivative at 0, where the damping is 1 and does not matter
        decrement = torch.where(decrement > 0, decrement, 1.0).sqrt().where(decrement > 0, 0.0)
        root = 2 * self.mu**0.5
        return s._replace(w=s.w - root / (root + s.bound * decrement) * change)


@dataclass(frozen=True, kw_only=True)
class LogisticGradientDescent(Linear[Fit]):
    """w ← w - η ∇(w); by default η = 1/(λmax(A'A)/4n + μ), the inverse of the loss's largest curvature."""

    mu: float = 0.1
    eta: float | None = None
    steps: int = 100

    def __post_init__(self) -> None:
        real("mu", self.mu, above=0)
        if self.eta is not None:
            real("eta", self.eta, above=0)
        whole("steps", self.steps)

    def init(self, p: Prompt) -> Fit:
        s = _fit(p)
        top, _ = extremes(s.x)
        return s._replace(bound=1 / (top / (4 * s.n) + self.mu) if self.eta is None else torch.full_like(top, self.eta))

    def step(self, p: Prompt, s: Fit, t: int) -> Fit:
        return s._replace(w=s.w - s.bound * s.slope(self.mu))


def _fit(p: Prompt) -> Fit:
    x, y = p.pairs
    wrong = (y.detach().abs() != 1) & p.seen[..., None]
    if bool(wrong.any()):
        raise ValueError(f"labels of the logistic loss must be -1 or +1; got {y[wrong][0].item():g}")
    longest = x.norm(dim=2).amax(1) if x.shape[1] else x.new_zeros(len(x))
    return Fit(origin(p), x, y, counts(p), longest.clamp(min=1)[:, None, None])
