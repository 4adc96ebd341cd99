"""What the least-squares solvers share: weights as state, and the spectrum of the examples."""

from __future__ import annotations

import math
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from algoformer.algorithm import Algorithm
from algoformer.prompt import Dense, Prompt


@runtime_checkable
class Weights(Protocol):
    """A state that holds weights w [b d k]."""

    @property
    def w(self) -> Tensor: ...


S = TypeVar("S", bound=Weights)


class Linear(Algorithm[Prompt, S]):
    """A solver whose state holds weights: it predicts <w, query>."""

    def read(self, p: Prompt, s: S) -> Float[Tensor, "b o k"]:
        return p.queries @ s.w


def answers(p: Prompt | Dense, w: Tensor) -> Float[Tensor, "b o k"]:
    """What weights [b d k] predict, or weights of every prefix [b n d k] of a dense prompt."""
    return p.queries @ w if isinstance(p, Prompt) else torch.einsum("bnd,bndk->bnk", p.x, w)


def origin(p: Prompt) -> Float[Tensor, "b d k"]:
    """The weights that every iterative solver starts from."""
    return p.x.new_zeros(p.x.shape[0], p.x.shape[2], p.y.shape[2])


def extremes(x: Float[Tensor, "*b n d"]) -> tuple[Float[Tensor, "*b 1 1"], Float[Tensor, "*b 1 1"]]:
    """The largest eigenvalue of X'X and the smallest that is not zero to rounding (both 0 where X is)."""
    top, least = roots(x)
    return top.square(), least.square()


def roots(x: Float[Tensor, "*b n d"]) -> tuple[Float[Tensor, "*b 1 1"], Float[Tensor, "*b 1 1"]]:
    """Their square roots, the extreme singular values of X."""
    if 0 in x.shape[-2:]:
        none = x.new_zeros(*x.shape[:-2], 1, 1)
        return none, none
    s = torch.linalg.svdvals(x)
    top = s[..., :1]
    least = s.where(s > cutoff(x) * top, torch.inf).amin(-1, keepdim=True)
    return top[..., None], least.where(least.isfinite(), 0.0)[..., None]


def cutoff(x: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b 1"]:
    """Singular values below this multiple of the largest are rounding noise; rows of 0 (unseen pairs) add none."""
    rows = x.ne(0).any(-1).sum(-1, keepdim=True).clamp(min=x.shape[-1])
    return rows.to(x.dtype) * torch.finfo(x.dtype).eps


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0: a converged method, or one without examples, stays where it is."""
    return torch.where(b == 0, 0.0, a / torch.where(b == 0, 1.0, b))


def root(ridge: float, dtype: torch.dtype) -> float:
    """√ridge as a number of this precision; one that would be 0 there is the least that is not."""
    room, found = torch.finfo(dtype), math.sqrt(ridge)
    if found > room.max:
        raise ValueError(f"a ridge in {dtype} must be at most {room.max:.3g} squared; got {ridge:g}")
    return max(found, room.tiny)


def unit(v: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b 1 k"]:
    """The power of two next below the largest entry of each column, by which division is exact; 1 where all are 0."""
    top = pad(v.detach().abs(), (0, 0, 0, 1)).amax(-2, keepdim=True)
    top = top.where(top > 0, 1.0)
    return top / (2 * torch.frexp(top).mantissa)


def counts(p: Prompt) -> Float[Tensor, "b 1 1"]:
    """How many pairs a prompt shows, at least 1."""
    return p.counts.clamp(min=1)[:, None, None]


def no_autograd(solver: Algorithm[Any, Any], p: Any, instead: str) -> None:
    """Refuse, by name, to differentiate by the inputs."""
    if torch.is_grad_enabled() and p.x.requires_grad:
        raise ValueError(f"{type(solver).__name__} must get an x without gradient, of which it has none; {instead}")
