"""Claims of Fu, Chen, Jia and Sharan 2024 (the slides)."""

from __future__ import annotations

from math import log2

import numpy as np

from algoformer.claims.built import deviation, size
from algoformer.claims.claim import Kind, Numbers, claim
from algoformer.constructions import newton

PAPER = "Fu et al. 2024"


@claim(
    "fu.rates",
    f"{PAPER}, table of rates",
    "Gradient descent needs O(kappa log 1/eps) steps, Newton's iteration O(log kappa + loglog 1/eps).",
    kind=Kind.EXACT,
    holds=lambda m: (
        m["GD steps / kappa, largest over least"] < 1.2
        and m["Newton steps - 2 log2 kappa, spread"] <= 1.5
        and m["GD steps at 1e-16 / steps at 1e-4, kappa = 100"] > 3.5
        and m["Newton's extra steps from 1e-4 to 1e-16, kappa = 100"] <= 3
    ),
)
def rates() -> Numbers:
    """Spectrum {1, 1/kappa}, half the weight on each; steps until |w_k - w|^2 < eps |w|^2. Gradient descent with step
    1/l_max leaves (1 - 1/kappa)^k in the slow direction, Newton's from M_0 = S/l_max^2 leaves (1 - 1/kappa^2)^{2^k}:
    2 log2 kappa steps to begin with, since M_0 = a S sees kappa squared; M_0 = c I would need log2 kappa.
    """

    def count(residual: float, power: int, eps: float) -> int:
        """Steps until residual^(k) or residual^(2^k) has half the square below eps."""
        needed = np.log(np.sqrt(2 * eps)) / np.log1p(-residual)
        return int(np.ceil(needed)) if power == 1 else max(0, int(np.ceil(log2(needed))))

    kappas = (10, 100, 1000, 10**4, 10**5)
    descent = {k: count(1 / k, 1, 1e-8) / k for k in kappas}
    newton = {k: count(1 / k**2, 2, 1e-8) - 2 * log2(k) for k in kappas}
    return {
        "GD steps / kappa, largest over least": max(descent.values()) / min(descent.values()),
        "GD steps, kappa = 1e5": descent[10**5] * 10**5,
        "Newton steps - 2 log2 kappa, spread": max(newton.values()) - min(newton.values()),
        "Newton steps, kappa = 1e5": newton[10**5] + 2 * log2(10**5),
        "GD steps at 1e-16 / steps at 1e-4, kappa = 100": count(0.01, 1, 1e-16) / count(0.01, 1, 1e-4),
        "Newton's extra steps from 1e-4 to 1e-16, kappa = 100": count(1e-4, 2, 1e-16) - count(1e-4, 2, 1e-4),
    }


@claim(
    "fu.initialisation",
    f"{PAPER}, slide on the iterative Newton method",
    "Newton's iteration from M_0 = alpha S with alpha = 2/|S S'|_2 converges to the pseudo-inverse.",
    kind=Kind.DERIVED,
    holds=lambda m: m["largest unsolved share after 60 steps, alpha = 2/|S S'|"] < 1e-6,
    corrected=lambda m: m["largest unsolved share after 60 steps, alpha = 1.99/|S S'|"] < 1e-6,
)
def initialisation() -> Numbers:
    """In a direction of eigenvalue s the unsolved share is r = 1 - m s, squared by every step. At the printed alpha
    the top direction begins at r = 1 - 2 = -1, so r = 1 from the first step on: its solution is forgotten and never
    found (M = 0 there). alpha must be strictly smaller: any alpha in (0, 2/|S S'|) converges. In exact arithmetic;
    rounding may free a float from the trap after some 50 steps.
    """
    out = {}
    for alpha in (2.0, 1.99, 1.0):
        share = 1 - alpha * np.array([1.0, 0.5, 0.1]) ** 2
        for _ in range(60):
            share = share**2
        out[f"largest unsolved share after 60 steps, alpha = {alpha:g}/|S S'|"] = float(share.max())
    return out


@claim(
    "fu.theorem",
    f"{PAPER}, theorem on the slides",
    "A transformer of k + 8 layers and O(d) width predicts with k steps of Newton's iteration.",
    kind=Kind.SAMPLED,
    holds=lambda m: (
        m["largest error, ReLU"] < 1e-11
        and m["layers besides the k steps"] <= 8
        and m["layers a step"] <= 1
        and m["rows a further feature"] <= 4
    ),
)
def theorem() -> Numbers:
    """With ReLU attention it is exact, and k + 3 layers are enough: one to begin, two to read out. A product z needs
    two heads, relu(z) and relu(-z) with opposite value matrices; equal ones, as in the full paper, give relu(z) +
    relu(-z) = |z|. The width is d for x, d for M x and 4 log2 N + 8 besides, for positions: O(d) at a given N. d = 20,
    N = 40, 50 steps.
    """
    s, rows = size("newton", "relu"), [newton(d, most=360.0, steps=1).stream.width for d in (20, 21)]
    z = np.linspace(-1, 1, 101)
    return {
        "largest error, ReLU": deviation("newton", "relu"),
        "layers besides the k steps": s["pre layers"] + s["post layers"],
        "layers a step": s["loop layers"],
        "width": s["width"],
        "rows a further feature": rows[1] - rows[0],
        "largest error of z with equal values": float(np.abs(np.maximum(z, 0) + np.maximum(-z, 0) - z).max()),
        "largest error of z with opposite values": float(np.abs(np.maximum(z, 0) - np.maximum(-z, 0) - z).max()),
    }
