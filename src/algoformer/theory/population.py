"""Exact in-context losses of linear transformers over Gaussian prompts (Ahn et al. 2023; Gatmiry et al. 2024).

A prompt has x_i, x_q ~ N(0, Sigma), labels y_i = <w, x_i>, and asks <w, x_q>. Unless said otherwise w ~ N(0, Sigma^-1),
and a layer holds A_l in its scores x_i' A_l x (with the positive sign; Ahn et al. write -A_l), which is a step of
gradient descent preconditioned by A_l', w_{l+1} = w_l + A_l' S (w - w_l) with S = (1/n) sum x_i x_i'. Then

    loss = E | prod_l (I - W G_l) |_F^2,        G_l = Sigma^1/2 A_l Sigma^1/2,     W a white Wishart matrix:

the error is <(prod_l (I - S A_l))' w, x_q>, the mean over w and x_q is a squared Frobenius norm, and x = Sigma^1/2 z
whitens it. Sigma is gone. Every word in G and G' has the trace of the same word in A Sigma and A' Sigma.

The functions here take float64 tensors and answer with a differentiable tensor, or take Fractions (nested lists or
object arrays of rationals) and answer with a Fraction; `plane_layers` takes tensors alone, and so does `sampled`, which
is for whatever lies beyond.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import comb, lcm, log10, prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import whole
from algoformer.theory import quadrature
from algoformer.theory.moments import DEPTH, Wishart, white
from algoformer.theory.numbers import (
    Array,
    Number,
    array,
    covariance_matrix,
    eye,
    integer,
    is_symmetric,
    matrices,
    trace,
    unit,
)
from algoformer.theory.words import table

KEPT = 6  # fewer digits than this and a float64 sum is refused


def one_layer(b: Array, A: Array, covariance: Array, n: int) -> Number:
    """The loss f(b, A) of one layer with w ~ N(0, I) (Ahn et al., equations 5 to 8), b in R^{d+1}, A in R^{(d+1) x d}.

    With b = (b_x, beta), A = (A_x; a') and K = beta A_x + b_x a', the error is <w + K' S w + e, x_q> where
    e = A_x' S b_x + beta (w' S w) a is even in w and the rest odd, so the two parts do not meet:

        f = tr Sigma + 2 tr(Sigma K' Sigma) + tr(Sigma K' E[S^2] K) + E |e|_Sigma^2,

    E[S M S] = (1 + 1/n) Sigma M Sigma + (1/n) tr(M Sigma) Sigma for symmetric M, and likewise for the other moments.
    """
    row, block = array("b", b, 1), array("A", A, 2)
    C, u = covariance_matrix(covariance, like=block[:-1]), unit(block, n)
    d = len(C)
    if row.shape != (d + 1,) or isinstance(row, Tensor) != isinstance(block, Tensor):
        raise ValueError(f"b must be ({d + 1},) in the arithmetic of A; got {tuple(row.shape)}")
    bx, beta, Ax, a = row[:d], row[d], block[:d], block[d]
    K = beta * Ax + bx[:, None] * a[None, :]
    t, t2 = trace(C), trace(C @ C)
    second = (1 + u) * C @ C + u * t * C
    M = Ax @ C @ Ax.T
    square = (1 + u) * (C @ bx) @ (M @ (C @ bx)) + u * trace(M @ C) * (bx @ (C @ bx))
    cross = 2 * beta * (a @ (C @ (Ax.T @ ((t * C + 2 * u * C @ C) @ bx))))
    fourth = (1 + 2 * u) * t * t + 2 * (1 + 2 * u) * t2
    terms = [
        t,
        2 * trace(C @ K.T @ C),
        trace(C @ K.T @ second @ K),
        square,
        cross,
        beta * beta * fourth * (a @ (C @ a)),
    ]
    return _checked(torch.stack(terms), n) if isinstance(C, Tensor) else Fraction(sum(terms))


def scalar_layers(a: Array, d: int, n: int) -> Number:
    """The loss of layers A_l = a_l Sigma^-1, of any depth: the mean of tr prod_l (I - a_l W)^2."""
    steps = array("a", a, 1)
    if isinstance(steps, Tensor):
        t, w = (v.to(steps.device) for v in quadrature.spectrum(d, n, len(steps) + 1))
        return (w * ((1 - steps[:, None]) - steps[:, None] * t).prod(0).square()).sum()
    q = [Fraction(1)]
    for step in steps:
        q = _times(q, [Fraction(1), -step])
    return _mean(_times(q, q), d, n)


def scalar_loops(a: Tensor | Fraction | int | float, d: int, n: int, loops: int) -> Number:
    """The loss of `loops` layers that share A = a Sigma^-1."""
    loops = integer("loops", loops)
    if isinstance(a, Tensor) and a.ndim:
        raise ValueError(f"a must be one number, which the loops share; got shape {tuple(a.shape)}")
    return scalar_layers(a.expand(loops) if isinstance(a, Tensor) else [a] * loops, d, n)


def scalar_gdpp(a: Array, b: Array, d: int, n: int) -> Number:
    """The loss of up to three layers A_l = a_l Sigma^-1, B_l = b_l I (Ahn et al., equation 13); the last b is idle.

    On an eigenvalue x of W the residual R and the scale P of the covariates move as
    R <- R (1 - a x P^2), P <- P (1 - a b x P^2) from R = P = 1, and the loss is the mean of R^2.
    """
    steps, scales = array("a", a, 1), array("b", b, 1)
    depth = len(steps)
    if isinstance(steps, Tensor) != isinstance(scales, Tensor):
        raise TypeError(f"b must be in the arithmetic of a; got {type(b).__name__} and {type(a).__name__}")
    if depth > 3:
        raise ValueError(f"layers with B_l are exact up to depth 3; got {depth}: use `sampled`")
    if len(scales) not in (depth, depth - 1):
        raise ValueError(f"b must have {depth} entries, or {depth - 1} without the idle last one; got {len(scales)}")
    if isinstance(steps, Tensor):
        t, w = (v.to(steps.device) for v in quadrature.spectrum(d, n, (3**depth - 1) // 2 + 1))
        r = p = torch.ones_like(t)
        for i in range(depth):
            move = steps[i] * (1 + t) * p.square()
            r, p = r * (1 - move), p * (1 - scales[i] * move) if i < len(scales) else p
        return (w * r.square()).sum()
    R = P = [Fraction(1)]
    for i in range(depth):
        turn = _times([Fraction(0), steps[i]], _times(P, P))
        R, P = _times(R, _less(turn, 1)), _times(P, _less(turn, scales[i])) if i < len(scales) else P
    return _mean(_times(R, R), d, n)


def matrix_layers(A: Array, n: int, covariance: Array | None = None, *, symmetric: bool = False) -> Number:
    """The loss of up to three layers with full matrices A_l.

    `symmetric` promises that every A_l is: the loss is the same, found with fewer terms, and its gradient is the one
    within the symmetric matrices.
    """
    stack = matrices("A", A, 3)
    if symmetric and not is_symmetric(stack):
        raise ValueError("A must be symmetric, as promised")
    depth = len(stack)
    if depth > 3:
        raise ValueError(f"layers with full matrices are exact up to depth 3; got {depth}: use `sampled`")
    C, u = covariance_matrix(covariance, like=stack), unit(stack, n)
    words, factors, powers, counts = table(depth, symmetric)
    letters = {i: stack[i] @ C for i in range(depth)} | {~i: stack[i].T @ C for i in range(depth)}
    product: dict[tuple[int, ...], Any] = {(): eye(C)} | {(i,): letter for i, letter in letters.items()}

    def along(word: tuple[int, ...]) -> Any:
        if word not in product:
            product[word] = along(word[:-1]) @ letters[word[-1]]
        return product[word]

    halves = [(along(word[: len(word) // 2]), along(word[len(word) // 2 :])) for word in words]
    if isinstance(C, Tensor):
        left, right = (torch.stack(list(side)) for side in zip(*halves, strict=True))
        traces = torch.cat([torch.einsum("wij,wji->w", left, right), C.new_ones(1)])
        return _checked(traces[torch.from_numpy(factors)].prod(1) * C.new_tensor(counts * u**powers), n)
    exact = np.array([*((left * right.T).sum() for left, right in halves), Fraction(1)], dtype=object)
    weights = [count * u**power for count, power in zip(counts.tolist(), powers.tolist(), strict=True)]
    return Fraction((exact[factors].prod(1) * weights).sum())


def symmetric_loops(A: Array, n: int, loops: int, covariance: Array | None = None) -> Number:
    """The loss of up to eight layers that share one symmetric matrix A; its gradient is the one within those."""
    G = matrices("A", A, 2)
    loops = _loops(loops, DEPTH, "a symmetric matrix")
    if not is_symmetric(G):
        raise ValueError("A must be symmetric here; `matrix_loops` takes any")
    C = covariance_matrix(covariance, like=G)
    power, traces = eye(C), [trace(eye(C))]
    for _ in range(2 * loops):
        power = power @ G @ C
        traces.append(trace(power))
    W, depths = Wishart(traces, n), range(loops + 1)
    terms = [(-1) ** (i + j) * comb(loops, i) * comb(loops, j) * W.mixed(i, j) for i in depths for j in depths]
    return _checked(torch.stack(terms), n) if isinstance(C, Tensor) else Fraction(sum(terms))


def matrix_loops(A: Array, n: int, loops: int, covariance: Array | None = None) -> Number:
    """The loss of layers that share any matrix A: up to three of them, or any number where d = 2."""
    G = matrices("A", A, 2)
    d = len(G)
    loops = _loops(loops, None if d == 2 else 3, "a general matrix with d > 2")
    if loops == 0:
        return symmetric_loops(eye(G), n, 0, covariance)
    if d != 2:
        return matrix_layers(G.expand(loops, d, d) if isinstance(G, Tensor) else [G] * loops, n, covariance)
    if isinstance(G, Tensor):
        return plane_layers(G.expand(loops, 2, 2), n, covariance)  # type: ignore[arg-type]
    return _plane(G, covariance_matrix(covariance, like=G), integer("n", n, 1), loops)


def plane_layers(
    A: Float[Tensor, "t d d"],
    n: int,
    covariance: Float[Tensor, "d d"] | None = None,
    B: Float[Tensor, "t2 d d"] | None = None,
) -> Float[Tensor, ""]:
    """The loss of any stack of 2 x 2 layers (A_l, B_l), by cubature: exact, and a sum of squares.

    The last B_l is idle, and may be left out.
    """
    G, transport = _whitened(A, covariance, B)
    if G.shape[-1] != 2:
        raise ValueError(f"layers of any depth are exact at d = 2; got d = {G.shape[-1]}: use `sampled`")
    W, w = (v.to(G.device) for v in quadrature.plane(n, 2 * len(G) if B is None else 3 ** len(G) - 1))
    return (w * _residual(W, G, transport).square().sum((1, 2))).sum()


def sampled(
    A: Float[Tensor, "t d d"],
    n: int,
    covariance: Float[Tensor, "d d"] | None = None,
    B: Float[Tensor, "t2 d d"] | None = None,
    *,
    samples: int,
    generator: torch.Generator,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The loss of any stack of layers (A_l, B_l) by Rao-Blackwell Monte Carlo, and its standard error.

    Only the examples are drawn; the mean over w and x_q is exact. Layers move the covariates too where B is given
    (Ahn et al., equation 13), whose last is idle and may be left out. The mean is differentiable.
    """
    G, transport = _whitened(A, covariance, B)
    whole("samples", samples, 2)
    whole("n", n, 1)
    z = torch.randn(samples, n, G.shape[-1], dtype=G.dtype, device=G.device, generator=generator)
    values = _residual(torch.einsum("sni,snj->sij", z, z) / n, G, transport).square().sum((1, 2))
    return values.mean(), values.std() / samples**0.5


def _whitened(A: Tensor, covariance: Tensor | None, B: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """R' A_l R and R^-1 B_l R for Sigma = R R': the layers as they act on white prompts."""
    if not isinstance(A, Tensor):
        raise TypeError(f"A must be a float64 tensor here; got {type(A).__name__}")
    stack: Tensor = matrices("A", A, 3)
    root = torch.linalg.cholesky(covariance_matrix(covariance, like=stack))
    G = root.T @ stack @ root
    if B is None:
        return G, None
    moves, depth = matrices("B", B, 3), len(stack)
    if moves.shape[1:] != stack.shape[1:] or len(moves) not in (depth, depth - 1):
        raise ValueError(f"B must be {tuple(stack.shape)}, or without the idle last one; got {tuple(moves.shape)}")
    return G, torch.linalg.solve(root, moves @ root)


def _residual(W: Tensor, G: Tensor, B: Tensor | None = None) -> Tensor:
    """V_k with V <- V (I - W T' G T), T <- (I - B T W T' G) T: the residual as a map of w, T that of the covariates."""
    V: Tensor = eye(W[0]).expand_as(W)
    T = V
    for i, g in enumerate(G):
        move = W @ T.mT @ g @ T
        V = V - V @ move
        if B is not None and i < len(B):
            T = T - B[i] @ T @ move
    return V


def _plane(A: np.ndarray, C: np.ndarray, n: int, loops: int) -> Fraction:
    """`matrix_loops` in rationals at d = 2, with the Bartlett variables of `quadrature.plane` as indeterminates.

    Sigma = R D R' with R unit lower triangular, so S = R M R' where n M = [[p^2, p z], [p z, q^2 + z^2]] with
    p^2 ~ D_1 chi^2_n, q^2 ~ D_2 chi^2_{n-1}, z ~ N(0, D_2). The loss is E tr(D^-1 V D V'), V = (I - M G)^L, G = R' A R.
    """
    slope = C[1, 0] / C[0, 0]
    R, D = np.array([[1, 0], [slope, 1]], dtype=object), (C[0, 0], C[1, 1] - slope * C[1, 0])
    G = R.T @ A @ R / n
    scale = lcm(*(Fraction(g).denominator for g in G.flat))  # integers from here on: V is a polynomial over scale^L
    entries = {(0, 0): [(2, 0, 0)], (0, 1): [(1, 0, 1)], (1, 0): [(1, 0, 1)], (1, 1): [(0, 2, 0), (0, 0, 2)]}
    V = {(i, j): Counter({(0, 0, 0): int(i == j)}) for i in (0, 1) for j in (0, 1)}  # {powers of p, q, z: coefficient}
    for _ in range(loops):
        step = {place: Counter({e: scale * c for e, c in poly.items()}) for place, poly in V.items()}
        for (i, j), poly in step.items():
            for (k, m), monomials in entries.items():
                for e, c in V[i, k].items():
                    for f in monomials:
                        poly[e[0] + f[0], e[1] + f[1], e[2] + f[2]] -= c * int(scale * G[m, j])
        V = step
    total = Fraction(0)
    for (i, j), poly in V.items():
        square: Counter[tuple[int, int, int]] = Counter()
        for e, c in poly.items():
            for f, g in poly.items():
                square[e[0] + f[0], e[1] + f[1], e[2] + f[2]] += c * g
        for (p, q, z), c in square.items():
            if p % 2 == 0:  # p z has mean 0 in every odd power
                even = prod(range(n, n + p, 2)) * prod(range(n - 1, n - 1 + q, 2)) * prod(range(1, z, 2))
                total += c * even * D[0] ** (p // 2) * D[1] ** ((q + z) // 2) * D[j] / D[i]
    return Fraction(total / scale ** (2 * loops))


def _mean(q: list[Fraction], d: int, n: int) -> Fraction:
    """E tr q(W)."""
    return sum((c * white(k, d, n) for k, c in enumerate(q)), Fraction(0))


def _times(p: list[Fraction], q: list[Fraction]) -> list[Fraction]:
    out = [Fraction(0)] * (len(p) + len(q) - 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q):
            out[i + j] += a * b
    return out


def _less(p: list[Fraction], scale: Fraction | int) -> list[Fraction]:
    """1 - scale p for a polynomial p."""
    return [int(k == 0) - scale * c for k, c in enumerate(p)]


def _loops(loops: int, most: int | None, what: str) -> int:
    loops = integer("loops", loops)
    if most is not None and loops > most:
        raise ValueError(f"loops of {what} are exact up to depth {most}; got {loops}: use `sampled`")
    return loops


def _checked(terms: Tensor, n: int) -> Tensor:
    """The sum of the terms, unless too little of it is left after cancellation."""
    total = terms.sum()
    lost = float(terms.detach().abs().sum() / total.detach().abs().clamp_min(1e-300))
    kept = 15.9 - log10(max(lost, 1.0)) if lost < 1e16 else 0
    if kept < KEPT:
        raise ValueError(f"float64 keeps {max(int(kept), 0)} digits of this loss at n = {n}: pass Fractions instead")
    return total
