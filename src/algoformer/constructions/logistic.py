"""Logistic regression by damped Newton steps, linear attention with ReLU layers (Giannou et al. 2024, Theorem 5.2).

    f(w) = mean_i log(1 + exp(-y_i <a_i, w>)) + mu/2 |w|^2,   w <- w - 2 sqrt(mu) / (2 sqrt(mu) + lambda) H^-1 g,
    g = mu w - mean_i y_i p_i a_i,   H = mean_i D_i a_i a_i' + mu I,   lambda^2 = g' H^-1 g

Statement.  6 + k layers a step (the paper: 11 + 2k) of width 6d + 4, exact but for the scalar functions, which become
            piecewise linear with the given number of hinges: error O(1/hinges^2) (the paper: 1/hinges^(1/4)).
Proof.      w is a row: token j holds w_j. (1) z_i = <a_i, w>, then D = s(z) s(-z) and y p = (1 + y)/2 - s(z) for the
            sigmoid s: the identity is linear in y, no gate. (2) D a by (q+^2 - q-^2)/8, q+- = (8 D +- a)/2.
            (3) H, g and X_0 = c I, c = 2/(2 mu + 1/4) as the spectrum of H is in [mu, mu + 1/4]. (4) k steps
            X <- 2 X - X H X, one layer each, for H is symmetric. (5) p = X g; (6) lambda^2 = <g, p> at the first token,
            then the step size; (7) w_j -= size p_j = size <p, e_j>. []

Put right: the sign of the gradient; 6d + 4 rows, not 7d + 5; alpha is never chosen, and k = 1 (the 13 layers of the
paper's figure) does not invert; the step-size knots must open towards 0, where the function is steep.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from algoformer.checks import real, whole
from algoformer.constructions.encoder import Encoder, Group, Unit
from algoformer.constructions.instructions import Clear, Linear, Mac, Table
from algoformer.constructions.program import Program
from algoformer.constructions.stream import Form, Stream


def damped_newton(d: int, *, mu: float = 0.1, steps: int = 12, hinges: int = 1024, inner: int | None = None) -> Program:
    """Theorem 5.2 for |a_i| <= 1: `hinges` ReLUs a function, `inner` Newton steps an inverse (None: as many as needed).

    f(w_t) <= f(0) = log 2 keeps |w_t| and the margins below R = sqrt(2 log 2 / mu), and lambda^2 <= (1 + mu R)^2 / mu.
    """
    real("mu", mu, above=0)
    if inner is None:  # |I - X_0 H| <= (1/4) / (2 mu + 1/4), and every step squares it
        inner = math.ceil(math.log2(36.8 / math.log1p(8 * mu)))  # to e^-36.8 = 1e-16
    whole("inner", inner)
    z = Stream(a=d, eye=d, h=d, x=d, g=d, p=d, y=1, w=1, m=1, c=1)
    tokens = Encoder(
        (Group("columns", "examples", {"a": "x", "eye": Unit(d), "y": "y"}), Group("queries", "queries", {"a": "x"}))
    )
    margins = Mac(into=z.m, value=z.w, key=z.eye, query=z.a, keys="columns")
    most = 1.02 * (2 * math.log(2) / mu) ** 0.5
    domain = (-most, most)
    scalar = partial(Table, value=z.m, domain=domain, hinges=hinges)
    curvature = scalar(into=z.m, function=_curvature, name="curvature")
    half = scalar(into=z.c, function=_centred, name="centred sigmoid", scale=-1.0, add=True)
    label = Linear(into=z.c, value=0.5 * z.y, add=True)
    ones = torch.ones(d, 1, dtype=torch.float64)
    squares = partial(  # D is in [0, 1/4] and an entry of a in [-1, 1]
        Table, into=z.p, function=_square, name="square", domain=(-0.5, 1.5), hinges=max(2, hinges // (2 * d)), add=True
    )
    weigh = [
        squares(value=z.m.through(4 * ones) + 0.5 * z.a, scale=0.125),
        squares(value=z.m.through(4 * ones) - 0.5 * z.a, scale=-0.125),
    ]
    c = 2 / (2 * mu + 0.25)

    def product(into: Form, value: Form, key: Form, query: Form, scale: float = 1.0, mean: bool = False) -> Mac:
        return Mac(into=into, value=value, key=key, query=query, scale=scale, mean=mean, keys="columns", add=True)

    model = [
        product(z.h, z.p, z.a, z.eye, mean=True),
        product(z.h, z.eye, z.eye, z.eye, mu),
        product(z.x, z.eye, z.eye, z.eye, c),
        product(z.g, z.a, z.c, z.eye[0], -1.0, mean=True),
        product(z.g, z.eye, z.w, z.eye[0], mu),
        Clear(z.p),
        Clear(z.m),
    ]
    invert = [product(z.x, z.x, z.h, z.x, -1.0), product(z.x, z.x, z.eye, z.eye)]
    size = Table(
        into=z.m,
        value=z.m,
        function=partial(_size, mu=mu),
        name=f"step size {float(mu)!r}",
        domain=(0.0, (1 + mu * most) ** 2 / mu),
        hinges=hinges,
    )
    move = [product(z.w, z.m, z.p, z.eye, -1.0), *(Clear(r) for r in (z.h, z.x, z.g, z.p, z.m, z.c))]
    return Program(
        name="logistic regression by damped Newton (Giannou, Theorem 5.2)",
        stream=z,
        encoder=tokens,
        loop=[
            [margins, curvature, half, label],
            weigh,
            model,
            *[invert] * inner,
            [product(z.p, z.x, z.eye, z.g)],
            [product(z.m, z.eye[0], z.g, z.p), size],
            move,
        ],
        post=[margins],
        read=z.m,
        at="queries",
        steps=steps,
        bounds={"a": 1.0},
    )


def _curvature(z: Tensor) -> Tensor:
    return torch.sigmoid(z) * torch.sigmoid(-z)


def _centred(z: Tensor) -> Tensor:
    return torch.sigmoid(z) - 0.5


def _square(q: Tensor) -> Tensor:
    return q.square()


def _size(decrement: Tensor, mu: float) -> Tensor:
    root: float = 2 * mu**0.5
    return root / (root + decrement.clamp(min=0).sqrt())
