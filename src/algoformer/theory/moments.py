"""Moments of the real Wishart matrix W = (1/n) sum_i z_i z_i', z_i ~ N(0, I_d), exact in rationals and in floats.

White case (James 1964; Stanley 1989 for the expansion of a power sum in zonal polynomials):

    n^k E tr W^k = sum_kappa  2k theta_kappa / j_kappa  prod_s (n + c_s)(d + c_s),      c_s = 2 (column) - (row),

over the partitions kappa of k, where s runs over the boxes, theta is the product of the c_s but for the first box, and
j is the product of (2 arm + leg + 1)(2 arm + leg + 2). A box in the third row and second column has c_s = 0, so only
kappa = (r, s, 1, ..., 1) survive: about k^2/4 terms.

With a symmetric matrix G (Stein's identity E z f = E f' on the first W of a word). Put S = G^1/2 W G^1/2; then

    E tr(G^i S^a) q = (1 + (a-1)/n) E tr(G^{i+1} S^{a-1}) q + (1/n) sum_{u=1}^{a-1} E tr(G^{i+1} S^{a-1-u}) tr(S^u) q
                      + (2/n) sum_b b E tr(G^{i+1} S^{a-1+b}) q / tr(S^b)                      for q = prod_b tr(S^b),
    E tr((WG)^i (GW)^j) = (1 + m/n) E tr(G S^m) + (1/n) [sum_{u=1}^{i-1} + sum_{u=0}^{j-1}] E tr(S^u) tr(G S^{m-u}),

m = i + j - 1 and i, j >= 1. The self-pairing of the first W gives the 1, a pairing with another W of the same word cuts
it in two or turns a part around, one with another word joins the two. Both sides are polynomials in the traces of the
powers of G, so they hold for every symmetric G, singular and indefinite ones included. Every term is positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import prod
from numbers import Rational
from typing import Any

from algoformer.theory.numbers import integer, rational

DEPTH = 8  # the largest i and j of a mixed moment


def white(k: int, d: int, n: int) -> Fraction:
    """E tr W^k."""
    k, d, n = integer("k", k), integer("d", d, 1), integer("n", n, 1)
    if k == 0:
        return Fraction(d)
    return Fraction(sum(c * prod((n + s) * (d + s) for s in boxes) for c, boxes in _zonal(k)), n**k)


def white_polynomial(k: int) -> dict[tuple[int, int], int]:
    """The coefficients of n^k E tr W^k as a polynomial: {(i, j): c} for the term c n^i d^j."""
    k = integer("k", k)
    if k == 0:
        return {(0, 1): 1}
    total: dict[tuple[int, int], Fraction] = {}
    for c, boxes in _zonal(k):
        row = [1]
        for s in boxes:
            row = [a * s + b for a, b in zip([*row, 0], [0, *row], strict=True)]
        for i, a in enumerate(row):
            for j, b in enumerate(row):
                total[i, j] = total.get((i, j), Fraction(0)) + c * a * b
    return {key: int(value) for key, value in sorted(total.items()) if value}


class Wishart:
    """The moments of W with a symmetric matrix G, given the traces d, tr G, tr G^2, ... of its powers.

    The traces decide the arithmetic: Fractions give exact moments, floats and float64 tensors rounded ones.
    """

    def __init__(self, traces: Sequence[Any], n: int) -> None:
        n = integer("n", n, 1)
        self.traces = [rational(t) if isinstance(t, Rational) else t for t in traces]
        self.unit = Fraction(1, n) if isinstance(traces[0], Rational) else 1 / n
        self._known: dict[tuple[int, int, tuple[int, ...]], Any] = {}

    def power(self, k: int) -> Any:
        """E tr (W G)^k."""
        k = integer("k", k)
        self._reach(k)
        return self._mean(0, k, ())

    def mixed(self, i: int, j: int) -> Any:
        """E tr((W G)^i (G W)^j)."""
        i, j = integer("i", i), integer("j", j)
        if max(i, j) > DEPTH:
            raise ValueError(f"mixed moments must have depth at most {DEPTH}; got i = {i}, j = {j}")
        if i == 0 or j == 0:
            return self.power(i + j)
        self._reach(i + j)
        m = i + j - 1
        cut = [self._mean(1, m - u, (u,)) for u in range(1, i)]
        cut += [self._mean(1, m - u, (u,)) if u else self.traces[0] * self._mean(1, m, ()) for u in range(j)]
        return (1 + m * self.unit) * self._mean(1, m, ()) + self.unit * sum(cut)

    def _reach(self, degree: int) -> None:
        if len(self.traces) <= degree:
            raise ValueError(
                f"a moment of degree {degree} needs the traces of {degree} powers of G; got {len(self.traces) - 1}"
            )

    def _mean(self, i: int, a: int, q: tuple[int, ...]) -> Any:
        """E tr(G^i S^a) prod_{b in q} tr(S^b), q ascending."""
        if a == 0:
            return self.traces[i] * self._mean(0, q[-1], q[:-1]) if q else self.traces[i]
        key = (i, a, q)
        if key not in self._known:
            cut = [self._mean(i + 1, a - 1 - u, tuple(sorted((*q, u)))) for u in range(1, a)]
            join = [2 * b * self._mean(i + 1, a - 1 + b, q[:p] + q[p + 1 :]) for p, b in enumerate(q)]
            alone = (1 + (a - 1) * self.unit) * self._mean(i + 1, a - 1, q)
            self._known[key] = alone + self.unit * sum(cut + join)
        return self._known[key]


@lru_cache
def _zonal(k: int) -> list[tuple[Fraction, list[int]]]:
    """The coefficient 2k theta / j and the contents c_s of every partition (r, s, 1, ..., 1) of k."""
    shapes = [(r, s, *[1] * (k - r - s)) for r in range(1, k + 1) for s in range(min(r, k - r) + 1) if s or r == k]
    terms = []
    for shape in shapes:
        rows = [r for r in shape if r]
        columns = [sum(r > x for r in rows) for x in range(rows[0])]
        boxes = [(x, y) for y, r in enumerate(rows) for x in range(r)]
        contents = [2 * x - y for x, y in boxes]
        hooks = [2 * (rows[y] - x - 1) + columns[x] - y - 1 for x, y in boxes]
        terms.append((Fraction(2 * k * prod(contents[1:]), prod((h + 1) * (h + 2) for h in hooks)), contents))
    return terms
