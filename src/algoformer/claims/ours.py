"""Claims of our own: found on the way, stated by no paper."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from algoformer.claims.claim import Kind, Numbers, claim
from algoformer.prompt import Prompt
from algoformer.solvers import Newton
from algoformer.theory import layered_optimum, looped_optimum, scalar_loops

OURS = "Our own"


@claim(
    "ours.looped-optimum",
    OURS,
    "Over symmetric A the looped model has one global minimum, A = a Sigma^-1, for every n, d and number of loops; "
    "a falls as the loops grow in number, at every size tried.",
    kind=Kind.DERIVED,
    holds=lambda m: m["largest a / a with one loop less, 252 sizes"] < 1,
)
def looped() -> Numbers:
    """The proof is in `theory.optima`: Cauchy-Schwarz, convexity and averaging over rotations. That a falls is not
    proved: it is so for 1 to 8 loops at every d of 1, 2, 3, 5, 10, 20 and n of 1, 2, 5, 10, 20, 100. d = 5, n = 20: at
    a = 1, which the papers' figures expect, ten loops have a loss of 1e5.
    """
    best = {L: looped_optimum(5, 20, L) for L in (1, 3, 10)}
    falls = []
    for d in (1, 2, 3, 5, 10, 20):
        for n in (1, 2, 5, 10, 20, 100):
            a = [looped_optimum(d, n, L).a for L in range(1, 9)]
            falls += [float(more.high / fewer.low) for fewer, more in pairwise(a)]
    one = scalar_loops(torch.tensor(1.0, dtype=torch.float64), 5, 20, 10)
    return {f"a, {L} loop{'s' * (L > 1)}": float(b.a) for L, b in best.items()} | {
        f"largest a / a with one loop less, {len(falls)} sizes": max(falls),
        "loss at the best a, 10 loops": float(best[10].loss),
        "loss at a = 1, 10 loops": float(one),
    }


@claim(
    "ours.layered-rate",
    OURS,
    "The best k separate steps are the inverse zeros of the k-th orthogonal polynomial of x E tr f(W); for n >= d "
    "their loss falls faster with k than that of a shared step.",
    kind=Kind.EXACT,
    holds=lambda m: (
        m["largest ratio to that of one step less, n >= d"] < 1
        and m["layered / looped, d = 10, n = 3, 7"] > m["layered / looped, d = 10, n = 3, 3"]
    ),
)
def layered() -> Numbers:
    """The zeros are the problem of Christoffel, proved in `theory.optima`; the rates are enclosed in rationals for k up
    to 7 at d, n = 5, 20 (layered / looped is given), 10, 10 and 3, 10. For n < d both losses stay above d - n, the
    share of w that no example shows, and their ratio tends to 1: at d = 10, n = 3 it rises from k = 3 on. What is above
    d - n is the problem with d and n exchanged, for n W = Z'Z and Z Z' have the same other eigenvalues.
    """
    size = range(1, 8)

    def ratios(d: int, n: int, floor: int = 0) -> list[Fraction]:
        best = [(layered_optimum(d, n, k).loss.middle, looped_optimum(d, n, k).loss.middle) for k in size]
        return [(apart - floor) / (shared - floor) for apart, shared in best]

    wide, few, fewer = ratios(5, 20), ratios(10, 3), ratios(10, 3, 7)
    tall = [wide, ratios(10, 10), ratios(3, 10)]
    return {
        **{f"layered / looped, {k}": float(wide[k - 1]) for k in (2, 4, 6)},
        "largest ratio to that of one step less, n >= d": float(max(b / a for r in tall for a, b in pairwise(r))),
        **{f"layered / looped, d = 10, n = 3, {k}": float(few[k - 1]) for k in (3, 7)},
        "the same above d - n, 7": float(fewer[6]),
        "layered / looped, d = 3, n = 10, 7": float(tall[2][6]),
    }


@claim(
    "ours.similarity-null",
    OURS,
    "The similarity of errors has no natural zero: predicting 0 scores about a half against least squares, and some "
    "step of gradient descent scores above 0.98 against every step of Newton's iteration.",
    kind=Kind.SAMPLED,
    holds=lambda m: (
        m["predicting 0 against least squares"] > 0.4 and m["least of the best descents against Newton 0 to 24"] > 0.98
    ),
)
def similarity_null() -> Numbers:
    """Cosine of the residuals over the 41 prefixes of a prompt, averaged over 96 prompts, d = 20 (the metric of Fu et
    al.). Every method is a filter on the spectrum of the prefix, so its residuals come from one eigendecomposition. A
    level such as 0.98 separates nothing unless a null is shown beside it. Steps 0 to 24 of Newton's iteration,
    against steps 1 to 2^14 of gradient descent.
    """
    g = torch.Generator().manual_seed(0)
    x = torch.randn(96, 41, 20, dtype=torch.float64, generator=g)
    y = (x @ torch.randn(96, 20, 1, dtype=torch.float64, generator=g))[:, :, 0]
    gram = torch.einsum("bti,btj->btij", x, x).cumsum(1)[:, :-1]
    moment = (x * y[:, :, None]).cumsum(1)[:, :-1]
    s, U = torch.linalg.eigh(gram)
    s, rank = s.clamp_min(0), torch.arange(1, 41).clamp_max(20)
    inside = torch.arange(20) >= 20 - rank[:, None]  # a prefix of t examples has rank min(t, 20)
    z = torch.einsum("btij,bti->btj", U, moment)
    head = torch.einsum("bti,btij->btj", x[:, 1:], U)

    def residuals(filtered: Tensor) -> Tensor:
        """The errors of the method whose weights are filtered(s) along the eigenvectors; nothing is known at first."""
        predicted = (head * filtered.where(inside, 0.0) * z).sum(-1)
        return torch.cat([torch.zeros(96, 1, dtype=torch.float64), predicted], 1) - y

    def cosine(a: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.cosine_similarity(a, b, dim=1)

    safe = s.where(inside, 1.0)
    solved = 1 / safe
    alpha = 1 / torch.linalg.matrix_norm(gram @ gram)[..., None]
    newton = {k: residuals((1 - (1 - alpha * safe**2) ** (2**k)) * solved) for k in range(25)}
    steps = sorted({round(2 ** (e / 4)) for e in range(57)})
    descent = [residuals((1 - (1 - 0.01 * safe) ** t) * solved) for t in steps]
    null = cosine(-y, residuals(solved))
    out = {"predicting 0 against least squares": float(null.mean()), "its standard error": float(null.std() / 96**0.5)}
    best = {k: max((cosine(r, d) for d in descent), key=lambda c: float(c.mean())) for k, r in newton.items()}
    out["least of the best descents against Newton 0 to 24"] = min(float(c.mean()) for c in best.values())
    for k in (3, 8, 12):
        out[f"best descent against Newton {k}"] = float(best[k].mean())
        out[f"its standard error, Newton {k}"] = float(best[k].std() / 96**0.5)
    return out


@claim(
    "ours.newton-rounding",
    OURS,
    "With fewer examples than features Newton's d x d recursion doubles its rounding errors at every step, and float32 "
    "has lost everything after 40.",
    kind=Kind.SAMPLED,
    holds=lambda m: m["error, step 40, d x d"] > 0.1 and m["error, step 40, spectral"] < 1e-3,
)
def newton_rounding() -> Numbers:
    """In a direction that the examples lack S = 0 and M <- 2 M: what rounding put there grows as 2^k. Iterating on
    shares of the singular directions has nothing to double. 16 prompts, d = 20, n = 10, float32 against float64.
    """
    g = torch.Generator().manual_seed(0)
    x = torch.randn(16, 10, 20, dtype=torch.float64, generator=g)
    p = Prompt(
        x,
        x @ torch.randn(16, 20, 1, dtype=torch.float64, generator=g),
        torch.randn(16, 1, 20, dtype=torch.float64, generator=g),
    )
    out = {}
    for name, form in (("d x d", "textbook"), ("spectral", "spectral")):
        wanted = Newton(steps=40, form="spectral").trace(p)
        found = Newton(steps=40, form=form).trace(p.to(dtype=torch.float32)).double()  # type: ignore[arg-type]
        for k in (20, 30, 40):
            out[f"error, step {k}, {name}"] = float((found[k] - wanted[k]).abs().max() / wanted[-1].abs().max())
    return out


@claim(
    "ours.softmax-accuracy",
    OURS,
    "Softmax attention multiplies only approximately: a pair of heads with scores +-c z has an error of order c^2 "
    "until rounding of order eps C/c takes over, so 'C large, c small' has a best point and no limit.",
    kind=Kind.EXACT,
    holds=lambda m: (
        abs(m["order in c"] - 2) < 0.2
        and m["error at the best c, C = 32"] < 1e-8
        and m["error at c = 1e-9, C = 32"] > 10 * m["error at the best c, C = 32"]
        and m["error at the best c, C = 300"] > 2 * m["error at the best c, C = 32"]
    ),
)
def softmax_accuracy() -> Numbers:
    """sum_i v_i z_i = e^C/(2c) [softmax(c z) - softmax(-c z)] v with a dump token of score C and value 0: the weights
    are e^{+-c z}/(e^C + ...), odd in z up to c^3 z^3/6. Subtracting the maximum C rounds c z to the spacing of floats
    near C.
    """
    rng = np.random.default_rng(0)
    z, v = rng.standard_normal((2, 64, 40))
    exact = (z * v).sum(1)

    def error(c: float, C: float) -> float:
        total = np.zeros(64)
        for sign in (1, -1):
            scores = np.concatenate([sign * c * z, np.full((64, 1), C)], 1)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            total += sign * (weights[:, :-1] * (v * np.exp(C) / (2 * c))).sum(1)
        return float(np.abs(total - exact).max() / np.abs(exact).max())

    grid = 10.0 ** np.arange(-9, -0.9, 0.5)
    best = {C: min((error(c, C), c) for c in grid) for C in (32.0, 300.0)}
    return {
        "order in c": float(np.log10(error(1e-1, 32) / error(1e-2, 32))),
        "error at the best c, C = 32": best[32.0][0],
        "the best c": best[32.0][1],
        "error at c = 1e-9, C = 32": error(1e-9, 32),
        "error at the best c, C = 300": best[300.0][0],
    }
