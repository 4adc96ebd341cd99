"""The best layers: minimisers of the exact losses, enclosed in rationals.

Looped (every d, n, L; A symmetric). With M = I - W G the loss is F(G) = E |M^L|_F^2, and H(G) = E tr M^{2L} <= F(G) by
Cauchy-Schwarz, with equality where G is a multiple of I. H(G) = E tr (I - W^1/2 G W^1/2)^{2L} is convex in G, being the
trace of a convex function of a matrix linear in G, and invariant under rotations, so that averaging G over rotations
lowers it: F(G) >= H(G) >= H(g I) = F(g I), g = tr G / d. The global minimiser is A = a Sigma^-1 with a the minimiser of
the convex polynomial phi(a) = E tr (I - a W)^{2L}.

Layered. min over a_1..a_k of the mean of q^2, q(x) = prod (1 - a_l x), is the problem of Christoffel for the measure
E tr f(W): q runs over the polynomials of degree k with q(0) = 1. The best q is orthogonal to x p(x) for every p of
lower degree: up to scale the k-th orthogonal polynomial of the measure x E tr, whose zeros 1/a_l are real, positive and
simple. So the infimum is attained, uniquely up to the order of the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import ceil, comb, lcm
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import least_squares
from torch import Tensor

from algoformer.checks import whole
from algoformer.theory.moments import white
from algoformer.theory.numbers import covariance_matrix, integer
from algoformer.theory.quadrature import recurrence, spectrum

BITS = 50  # an enclosure is thinner than 2^-BITS of the number and of its distance from 1


@dataclass(frozen=True)
class Enclosure:
    """A number between two rationals. `float(e)` is its middle; a number too small for a float still prints."""

    low: Fraction
    high: Fraction

    @property
    def middle(self) -> Fraction:
        """The rational half way."""
        return (self.low + self.high) / 2

    def __float__(self) -> float:
        return float(self.middle)

    def __rsub__(self, other: int | Fraction) -> Enclosure:
        return Enclosure(other - self.high, other - self.low)

    def __str__(self) -> str:
        """Fifteen digits."""
        return f"{Decimal(self.middle.numerator) / Decimal(self.middle.denominator):.14e}"


class Looped(NamedTuple):
    """The best shared step a (A = a Sigma^-1) and its loss."""

    a: Enclosure
    loss: Enclosure


class Layered(NamedTuple):
    """The best steps in ascending order (any order of the layers is as good) and their loss."""

    a: tuple[Enclosure, ...]
    loss: Enclosure


class OneLayer(NamedTuple):
    """The best preconditioner A of one layer (w ~ N(0, I)), and its loss."""

    A: Float[Tensor, "d d"]
    loss: float


class GDPP(NamedTuple):
    """The best steps and covariate scalings found, and their loss."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    loss: float


def looped_optimum(d: int, n: int, loops: int) -> Looped:
    """The global minimum of the looped model over symmetric A: A = a Sigma^-1."""
    loops = integer("loops", loops, 1)
    phi = [(-1) ** k * comb(2 * loops, k) * white(k, d, n) for k in range(2 * loops + 1)]
    slope = [k * c for k, c in enumerate(phi)][1:]
    high = Fraction(1)
    while _value(slope, high) < 0:
        high *= 2
    a = _zero(slope, Fraction(0), high)
    # phi is convex and falls at a.low: its tangent there is a lower bound
    least = _value(phi, a.low) + _value(slope, a.low) * (a.high - a.low)
    return Looped(a, Enclosure(least, _value(phi, a.high)))


def layered_optimum(d: int, n: int, layers: int) -> Layered:
    """The minimum over layers A_l = a_l Sigma^-1."""
    layers = integer("layers", layers, 1)
    m = [white(k, d, n) for k in range(2 * layers + 1)]
    alpha, beta = recurrence(m[1:])  # of the measure x E tr
    before, now = [Fraction(0)], [Fraction(1)]
    zeros: list[Enclosure] = []
    for k in range(layers):
        after = [Fraction(0), *now]
        for i, c in enumerate(now):
            after[i] -= alpha[k] * c
        for i, c in enumerate(before):
            after[i] -= beta[k] * c if k else 0
        before, now = now, after
        a = now[::-1]  # x^k p(1/x): its zeros are the steps, and those of degree k - 1 lie between them
        cuts = [Fraction(0), *(z.middle for z in zeros), Fraction(ceil(sum(abs(c / a[-1]) for c in a)))]
        zeros = [_zero(a, low, high) for low, high in pairwise(cuts)]
    # q = p / p(0) is orthogonal to x q: its mean square is the mean of q itself
    loss = sum((c / now[0] * m[k] for k, c in enumerate(now)), Fraction(0))
    return Layered(tuple(zeros), Enclosure(loss, loss))


def one_layer_optimum(covariance: Float[Tensor, "d d"], n: int) -> OneLayer:
    """The global minimum of one layer with w ~ N(0, I) (Ahn et al., Theorem 1), with the positive sign of A.

    b = (0, ..., 0, 1) and -A above a row of zeros in the paper's parametrisation; unique up to b -> g b, A -> A / g
    where d >= 2. In the eigenbasis A_i = 1 / ((n+1)/n s_i + tr Sigma / n), and the loss is sum_i s_i - s_i^2 A_i, that
    is sum_i s_i A_i (s_i + tr Sigma) / n, in which nothing cancels.
    """
    if not isinstance(covariance, Tensor):
        raise TypeError(f"covariance must be a float64 tensor here; got {type(covariance).__name__}")
    C = covariance_matrix(covariance)
    whole("n", n, 1)
    values, vectors = torch.linalg.eigh(C)
    a = 1 / ((1 + 1 / n) * values + values.sum() / n)
    return OneLayer(vectors * a @ vectors.T, float((values * a * (values + values.sum())).sum() / n))


def gdpp_optimum(d: int, n: int, layers: int, *, starts: int = 100, seed: int = 0) -> GDPP:
    """The best layers A_l = a_l Sigma^-1, B_l = b_l I found from random starts, up to three layers.

    Best known, not proved: the loss has many local minima. Least squares on the Gauss rule of the spectrum, where the
    loss is exact and a sum of squares.
    """
    layers = integer("layers", layers, 1)
    if layers > 3:
        raise ValueError(f"layers with B_l are exact up to depth 3; got {layers}")
    t, w = (v.numpy() for v in spectrum(d, n, (3**layers - 1) // 2 + 1))
    rng = np.random.default_rng(seed)
    residual = _gdpp_residual(1 + t, np.sqrt(w), layers)
    best: tuple[float, np.ndarray] | None = None
    for _ in range(starts):
        start = np.concatenate(
            [np.exp(rng.normal(0, 0.8, layers)) * 3.0 ** np.arange(layers) / 2, rng.random(layers - 1)]
        )
        found = least_squares(residual, start, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=2000)
        if np.isfinite(found.cost) and (best is None or 2 * found.cost < best[0]):
            best = 2 * float(found.cost), found.x
    if best is None:
        raise ValueError(f"starts must be at least 1; got {starts}")
    return GDPP(tuple(best[1][:layers].tolist()), tuple(best[1][layers:].tolist()), best[0])


def _gdpp_residual(x: np.ndarray, root: np.ndarray, layers: int) -> Callable[[np.ndarray], np.ndarray]:
    def residual(theta: np.ndarray) -> np.ndarray:
        r, p = np.ones_like(x), np.ones_like(x)
        for i in range(layers):
            move = theta[i] * x * p**2
            r, p = r * (1 - move), p * (1 - theta[layers + i] * move) if i + 1 < layers else p
        return np.asarray(np.clip(root * r, -1e150, 1e150))

    return residual


def _zero(polynomial: list[Fraction], low: Fraction, high: Fraction) -> Enclosure:
    """The one zero between low and high (dyadic numbers), by bisection with exact signs."""
    unit = lcm(*(c.denominator for c in polynomial))
    c = [int(unit * v) for v in polynomial]
    degree = len(c) - 1

    def sign(x: int, bits: int) -> int:
        value = 0
        for i in range(degree, -1, -1):  # sum_i c_i x^i 2^{bits (degree - i)}
            value = value * x + (c[i] << bits * (degree - i))
        return (value > 0) - (value < 0)

    bits = max(64, low.denominator.bit_length(), high.denominator.bit_length())
    left, right = int(low * (1 << bits)), int(high * (1 << bits))
    side = sign(left, bits)
    if side * sign(right, bits) >= 0:
        raise ArithmeticError(f"no sign change between {float(low)} and {float(high)}")
    while True:
        while right - left > 1:
            middle = (left + right) // 2
            s = sign(middle, bits)
            if s == 0:
                return Enclosure(Fraction(middle, 1 << bits), Fraction(middle, 1 << bits))
            left, right = (middle, right) if s == side else (left, middle)
        if min(left, abs(left - (1 << bits)), abs(right - (1 << bits))) >> BITS:
            return Enclosure(Fraction(left, 1 << bits), Fraction(right, 1 << bits))
        left, right, bits = left << 16, right << 16, bits + 16


def _value(polynomial: list[Fraction], x: Fraction) -> Fraction:
    value = Fraction(0)
    for c in reversed(polynomial):
        value = value * x + c
    return value
