"""Solvers for the regularised logistic loss (Giannou et al. 2024, eq. 3.5).

    f(w) = mean_i log(1 + exp(-y_i <a_i, w>)) + μ/2 |w|²

Labels are -1 and +1, each column a problem of its own; the prediction is the margin <w, query>.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad, softplus

from algoformer.checks import one_of, real, whole
from algoformer.prompt import Prompt
from algoformer.solvers.linear import Linear, counts, extremes, origin, root


class Fit(NamedTuple):
    """The iterate, the examples, their number, and the step size (of gradient descent)."""

    w: Tensor
    x: Tensor
    y: Tensor
    n: Tensor
    eta: Tensor

    def slope(self, mu: float) -> Tensor:
        """The gradient of the loss: -mean y p a + μ w with p = sigmoid(-y <a, w>)."""
        return mu * self.w - self.x.mT @ (self.y * torch.sigmoid(-self.y * (self.x @ self.w))) / self.n


@dataclass(frozen=True, kw_only=True)
class DampedNewton(Linear[Fit]):
    """w ← w - η H⁻¹∇ with η = 2√μ/(2√μ + λ), λ² = <∇, H⁻¹∇> (Giannou et al. 2024, Theorem 5.2).

    That η is safe where |a_i| <= 1. `damping="backtracking"` takes the first of η = 1, 1/2, 1/4, .. that lowers the
    loss enough (Armijo), or none, which is safe everywhere; `damping="none"` is Newton's method, η = 1.
    """

    mu: float = 0.1
    steps: int = 12
    damping: Literal["self-concordant", "backtracking", "none"] = "self-concordant"

    def __post_init__(self) -> None:
        real("mu", self.mu, above=0)
        whole("steps", self.steps)
        one_of("damping", self.damping, ("self-concordant", "backtracking", "none"))

    def init(self, p: Prompt) -> Fit:
        return _fit(p)

    def step(self, p: Prompt, s: Fit, t: int) -> Fit:
        z, root = self._whitened(s)
        change = torch.linalg.solve_triangular(root, z, upper=True)[..., 0].mT
        return s._replace(w=s.w - self._size(s, z.square().sum(2).mT, change) * change)

    def _whitened(self, s: Fit) -> tuple[Tensor, Tensor]:
        """z [b k d 1] and R with R'R the Hessian and R'z the gradient: R⁻¹z is Newton's step and |z| is λ.

        The Hessian is T'T with T = √curvature X over √μ I, and the gradient T'u; so T = QR and z = Q'u. Neither product
        is formed: a μ is kept down to eps² of the largest curvature, where their sum keeps one down to eps.
        """
        margin = s.x @ s.w
        half = (logsigmoid(margin) + logsigmoid(-margin)) / 2  # √ of a curvature that is 0 would have no derivative
        rows = torch.einsum("bnk,bnd->bknd", half.exp() / s.n.sqrt(), s.x)
        eye = torch.eye(s.x.shape[2], dtype=s.x.dtype, device=s.x.device)
        least = root(self.mu, s.x.dtype)
        q, r = torch.linalg.qr(torch.cat([rows, least * eye.expand(*rows.shape[:2], -1, -1)], 2))
        # as in `outweighed`: there Q's rows of the examples would drown in the rounding of the others
        drowned = rows.detach().square().sum((2, 3), keepdim=True) < self.mu
        by_x = torch.linalg.solve_triangular(r, rows, upper=True, left=False)
        n = rows.shape[2]
        q = torch.cat([by_x.where(drowned, q[:, :, :n]), q[:, :, n:]], 2)
        wrong = -s.y * margin
        far = wrong > 14  # hardly curved and far from 0: u = e^(wrong/2) would multiply Q's rounding, so these go by X'
        u = (s.y * (wrong.clamp(max=14) / 2).exp()).where(~far, 0.0) / s.n.sqrt()
        pull = s.x.mT @ (s.y * torch.sigmoid(wrong)).where(far, 0.0) / s.n
        z = q.mT @ torch.cat([-u, least * s.w], 1).mT[..., None]
        return z - torch.linalg.solve_triangular(r.mT, pull.mT[..., None], upper=False), r

    def _size(self, s: Fit, decrement: Tensor, change: Tensor) -> Tensor:
        """η for the squared decrement λ² [b 1 k]."""
        if self.damping == "none":
            return torch.ones_like(decrement)
        if self.damping == "self-concordant":
            root = 2 * self.mu**0.5
            # sqrt has no derivative at 0, where η is 1 whatever λ is
            size: Tensor = root / (root + torch.where(decrement > 0, decrement, 1.0).sqrt().where(decrement > 0, 0.0))
            return size
        sizes = pad(0.5 ** torch.arange(40, dtype=s.w.dtype, device=s.w.device), (0, 1))  # 0 where none lowers the loss
        margins = (s.y * (s.x @ s.w))[..., None] - sizes * (s.y * (s.x @ change))[..., None]
        norms = (s.w[..., None] - sizes * change[..., None]).square().sum(1)
        losses = softplus(-margins).sum(1) / s.n + self.mu / 2 * norms  # [b k size]
        now = softplus(-s.y * (s.x @ s.w)).sum(1) / s.n[:, 0] + self.mu / 2 * s.w.square().sum(1)
        slack = 8 * torch.finfo(s.w.dtype).eps * now  # near the optimum a decrease drowns in rounding
        enough = losses <= now[..., None] - 1e-4 * sizes * decrement.mT + slack[..., None]
        size = sizes[enough.to(torch.uint8).argmax(-1)]
        return size[:, None]


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
        return s._replace(eta=1 / (top / (4 * s.n) + self.mu) if self.eta is None else torch.full_like(top, self.eta))

    def step(self, p: Prompt, s: Fit, t: int) -> Fit:
        return s._replace(w=s.w - s.eta * s.slope(self.mu))


def _fit(p: Prompt) -> Fit:
    x, y = p.pairs
    wrong = (y.detach().abs() != 1) & p.seen[..., None]
    if bool(wrong.any()):
        raise ValueError(f"labels of the logistic loss must be -1 or +1; got {y[wrong][0].item():g}")
    return Fit(origin(p), x, y, counts(p), torch.ones_like(counts(p)))
