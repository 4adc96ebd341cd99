"""The explicit bounds of Gatmiry et al. 2024 as printed, and where they begin to say something.

Each theorem is evaluated by the ledger at sizes where its condition holds and its bound is not vacuous. n may be a
Python integer of any size; `loops` is the paper's L.
"""

from __future__ import annotations

from math import exp, isqrt, log

from algoformer.theory.numbers import integer


def delta(d: int, n: int, loops: int) -> float:
    """The accuracy (8 L d / sqrt n)^{1/2L} of section 3.5."""
    d, n, loops = integer("d", d, 1), integer("n", n, 1), integer("loops", loops, 1)
    return exp((log(8 * loops * d) - log(n) / 2) / (2 * loops))


def optimum_size(d: int, loops: int) -> int:
    """Theorem 3.2: the least n with 8 L d^2 / sqrt n <= 4^-L."""
    d, loops = integer("d", d, 1), integer("loops", loops, 1)
    return int((8 * loops * d**2 * 4**loops) ** 2)


def optimum_loss(d: int, n: int, loops: int) -> float:
    """Theorem 3.2, part 1: the bound 8 L d^2 4^L / sqrt n on the least loss."""
    return d * (2 * delta(d, n, loops)) ** (2 * loops)


def optimum_radius(d: int, n: int, loops: int) -> float:
    """Theorem 3.2, part 2: c = 8 delta d^{1/2L} in (1 - c) Sigma^-1 <= A <= (1 + c) Sigma^-1."""
    return float(8 * delta(d, n, loops) * d ** (1 / (2 * loops)))


def informative_size(d: int, loops: int) -> int:
    """The least n at which c < 1, so that the lower half of Theorem 3.2, part 2, excludes something."""
    d, loops = integer("d", d, 1), integer("loops", loops, 1)
    return int((8 * loops * d**2 * 8 ** (2 * loops)) ** 2 + 1)


def flow_target(d: int, n: int, loops: int) -> float:
    """Theorem 3.3: the least loss 2 (4 delta)^{2L} it speaks about. A flow from A = 0 begins at d."""
    return float(2 * (4 * delta(d, n, loops)) ** (2 * loops))


def flow_time(target: float, loops: int) -> float:
    """Theorem 3.3 as printed: (1/xi)^{(L-1)/L} (16 L / (L-1))^{(L-1)/(2L-1)}."""
    loops = integer("loops", loops, 2)
    return float(target ** (-(loops - 1) / loops) * (16 * loops / (loops - 1)) ** ((loops - 1) / (2 * loops - 1)))


def flow_time_solved(target: float, loops: int, d: int = 1) -> float:
    """What g' = -(1/16) g^{(2L-1)/L} really gives: g^{-(L-1)/L} grows at the rate (L-1)/(16 L).

    With d, at that rate over d^{(L-1)/L}, the factor that Theorem 3.4 loses.
    """
    loops = integer("loops", loops, 2)
    return float(16 * loops / (loops - 1) * (target / d) ** (-(loops - 1) / loops))


def flow_time_exact(target: float, d: int, loops: int) -> float:
    """The time a flow from A = 0 needs as n grows: ((d / xi)^{(L-1)/L} - 1) / (4 L (L-1)).

    A = a I with a' = 2 L (1 - a)^{2L-1}, so the loss d (1 - a)^{2L} falls at the rate 4 L^2 d (1 - a)^{4L-2}.
    """
    loops = integer("loops", loops, 2)
    return float(((d / target) ** ((loops - 1) / loops) - 1) / (4 * loops * (loops - 1)))


def dominance_threshold(d: int, n: int, loops: int, *, appendix: bool = False) -> float:
    """Theorem 3.4: the least loss it speaks about, 16 L d 4^L / sqrt n; Theorem A.11 has 16^L in its place."""
    return (2 * delta(d, n, loops)) ** (2 * loops) * 2 if not appendix else flow_target(d, n, loops)


def dominance_dimension(loops: int) -> int:
    """The largest d with d^{(L-1)/L} <= 64 L^2: up to there Theorem 3.4 survives its lost factor of d."""
    loops = integer("loops", loops, 2)
    target, d = 64 * loops**2, isqrt(64 * loops**2)
    while (d + 1) ** (loops - 1) <= target**loops:
        step = 1
        while (d + 2 * step) ** (loops - 1) <= target**loops:
            step *= 2
        d += step
    return d


def closeness(d: int, loops: int) -> float:
    """Theorem 4.4: c = 4 + 16 d^{1/2L} in (1 - c eps) A_opt <= A <= (1 + c eps) A_opt."""
    return float(4 + 16 * d ** (1 / (2 * loops)))


def shift_factor(d: int, n: int, loops: int, zeta: float) -> float:
    """Theorem 4.5: (1 + 16 delta d^{1/2L})^2 (1 + 16 delta d^{1/2L} - zeta)^{2L}, the factor before the two norms."""
    e = 2 * optimum_radius(d, n, loops)
    return float((1 + e) ** 2 * (1 + e - zeta) ** (2 * loops))


def moment_radius(d: int, n: int, k: int) -> float:
    """Lemma 4.2: 4 k d / sqrt n, how far E S^k is at most from its population value, relatively, for n >= 4 k^2 d^2."""
    d, n, k = integer("d", d, 1), integer("n", n, 1), integer("k", k, 1)
    return exp(log(4 * k * d) - log(n) / 2)
