"""Linear attention as Ahn et al. 2023 and Gatmiry et al. 2024 write it, on literal prompts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Draw(NamedTuple):
    """Prompts as token matrices Z of shape [b, d + 1, n + 1] with a 0 for the last label; w and the label asked."""

    Z: Tensor
    w: Tensor
    asked: Tensor


def prompts(batch: int, n: int, covariance: Tensor, generator: torch.Generator) -> Draw:
    """x ~ N(0, Sigma), w ~ N(0, Sigma^-1), labels <w, x>."""
    d = len(covariance)
    root = torch.linalg.cholesky(covariance)
    z, v = (torch.randn(batch, d, m, dtype=torch.float64, generator=generator) for m in (n + 1, 1))
    x, w = root @ z, torch.linalg.solve(root.T, v)
    y = w.mT @ x
    asked = y[:, 0, n].clone()
    y[:, 0, n] = 0
    return Draw(torch.cat([x, y], 1), w[:, :, 0], asked)


def attend(Z: Tensor, P: Tensor, Q: Tensor, sign: int = 1) -> Tensor:
    """Z + sign / n P Z M (Z' Q Z), where the mask M keeps the query from being a key."""
    keys = Z[:, :, :-1]
    return Z + sign / keys.shape[2] * P @ keys @ (keys.mT @ Q @ Z)


def value(d: int, B: Tensor | None = None, u: Tensor | None = None) -> Tensor:
    """P = [[B, 0], [u', 1]]."""
    P = torch.zeros(d + 1, d + 1, dtype=torch.float64)
    P[d, d] = 1
    if B is not None:
        P[:d, :d] = B
    if u is not None:
        P[d, :d] = u
    return P


def score(A: Tensor) -> Tensor:
    """Q = [[A, 0], [0, 0]]."""
    return torch.nn.functional.pad(A, (0, 1, 0, 1))


def random_covariance(d: int, generator: torch.Generator) -> Tensor:
    """A covariance matrix without any structure."""
    root = torch.randn(d, d, dtype=torch.float64, generator=generator)
    return root @ root.T / d + 0.2 * torch.eye(d, dtype=torch.float64)


def symmetric(A: Tensor) -> Tensor:
    """The symmetric part."""
    return (A + A.mT) / 2


def distance(M: Tensor) -> Tensor:
    """Dist(M, I) = min_a |M - a I|_F / |M|_F (Ahn et al. 2023, section 5.3)."""
    a = M.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    apart: Tensor = M - a * torch.eye(M.shape[-1], dtype=M.dtype)
    ratio: Tensor = torch.linalg.matrix_norm(apart) / torch.linalg.matrix_norm(M)
    return ratio
