"""Exact Gauss rules for the spectrum of a Wishart matrix, and for a 2 x 2 Wishart matrix itself.

A polynomial loss is then a finite sum of squares with positive weights: no terms cancel, whatever n is.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from algoformer.checks import whole
from algoformer.theory.moments import white
from algoformer.theory.numbers import integer


def recurrence(moments: Sequence[Fraction]) -> tuple[list[Fraction], list[Fraction]]:
    """alpha and beta of p_{j+1} = (x - alpha_j) p_j - beta_j p_{j-1}, the monic orthogonal polynomials of the moments.

    2N moments give N of each (Chebyshev's algorithm); beta_0 is the mass.
    """
    size = len(moments) // 2
    before, now = [Fraction(0)] * (2 * size), list(moments[: 2 * size])
    alpha, beta = [now[1] / now[0]], [now[0]]
    for k in range(1, size):
        after = [now[j + 1] - alpha[-1] * now[j] - beta[-1] * before[j] for j in range(k, 2 * size - k)]
        before, now = now, [Fraction(0)] * k + after
        alpha.append(now[k + 1] / now[k] - before[k] / before[k - 1])
        beta.append(now[k] / before[k - 1])
    return alpha, beta


@lru_cache(maxsize=256)
def spectrum(d: int, n: int, size: int) -> tuple[Tensor, Tensor]:
    """Nodes t and weights of the rule E tr f(W) = sum w f(1 + t), exact for polynomials of degree below 2 size.

    The nodes are measured from 1, around which the spectrum gathers as n grows.
    """
    whole("size", size, 1)
    m = [white(k, d, n) for k in range(2 * size)]
    shifted = [sum(comb(k, j) * (-1) ** (k - j) * m[j] for j in range(k + 1)) for k in range(2 * size)]
    return _golub_welsch(*recurrence(shifted))


@lru_cache(maxsize=64)
def plane(n: int, degree: int) -> tuple[Tensor, Tensor]:
    """2 x 2 matrices W and weights of a rule that is exact for every polynomial of the degree in the entries of W.

    Bartlett: n W = T T' with T = [[p, 0], [z, q]], p^2 ~ chi^2_n, q^2 ~ chi^2_{n-1} and z ~ N(0, 1) independent. A
    polynomial in W is one in p^2, q^2, z^2 and p z, and odd powers of p z have mean 0. W is rounded at 1e-16, and comes
    as near to I as n^{-1/2}: a loss that falls like 1/n is exact to about 1e-16 sqrt(n), relatively.
    """
    n = integer("n", n, 1)
    examples = float(n)  # may be larger than any integer of a tensor
    size = degree // 2 + 1
    p2, a = _chi_squared(n, size)
    q2, b = _chi_squared(n - 1, size)
    z, c = _golub_welsch([0] * (degree + 1), [1, *range(1, degree + 1)])
    p2, q2, z = (v.ravel() for v in torch.meshgrid(p2 / examples, q2 / examples, z / examples**0.5, indexing="ij"))
    pz = p2.sqrt() * z
    W = torch.stack([p2, pz, pz, z.square() + q2], -1).reshape(-1, 2, 2)
    return W, torch.einsum("i,j,k->ijk", a, b, c).ravel()


def _chi_squared(n: int, size: int) -> tuple[Tensor, Tensor]:
    if n == 0:
        return torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    t, w = _golub_welsch([4 * k for k in range(size)], [1, *(2 * k * (2 * k + n - 2) for k in range(1, size))])
    return float(n) + t, w


def _golub_welsch(alpha: Sequence[Fraction | int], beta: Sequence[Fraction | int]) -> tuple[Tensor, Tensor]:
    """The rule of a three-term recurrence; its weights are 1 / sum_j p_j(x)^2 with the orthonormal p_j."""
    a, b = np.array(alpha, dtype=float), np.sqrt(np.array(beta, dtype=float))
    x = eigh_tridiagonal(a, b[1:], eigvals_only=True) if len(a) > 1 else a
    before, now = np.zeros_like(x), np.full_like(x, 1 / b[0])
    total = now**2
    for j in range(len(a) - 1):
        before, now = now, ((x - a[j]) * now - (b[j] if j else 0) * before) / b[j + 1]
        total += now**2
    return torch.from_numpy(x), torch.from_numpy(1 / total)
