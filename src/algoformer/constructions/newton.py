"""Newton's iteration for least squares by attention (AlgoFormer, Lemma A.4 and Theorem 4.1; Fu et al. 2024).

Statement.  With S = X'X, M_0 = alpha S and M <- 2 M - M S M, the transformer below answers x_test' M_T X'y: one layer
            before the loop, one layer a step, two layers after it. Fu et al. allow k + 8 layers; this takes k + 3.
Proof.      Tokens hold u_i = M_t x_i. Pre: u_i = alpha sum_j x_j <x_j, x_i> = alpha S x_i. A step:
            u_i - 1/2 sum_j u_j <x_j, u_i> = M x_i - 1/2 M S M x_i, then doubled. Post copies y_i to the token of x_i
            and takes sum_i y_i <u_i, x_test> = x_test' M X'y. []
Scores.     The eigenvalues of X M X' are 1 - (1 - alpha l^2)^(2^t) for the eigenvalues l of S, so that in the loop
            |<x_j, u_i>| <= max(1, alpha lmax(S)^2), whatever the data.

Put right: the test token must be no key, and must not ask in the loop either, or its u doubles outside the span of X;
alpha = 2 / |S|^2 itself does not converge.
"""

from __future__ import annotations

from algoformer.checks import real
from algoformer.constructions.encoder import Code, Encoder, Group
from algoformer.constructions.instructions import Copy, Double, Mac
from algoformer.constructions.program import Gram, Program
from algoformer.constructions.regression import code_bits
from algoformer.constructions.stream import Stream


def newton(
    d: int,
    *,
    most: float,
    steps: int,
    alpha: float | None = None,
    labels: int = 1,
    examples: int = 64,
    x: float = 8.0,
    reach: float = 8.0,
) -> Program:
    """Theorem 4.1 for at most `examples` pairs, lmax(S) <= most, |x| <= x and |x_i' M_t x_test| <= reach.

    The last must hold at every step t that is read; as t grows M_t comes to the pseudo-inverse of S.
    alpha is 1 / most^2 unless given.
    """
    real("most", most, above=0)
    alpha = 1 / most**2 if alpha is None else alpha
    if not 0 < alpha < 2 / most**2:
        raise ValueError(f"alpha must be above 0 and below 2 / most^2 = {2 / most**2:.6g}; got {alpha}")
    bits = code_bits(examples)
    z = Stream(
        x=d, u=d, y=labels, v=labels, o=labels, one=1, example=1, label=1, query=1, blank=1, k=2 * bits, q=2 * bits
    )
    tokens = Encoder(
        (
            Group("examples", "examples", {"x": "x", "q": Code(bits), "example": 1, "one": 1}),
            Group("labels", "examples", {"y": "y", "k": Code(bits, key=True), "label": 1, "one": 1}),
            Group("queries", "queries", {"x": "x", "query": 1, "one": 1}),
            Group("blank", "blank", {"blank": 1, "one": 1}),
        )
    )
    start = Mac(into=z.u, scale=alpha, value=z.x, key=z.x, query=z.x, queries="examples", dump="blank")
    step = Mac(
        into=z.u, scale=-0.5, value=z.u, key=z.x, query=z.u, dump="blank", score=1.01 * max(1.0, alpha * most**2)
    )
    attach = Copy(into=z.v, value=z.y, key=z.k, query=z.q, keys="labels", queries="examples", sink="blank")
    answer = Mac(into=z.o, value=z.v, key=z.u, query=z.x, queries="queries", dump="blank", score=reach)
    return Program(
        name="Newton's iteration (AlgoFormer, Theorem 4.1)",
        stream=z,
        encoder=tokens,
        pre=[start],
        loop=[step, Double(z.u)],
        post=[[attach], [answer]],
        read=z.o,
        at="queries",
        steps=steps,
        labels=labels,
        examples=examples,
        bounds={"x": x},
        gram=Gram(register="x", groups="examples", most=most, mean=False),
    )
