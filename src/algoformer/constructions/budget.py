"""How a softmax multiplies, and how wrong it is: the scales C and c of a Mac and its a-priori error bound.

A dump token with value 0 and score C makes e^C softmax equal to e^{cz} / (1 + O(e^-C)). Two heads with +c and -c leave
c^2 z^3 / 6, four with +-c and +-2c (Richardson) c^4 z^5 / 30. Rounding cz - C costs half a unit of C, amplified by 1/c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from algoformer.checks import one_of, real, whole

# Just below a power of two, where a unit of rounding is half of what it is at the power; e^-C is below the other terms.
_DUMP = {torch.float64: 31.0, torch.float32: 15.0}
FEW = 64  # keys of a sum whose number a program does not declare


@dataclass(frozen=True, kw_only=True)
class Scales:
    """C, c and the heads (multiple of c, share of the output) of a multiply-accumulate with |<key, query>| <= score."""

    dtype: torch.dtype
    score: float
    heads: int
    dump: float  # C
    rate: float  # c

    @property
    def taps(self) -> tuple[tuple[float, float], ...]:
        """The factor of the score in each head, and the factor of its value: sum_h share e^{factor z} ~ z."""
        c = self.rate
        if self.heads == 2:
            return (c, 1 / (2 * c)), (-c, -1 / (2 * c))
        near, far = 4 / 3 / (2 * c), -1 / 3 / (4 * c)
        return (c, near), (-c, -near), (2 * c, far), (-2 * c, -far)

    @property
    def truncation(self) -> float:
        """Largest error of the taps as an approximation of z, for |z| <= score."""
        t = (
            self.rate * self.score
        )  # sum_h share e^{rate z} = z sum_k weight_k t^2k / (2k + 1)!, all of one sign after 1
        terms = (
            (1 if self.heads == 2 else (4**k - 4) / 3) * t ** (2 * k) / math.factorial(2 * k + 1) for k in range(1, 9)
        )
        return self.score * sum(terms)

    def rounding(self, summed: int = FEW, counted: bool = False) -> float:
        """Largest rounding error of the taps: half a unit of C in each exponent, of each product, and of the sum.

        A dump that is `counted` has the score C + log n, whose unit is that of the next power of two.
        """
        eps = torch.finfo(self.dtype).eps
        unit = eps * 2.0 ** (math.floor(math.log2(self.dump + 2 * self.rate * self.score)) + counted)
        return sum(abs(share) for _, share in self.taps) * (unit / 2 + (3 + summed / 2) * eps)

    def leakage(self, keys: float = 1.0) -> float:
        """What the normaliser keeps of the scores themselves; `keys` is the number of keys a dump."""
        return 2 * self.score * keys * math.exp(-self.dump)

    def bound(self, mass: float, keys: float = 1.0, *, summed: int = FEW, counted: bool = False) -> float:
        """Bound of |compiled - exact| of one multiply-accumulate of values with sum (or mean) at most `mass`."""
        return mass * (self.truncation + self.rounding(summed, counted) + self.leakage(keys))


def scales(dtype: torch.dtype, score: float, heads: int = 2) -> Scales:
    """The scales for a bound on the scores: c balances truncation against rounding.

    Truncation grows with a power of the score while rounding is the same for all, and most scores are well below the
    bound: a few times the c that would balance the two at the bound is better on data.
    """
    if dtype not in _DUMP:
        raise ValueError(f"dtype must be torch.float64 or torch.float32; got {dtype}")
    one_of("heads", heads, (2, 4))
    real("score", score, above=0)
    dump = _DUMP[dtype]
    unit = torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(dump)) / 2
    # minimise t^2/6 + unit/t and t^4/30 + 1.5 unit/t over t = c z
    t = 4 * (3 * unit) ** (1 / 3) if heads == 2 else 2.5 * (11.25 * unit) ** (1 / 5)
    return Scales(dtype=dtype, score=score, heads=heads, dump=dump, rate=t / score)


def descent_bound(layer: float, *, eta: float, norm: float, steps: int, least: float = 0.0) -> float:
    """Bound of the prediction error after `steps` passes of gradient descent, each wrong by at most `layer` a token.

    For eta <= 1 / lmax. With e the errors on the examples, e <- (I - eta H H'/n) e + delta. What one step leaves
    reaches a query of norm `norm` through sum_{k<m} eta (I - eta S)^k H'delta / n, S = H'H/n, m the steps that follow;
    that has norm at most `layer` times the maximum of (1 - (1 - eta l)^m) / sqrt(l) over the eigenvalues l >= least.
    """
    whole("steps", steps)
    real("eta", eta, above=0)
    share = torch.logspace(-8, 0, 4096, dtype=torch.float64).clamp(min=eta * least)  # eta l
    reach = [float(((1 - (1 - share) ** m) / share.sqrt()).max()) * math.sqrt(eta) for m in range(steps)]
    return sum(layer * (1 + norm * r) for r in reach)
