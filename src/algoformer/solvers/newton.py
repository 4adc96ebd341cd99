"""Least squares by Newton's iteration for the inverse of X'X (Giannou et al. 2024, eq. 3.4; Fu et al. 2024).

    A = X'X + ridge I,   M ← M Σ_{m<p} (I - A M)^m,   w = M X'y,   M₀ = α A or c I

Every M is a function of A, so on the singular vectors of X the iteration is one of numbers: with g = λ m the share of a
direction that is solved, g ← 1 - (1 - g)^p. That is `form="spectral"`, the same iterates in exact arithmetic, whose
rounding errors do not grow. `form="stream"` iterates on U = M X' as a transformer does, `form="textbook"` on M; both
double, at every step, the rounding noise in directions that X lacks (textbook: where the rank is below d; stream: where
it is below both n and d). Ridge is d more examples, sqrt(ridge) I with label 0.

M₀ is found in units, powers of two, in which λmax is near 1: λ⁴, which |A²|_F sums, has no room in float32 where X is
1e5 or 1e-5.
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
from algoformer.solvers.linear import answers, cutoff, no_autograd, ratio, unit
from algoformer.solvers.spectrum import Directions, before, directions, prefixes, ridged

Scale = float | Literal["frobenius", "spectral", "optimal"]


class Shares(NamedTuple):
    """The solved share g [... r] of each singular direction, and the directions."""

    g: Tensor
    along: Directions

    @property
    def w(self) -> Tensor:
        """The weights."""
        return self.along.solved(self.g)

    def step(self, order: int) -> Shares:
        """One iteration: g Σ_{m<p} (1 - g)^m."""
        total = torch.ones_like(self.g)
        for _ in range(order - 1):
            total = 1 + (1 - self.g) * total
        return self._replace(g=self.g * total)


class Streamed(NamedTuple):
    """U = M X', and the examples."""

    u: Tensor
    x: Tensor
    y: Tensor

    @property
    def w(self) -> Tensor:
        """The weights."""
        return self.u @ self.y

    def step(self, order: int) -> Streamed:
        """One iteration: 2 U - U X U for order 2."""
        return self._replace(u=_series(self.u, self.x, order))


class Inverse(NamedTuple):
    """M, A = X'X + ridge I and X'y."""

    m: Tensor
    a: Tensor
    b: Tensor

    @property
    def w(self) -> Tensor:
        """The weights."""
        return self.m @ self.b

    def step(self, order: int) -> Inverse:
        """One iteration: 2 M - M A M for order 2."""
        return self._replace(m=_series(self.m, self.a, order))


@dataclass(frozen=True, kw_only=True)
class Newton(Algorithm[Any, Any]):
    """w = M X'y with M ← M Σ_{m<p} (I - A M)^m, A = X'X + ridge I, of order p.

    `start="S"` is M₀ = α A, which must have α < 2/λmax²; `start="I"` is M₀ = c I, which must have c < 2/λmax and saves
    half of the steps. `scale` gives α or c as a number, or by rule: "spectral" 1/λmax² or 1/λmax, "frobenius" 1/|A²|_F
    or 1/|A|_F, "optimal" 2/(λmax² + λmin²) or 2/(λmax + λmin), λmin the smallest that is not 0.
    """

    steps: int = 20
    order: int = 2
    start: Literal["S", "I"] = "S"
    scale: Scale = "spectral"
    ridge: float = 0.0
    form: Literal["spectral", "stream", "textbook"] = "spectral"

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        whole("order", self.order, least=2)
        if self.order > 10:
            raise ValueError(f"order must be from 2 to 10; got {self.order}")
        one_of("start", self.start, ("S", "I"))
        one_of("form", self.form, ("spectral", "stream", "textbook"))
        real("ridge", self.ridge, least=0)
        if isinstance(self.scale, str):
            one_of("scale", self.scale, ("frobenius", "spectral", "optimal"))
        else:
            real("scale", self.scale, above=0)

    @property
    def kinds(self) -> tuple[type, ...]:  # type: ignore[override]
        return (Prompt,) if self.form == "stream" else (Prompt, Dense)

    def init(self, p: Prompt | Dense) -> Shares | Streamed | Inverse:
        if self.form == "spectral":
            no_autograd(self, p, 'form="stream" has one')
            along = directions(*p.pairs, self.ridge) if isinstance(p, Prompt) else prefixes(p, self.ridge)
            size = unit(along.s[..., None])[..., 0]
            values = (along.s / size).square()
            return Shares(self._scale(values, size, size) * self._power(values), along)
        if self.form == "stream":
            x, y = p.pairs  # type: ignore[union-attr]
            x, y = ridged(x, y, self.ridge)
            s = torch.linalg.svdvals(x)
            s = s.where(s > cutoff(x) * s[:, :1], 0.0)
            size = unit(s[..., None])
            c = self._scale((s / size[..., 0]).square(), size[..., 0], size[..., 0])[..., None]
            one = x / size
            return Streamed(c / size * (one.mT @ one @ one.mT if self.start == "S" else one.mT), x, y)
        eye = torch.eye(p.x.shape[2], dtype=p.x.dtype, device=p.x.device)
        x, y = p.pairs if isinstance(p, Prompt) else (p.x, p.y)
        a, b = (x.mT @ x, x.mT @ y) if isinstance(p, Prompt) else (before(x, x), before(x, y))
        a = a + self.ridge * eye
        values = torch.linalg.eigvalsh(a)
        values = values.where(values > cutoff(a) * values[..., -1:], 0.0)
        size = unit(values[..., None])
        c = self._scale(values / size[..., 0], size[..., 0])[..., None]
        return Inverse(c / size * (a / size if self.start == "S" else eye), a, b)

    def step(self, p: Prompt | Dense, s: Any, t: int) -> Any:
        return s.step(self.order)

    def read(self, p: Prompt | Dense, s: Any) -> Float[Tensor, "b o k"]:
        return answers(p, s.w)

    def _power(self, values: Tensor) -> Tensor:
        """What α or c multiplies: λ m₀ = α λ² or c λ."""
        return values.square() if self.start == "S" else values

    def _scale(self, values: Tensor, *size: Tensor) -> Tensor:
        """α or c [... 1] for eigenvalues [... r] of A/size, 0 where all are; a given one must be below its end point.

        A given one is for A itself; the product of the factors of size has room in double precision.
        """
        power = self._power(values)
        top = pad(power, (0, 1)).amax(-1, keepdim=True)
        if self.scale == "spectral":
            return ratio(torch.ones_like(top), top)
        if self.scale == "frobenius":
            return ratio(torch.ones_like(top), power.norm(dim=-1, keepdim=True))
        if self.scale == "optimal":
            least = pad(power.where(power > 0, torch.inf), (0, 1), value=torch.inf).amin(-1, keepdim=True)
            return ratio(2 * torch.ones_like(top), top + least.where(least.isfinite(), 0.0))
        end = 2 * (1 - 64 * torch.finfo(values.dtype).eps)
        given = (self.scale * self._power(torch.stack(size).double().prod(0))).to(top)
        solved = (given * top).detach()
        if bool((solved >= end).any()):
            bound = "2/lmax(A)^2" if self.start == "S" else "2/lmax(A)"
            raise ValueError(
                f"scale must be below {bound} = {2 * self.scale / float(solved.max()):.6g} on every prompt; got "
                f"{self.scale:.6g}: from that end point on the residual along the largest eigenvector is -1 or beyond "
                "and does not converge"
            )
        return given


def _series(m: Tensor, a: Tensor, order: int) -> Tensor:
    """M Σ_{i<p} (I - A M)^i by Horner's rule.

    Of a stream A M is X U, n x n: the smaller U X would double the noise of a rank below d, as the textbook form does.
    """
    total = m
    for _ in range(order - 1):
        total = m + total - m @ (a @ total)
    return total
