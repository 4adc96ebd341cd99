"""Matrix inversion and least squares by Newton's iteration, linear attention (Giannou et al. 2024, section 4).

Tokens are columns: a d x d matrix is a register of width d over the first d tokens, and attention without a mask is the
product V K'Q of three matrices. With the columns e_j of [I 0] in a register, K = I or Q = I leave a factor out.

Lemma 4.1.    X <- X (2 I - A X) for any d x d matrix A. The paper stores A and takes two layers; with A' stored,
              key' = A and one layer does it: X - X A X + X, in 3d rows.
Theorem 4.2.  Least squares: S = A'A (+ mu I for ridge, Remark 4.4), X_0 = eps S or c I, T steps, then y'A X_T a_test.
              Depth 3 + T, two heads, width 4d + 3.
Order p.      eq. 3.4, X <- X sum_{m<p} (I - S X)^m, in p layers a step for p > 2: E = I - S X, then Horner's rule.
Proof.        Each line below is one product; S and X are symmetric (polynomials in S), so that K = S gives key' = S. []

Put right: the printed keys and queries of steps 2 and 3 select the wrong blocks; the answer is the first entry of the
last row, not the last; n >= d is needed.
"""

from __future__ import annotations

from typing import Literal, get_args

from algoformer.checks import one_of, whole
from algoformer.constructions.encoder import Encoder, Fills, Group, Spread, Unit
from algoformer.constructions.instructions import Mac
from algoformer.constructions.program import Program
from algoformer.constructions.stream import Form, Stream

Start = Literal["S", "I"]


def matrix_inverse(d: int, *, alpha: float, steps: int) -> Program:
    """Lemma 4.1: the rows of A are d examples at most, X_0 = alpha A', and the answer is query' X y."""
    z = Stream(x=d, a=d, eye=d, v=d, y=1, t=1, o=1)
    column: Fills = {"a": "x", "eye": Unit(d), "y": "y", "t": Spread()}
    return Program(
        name="Newton-Schulz inverse (Giannou, Lemma 4.1)",
        stream=z,
        encoder=Encoder((Group("columns", "examples", column),)),
        pre=[product(z.x, z.a, z.eye, z.eye, scale=alpha)],
        examples=d,
        loop=[product(z.x, z.x, z.a, z.x, scale=-1.0), product(z.x, z.x, z.eye, z.eye)],
        post=[[product(z.v, z.x, z.y, z.eye[0])], [product(z.o, z.t, z.eye, z.v)]],
        read=z.o,
        at="columns",
        first=True,
        steps=steps,
        answers=1,
    )


def least_squares(
    d: int,
    *,
    scale: float,
    steps: int,
    start: Start = "S",
    order: int = 2,
    ridge: float = 0.0,
) -> Program:
    """Theorem 4.2 with X_0 = scale S or scale I, of any order, with ridge: width 4d + 3 (6d + 3 for order > 2)."""
    one_of("start", start, get_args(Start))
    whole("order", order, 2)
    z = Stream(x=d, s=d, eye=d, a=d, t=1, y=1, o=1, **({"e": d, "p": d} if order > 2 else {}))
    column: Fills = {"x": Unit(d), "s": Unit(d), "eye": Unit(d), "a": "x", "t": Spread(), "y": "y"}
    gram = [product(z.s, z.a, z.a, z.eye), product(z.s, z.eye, z.eye, z.eye, scale=ridge - 1)]
    if start == "S":
        gram += [
            product(z.x, z.a, z.a, z.eye, scale=scale),
            product(z.x, z.eye, z.eye, z.eye, scale=scale * ridge - 1),
        ]
    else:
        gram += [product(z.x, z.eye, z.eye, z.eye, scale=scale - 1)]
    last = [product(z.o, z.o, z.t, z.eye[0]), product(z.o, z.o, z.eye, z.eye, scale=-1.0)]
    return Program(
        name="least squares by Newton's iteration (Giannou, Theorem 4.2)",
        stream=z,
        encoder=Encoder((Group("columns", "examples", column),)),
        pre=[gram],
        loop=_newton(z) if order == 2 else _series(z, order),
        post=[[product(z.o, z.y, z.a, z.x)], last],
        read=z.o,
        at="columns",
        first=True,
        steps=steps,
        answers=1,
    )


def product(into: Form, value: Form, key: Form, query: Form, *, scale: float = 1.0) -> Mac:
    """into += scale * value key' query, as matrices over the columns."""
    return Mac(into=into, value=value, key=key, query=query, scale=scale, keys="columns", add=True)


def _newton(z: Stream) -> list[Mac]:
    return [product(z.x, z.x, z.s, z.x, scale=-1.0), product(z.x, z.x, z.eye, z.eye)]


def _series(z: Stream, order: int) -> list[list[Mac]]:
    """E = I - S X and P = E; P <- E + E P until P = E + .. + E^(p-1); X += X P; E and P are emptied again."""
    residual = [
        step
        for register in (z.e, z.p)
        for step in (product(register, z.s, z.eye, z.x, scale=-1.0), product(register, z.eye, z.eye, z.eye))
    ]
    horner = [
        product(z.p, z.e, z.eye, z.p),
        product(z.p, z.e, z.eye, z.eye),
        product(z.p, z.p, z.eye, z.eye, scale=-1.0),
    ]
    finish = [
        product(z.x, z.x, z.eye, z.p),
        product(z.e, z.e, z.eye, z.eye, scale=-1.0),
        product(z.p, z.p, z.eye, z.eye, scale=-1.0),
    ]
    return [residual, *[horner] * (order - 2), finish]
