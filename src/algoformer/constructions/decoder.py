"""Gradient descent on every prefix at once, by causal attention (AlgoFormer, Lemma A.5 and Theorem 4.2).

Statement.  On tokens x_1, y_1, .., x_n, y_n the token x_i holds, after t causal layers, the t-th iterate w^i of
            gradient descent on the mean square over the pairs before it, and post answers <w^i, x_i> for every i.
Proof.      Pre copies x_j to the token of y_j. A step: w^i loses eta times the mean over y-tokens j < i of
            x_j (<w^i, x_j> - y_j) = x_j <(x_j, y_j), (w^i, -1)>. With the x-tokens from the second on as dumps, token
            x_i sees i - 1 keys and i - 1 dumps: the normaliser divides by i - 1. Post multiplies <x_i, w^i> by an
            attention that sees only its own code. []

Put right: the paper's first head has keys on x-tokens and so sums to i, not i - 1; its dump y_1 is invisible to x_1;
the theorem says Newton and means gradient descent; neither copy nor product is built. One eta must suit every prefix:
eta <= 1 / max |x|^2 does.
"""

from __future__ import annotations

from algoformer.checks import real
from algoformer.constructions.encoder import Code, Encoder, Fills, Group
from algoformer.constructions.instructions import Copy, Mac
from algoformer.constructions.program import Program
from algoformer.constructions.regression import code_bits
from algoformer.constructions.stream import Stream, join
from algoformer.prompt import Dense


def decoder_gradient_descent(
    d: int, *, eta: float, steps: int, examples: int = 64, x: float = 8.0, y: float = 8.0, w: float = 8.0
) -> Program:
    """Theorem 4.2 for at most `examples` pairs with |x| <= x, |y| <= y and |w| <= w on the way."""
    real("eta", eta, above=0)
    bits = code_bits(examples)
    z = Stream(x=d, y=1, s=d, w=d, o=1, one=1, blank=1, first=1, later=1, label=1, k=2 * bits, q=2 * bits)
    code: Fills = {"q": Code(bits), "one": 1}
    own: Fills = {"k": Code(bits, key=True)}
    tokens = Encoder(
        (
            Group("blank", "blank", {"blank": 1, "one": 1}),
            Group("first", "examples", {"x": "x", "first": 1, **code, **own}, stop=1),
            Group("later", "examples", {"x": "x", "later": 1, **code, **own}, start=1),
            Group("labels", "examples", {"y": "y", "label": 1, **code}),
        ),
        kind=Dense,
        interleaved=True,
    )
    inputs = ("first", "later")
    attach = Copy(into=z.s, value=z.x, key=z.k, query=z.q, keys=inputs, queries="labels", sink="blank")
    step = Mac(
        into=z.w,
        scale=-eta,
        value=z.s,
        key=join(z.s, z.y),
        query=join(z.w, -z.one),
        keys="labels",
        queries=inputs,
        mean=True,
        dump="later",
        score=x * w + y,
        mass=x,
    )
    answer = Mac(
        into=z.o,
        value=z.first + z.later,
        key=z.x,
        query=z.w,
        keys=inputs,
        queries=inputs,
        match=(z.k, z.q),
        dump="blank",
        score=x * w,
        mass=1.0,
    )
    return Program(
        name="gradient descent on every prefix (AlgoFormer, Theorem 4.2)",
        stream=z,
        encoder=tokens,
        pre=[attach],
        loop=[step],
        post=[answer],
        read=z.o,
        at=inputs,
        steps=steps,
        causal=True,
        examples=examples,
        bounds={"x": min(x, (2 / eta) ** 0.5), "y": y},
    )
