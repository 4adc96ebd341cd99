"""Chain of thought with leaky-ReLU networks by softmax attention (AlgoFormer, Theorem 3.3).

Statement.  From N chains s^0, .., s^{c-1} with s^l = leaky(W_l s^{l-1}) and the first l states of one more, the
            transformer predicts the next state, for every l with one set of weights: one layer before the loop (the
            paper: seven), one layer a step, one after it.
Proof.      Pre copies to every state its successor and the position of the last token; the feed-forward marks the
            states with that position and sets r = leaky^-1(successor). The loop is Lemma A.2 over the marked states,
            one a chain. Post copies the answer to the blank token and applies leaky. []

Put right: "without loss of generality s^l = W s^{l-1}" hides leaky^-1, which needs the slope and amplifies noise by its
inverse; the states of the test chain match too and must be no keys.
"""

from __future__ import annotations

from algoformer.checks import real
from algoformer.constructions.encoder import Code, Encoder, Fills, Group, Link, LogCount
from algoformer.constructions.instructions import Copy, Equal, Leaky, Mac
from algoformer.constructions.program import Program
from algoformer.constructions.regression import code_bits
from algoformer.constructions.stream import Stream
from algoformer.prompt import Chains


def chain_of_thought(
    d: int,
    links: int,
    *,
    slope: float,
    eta: float,
    steps: int,
    examples: int = 64,
    s: float = 8.0,
) -> Program:
    """Theorem 3.3 for at most `examples` chains of `links` states with |s| <= s, and eta <= 2 / s^2 or as it may be."""
    real("eta", eta, above=0)
    bits = code_bits(examples * links + 1)
    z = Stream(
        s=d,
        r=d,
        o=d,
        next=d,
        e=links,
        last_e=links,
        match=1,
        one=1,
        state=1,
        past=1,
        last=1,
        blank=1,
        log_n=1,
        k=2 * bits,
        q=2 * bits,
    )
    link: Fills = {"s": "s", "one": 1}
    tokens = Encoder(
        (
            Group(
                "states",
                "states",
                {**link, "e": Link(links), "state": 1, "k": Code(bits, key=True), "q": Code(bits, shift=1)},
            ),
            Group("past", "partial", {**link, "past": 1}, stop=-1),
            Group("last", "partial", {**link, "e": Link(links), "last": 1}, start=-1),
            Group("blank", "blank", {"blank": 1, "one": 1, "log_n": LogCount()}),
        ),
        kind=Chains,
    )
    anyone = z.zero(1)
    position = Copy(into=z.last_e, value=z.e, key=anyone, query=z.one, keys="last", queries="states", sink="blank")
    successor = Copy(into=z.next, value=z.s, key=z.k, query=z.q, keys="states", queries="states", sink="blank")
    label = Leaky(into=z.r, value=z.next, slope=slope, inverse=True)
    mark = Equal(into=z.match, left=z.e, right=z.last_e)
    step = Mac(
        into=z.r,
        scale=-eta,
        value=z.r,
        key=z.s,
        query=z.s,
        keys="states",
        queries=("states", "last"),
        mask=z.state - z.match,
        mean=True,
        dump="blank",
    )
    answer = Copy(into=z.o, scale=-1.0, value=z.r, key=anyone, query=z.one, keys="last", queries="blank", sink="blank")
    return Program(
        name="chain of thought (AlgoFormer, Theorem 3.3)",
        stream=z,
        encoder=tokens,
        pre=[position, successor, label, mark],
        loop=[step],
        post=[answer, Leaky(into=z.o, value=z.o, slope=slope)],
        read=z.o,
        at="blank",
        steps=steps,
        labels=d,
        examples=examples,
        bounds={"s": s},
    )
