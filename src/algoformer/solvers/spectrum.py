"""The singular directions of the examples: along each of them an iteration for least squares is one of numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from algoformer.prompt import Dense
from algoformer.solvers.linear import cutoff, ratio, root, unit


class Directions(NamedTuple):
    """Singular values [... r] of X with its ridge, their directions v [... d r], and the solution z [... r k] there."""

    s: Tensor
    v: Tensor
    z: Tensor

    @property
    def values(self) -> Tensor:
        """The eigenvalues [... r] of X'X + ridge I."""
        return self.s.square()

    def solved(self, g: Tensor) -> Tensor:
        """The weights [... d k] of which the share g [... r] of each direction is solved."""
        return self.v @ (g[..., None] * self.z)


def directions(x: Tensor, y: Tensor, ridge: float = 0.0) -> Directions:
    """By the singular values of X; where it has none above rounding the solution is 0, however small the ridge."""
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    s = s.where(s > cutoff(x) * s[:, :1], 0.0)
    held = torch.hypot(s, s.new_tensor(root(ridge, s.dtype))) if ridge else s
    z = ratio(ratio(s, held)[..., None] * (u.mT @ y), held[..., None].expand(*s.shape, y.shape[2]))
    more = x.shape[2] - s.shape[1] if ridge else 0
    held = pad(held, (0, more), value=root(ridge, s.dtype) if more else 0.0)
    return Directions(held, pad(vt.mT, (0, more)), pad(z, (0, 0, 0, more)))


def prefixes(p: Dense, ridge: float = 0.0) -> Directions:
    """The same for every prefix of a dense prompt, from cumulative sums of x x' in double precision.

    Eigenvectors of a Gram matrix lose its condition number in digits. Where that would show (an eigenvalue that is not
    large enough, or fewer of them above rounding than examples could give) the prefix goes the slower way, by its own
    singular values.
    """
    x, y = p.x.double(), p.y.double()
    n, d = x.shape[1:]
    u = unit(x.flatten(1)[:, :, None])
    x = x / u
    eps, wanted = torch.finfo(x.dtype).eps, torch.finfo(p.x.dtype).eps
    eye = torch.eye(d, dtype=x.dtype, device=x.device)
    values, v = torch.linalg.eigh(before(x, x) + (ridge**0.5 / u[..., None]).square() * eye)
    top = values[..., -1:]
    some = values > max(n, d) * eps * top
    z = ratio(v.mT @ before(x, y), values.where(some, 0.0)[..., None].expand(*values.shape, y.shape[2]))
    doubtful = (some & (values < eps / max(wanted, 1e3 * eps) * top)).any(-1)
    doubtful |= some.sum(-1) < torch.arange(n, device=x.device).clamp(max=d)
    found = [(u * values.where(some, 0.0).sqrt()).to(p.x), v.to(p.x), (z / u[..., None]).to(p.x)]
    if bool(doubtful.any()):
        i, j = doubtful.nonzero(as_tuple=True)
        shown = (torch.arange(n, device=x.device) < j[:, None])[..., None]
        s, v, z = directions(p.x[i].where(shown, 0.0), p.y[i].where(shown, 0.0), ridge)
        more = d - s.shape[1]
        slow = pad(s, (0, more)), pad(v, (0, more)), pad(z, (0, 0, 0, more))
        found = [f.index_put((doubtful,), by) for f, by in zip(found, slow, strict=True)]
    return Directions(*found)


def ridged(x: Tensor, y: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """The examples and, for the ridge, d more: sqrt(ridge) I with label 0."""
    if ridge == 0:
        return x, y
    b, _, d = x.shape
    rows = root(ridge, x.dtype) * torch.eye(d, dtype=x.dtype, device=x.device)
    return torch.cat([x, rows.expand(b, d, d)], 1), pad(y, (0, 0, 0, d))


def outweighed(x: Tensor, ridge: float) -> Tensor:
    """Where [b 1 1] the ridge is above |X|².

    There the examples' rows of an orthogonal factor are as small as |X|/√ridge and drown in the rounding of the others;
    they are found from X itself.
    """
    return x.detach().square().sum((1, 2), keepdim=True) < ridge


def before(x: Tensor, y: Tensor) -> Tensor:
    """Σ_{j<i} x_j y_j' for every i: [b n d k]."""
    products = x[..., :, None] * y[..., None, :]
    return pad(products.cumsum(1), (0, 0, 0, 0, 1, 0))[:, :-1]
