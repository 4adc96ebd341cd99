"""Gradient descent by linear self-attention (von Oswald et al. 2023; Ahn et al. 2023, Lemma 2; Gatmiry et al. 2024).

Statement.  Tokens hold x and r = y - <w_t, x>, with y = 0 at a query. With the layer below, r after t layers is the
            residual of the t-th iterate of (preconditioned) gradient descent on |Xw - y|^2 / 2n from w_0 = 0.
Proof.      A step changes <w, x_j> by 1/n sum_i (y_i - <w, x_i>) <A x_i, x_j> = 1/n sum_i r_i <x_i, A'x_j>, A = eta I
            without a preconditioner, and the layer takes just that from r_j; keys are the examples, so a query moves
            nothing. At a query -r = <w, x>. []

GD++ (von Oswald et al. 2023) lets the same head also take gamma/n sum_i x_i <x_i, x_j> from x_j.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from algoformer.checks import real
from algoformer.constructions.encoder import Encoder, Group
from algoformer.constructions.instructions import Mac
from algoformer.constructions.program import Program
from algoformer.constructions.stream import Stream


def gradient_descent(d: int, *, eta: float, steps: int, labels: int = 1) -> Program:
    """One linear-attention layer a step, width d + labels."""
    real("eta", eta, above=0)
    z = Stream(x=d, r=labels)
    body = [Mac(into=z.r, scale=-eta, value=z.r, key=z.x, query=z.x, keys="examples", mean=True)]
    return _program("gradient descent", z, labels, steps=steps, loop=body)


def preconditioned_gradient_descent(
    preconditioners: Float[Tensor, "t d d"] | Float[Tensor, "d d"], *, steps: int | None = None, labels: int = 1
) -> Program:
    """w <- w - A_t grad(w): one matrix a step (a layered program), or one for all steps of a loop."""
    many = torch.as_tensor(preconditioners, dtype=torch.float64)
    if many.ndim not in (2, 3) or many.shape[-2] != many.shape[-1]:
        raise ValueError(f"preconditioners must be (d, d) or (t, d, d); got shape {tuple(many.shape)}")
    z = Stream(x=many.shape[-1], r=labels)

    def body(a: Tensor) -> list[Mac]:
        return [Mac(into=z.r, scale=-1.0, value=z.r, key=z.x, query=z.x.through(a.mT), keys="examples", mean=True)]

    if many.ndim == 2:
        if steps is None:
            raise ValueError("steps must be given for a preconditioner that is used at every step; got None")
        return _program("preconditioned gradient descent", z, labels, steps=steps, loop=body(many))
    if steps not in (None, len(many)):
        raise ValueError(f"steps must be the number of preconditioners, {len(many)}; got {steps}")
    return _program("preconditioned gradient descent", z, labels, steps=len(many), passes=[body(a) for a in many])


def gradient_descent_plus_plus(d: int, *, eta: tuple[float, ...], gamma: tuple[float, ...], labels: int = 1) -> Program:
    """Gradient steps eta_t on inputs that the same layers condition, x <- (I - gamma_t S_t) x."""
    if len(eta) != len(gamma):
        raise ValueError(f"gamma must be as long as eta, {len(eta)} numbers; got {len(gamma)}")
    z = Stream(x=d, r=labels)
    passes = [
        [
            Mac(into=z.r, scale=-e, value=z.r, key=z.x, query=z.x, keys="examples", mean=True),
            Mac(into=z.x, scale=-g, value=z.x, key=z.x, query=z.x, keys="examples", mean=True),
        ]
        for e, g in zip(eta, gamma, strict=True)
    ]
    return _program("GD++", z, labels, steps=len(passes), passes=passes)


def _program(name: str, z: Stream, labels: int, **body: object) -> Program:
    pairs = Encoder((Group("examples", "examples", {"x": "x", "r": "y"}), Group("queries", "queries", {"x": "x"})))
    return Program(name=name, stream=z, encoder=pairs, read=-z.r, at="queries", labels=labels, **body)  # type: ignore[arg-type]
