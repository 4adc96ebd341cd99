"""Multivariate regression by softmax attention (AlgoFormer, Lemma A.2), on a fixed representation (Theorem 3.1).

Lemma A.2.    One layer with two heads takes a step of gradient descent on |A X - Y|^2 / 2N: tokens hold x and
              r = y - A_t x, and r_j loses eta/N sum_i r_i <x_i, x_j>.
Theorem 3.1.  Pre copies each label to its input's token and applies the L-layer network Phi; the loop is Lemma A.2 on
              h = Phi(x); post copies the answer to a token of its own. The output is A_T Phi(x_test).
Proof.        A Mac with the N label tokens as dumps: each takes e^C, so that the normaliser is N e^C and divides by N.
              Copies match the binary codes of the pairs. A network without biases keeps empty tokens empty. []

Put right: the paper's second head subtracts the constant, which leaves an error c; heads at +c and -c leave c^2. Its
copy of y gives y/2 with the wrong sign; x/N needs a product that a ReLU layer has not: the normaliser gives it free.
"""

from __future__ import annotations

from algoformer.checks import real, whole
from algoformer.constructions.encoder import Code, Encoder, Group
from algoformer.constructions.instructions import Copy, Leaky, Mac
from algoformer.constructions.program import Gram, Program
from algoformer.constructions.stream import Form, Stream
from algoformer.tasks.network import LeakyNetwork


def descent_step(d: int, *, eta: float, steps: int, labels: int = 1, x: float = 8.0, y: float = 8.0) -> Program:
    """Lemma A.2 for |x| <= x and |y| <= y: one layer a step, two softmax heads, no feed-forward."""
    real("eta", eta, above=0)
    z = Stream(x=d, r=labels, one=1, example=1, label=1, query=1)
    tokens = Encoder(
        (
            Group("examples", "examples", {"x": "x", "r": "y", "example": 1, "one": 1}),
            Group("labels", "examples", {"label": 1, "one": 1}),
            Group("queries", "queries", {"x": "x", "query": 1, "one": 1}),
        )
    )
    body = [Mac(into=z.r, scale=-eta, value=z.r, key=z.x, query=z.x, mean=True, dump="labels")]
    return Program(
        name="a step of gradient descent (AlgoFormer, Lemma A.2)",
        stream=z,
        encoder=tokens,
        loop=body,
        read=-z.r,
        at="queries",
        steps=steps,
        labels=labels,
        bounds={"x": x, "r": y},
        gram=Gram(register="x", groups="examples", most=2 / eta),
    )


def regression_with_representation(
    network: LeakyNetwork,
    *,
    eta: float,
    steps: int,
    labels: int = 1,
    examples: int = 64,
    h: float = 8.0,
    y: float = 8.0,
) -> Program:
    """Theorem 3.1 for at most `examples` pairs, as many queries as codes of them count, |Phi(x)| <= h and |y| <= y."""
    real("eta", eta, above=0)
    bits = code_bits(examples)
    marks = dict.fromkeys(("one", "example", "label", "query", "answer", "blank"), 1)
    features = feature_registers(network)
    z = Stream(x=network.weights[0].shape[1], **features, y=labels, r=labels, **marks, k=2 * bits, q=2 * bits)
    tokens = Encoder(
        (
            Group("examples", "examples", {"x": "x", "q": Code(bits), "example": 1, "one": 1}),
            Group("labels", "examples", {"y": "y", "k": Code(bits, key=True), "label": 1, "one": 1}),
            Group("queries", "queries", {"x": "x", "k": Code(bits, key=True), "query": 1, "one": 1}),
            Group("answers", "queries", {"q": Code(bits), "answer": 1, "one": 1}),
            Group("blank", "blank", {"blank": 1, "one": 1}),
        )
    )
    attach = Copy(into=z.r, value=z.y, key=z.k, query=z.q, keys="labels", queries="examples", sink="blank")
    answer = Copy(into=z.y, scale=-1.0, value=z.r, key=z.k, query=z.q, keys="queries", queries="answers", sink="blank")
    phi = representation(network, z, z.x)
    return Program(
        name="regression with representation (AlgoFormer, Theorem 3.1)",
        stream=z,
        encoder=tokens,
        pre=[[attach, phi[0]], *([layer] for layer in phi[1:])],
        loop=[Mac(into=z.r, scale=-eta, value=z.r, key=z.h, query=z.h, mean=True, dump="labels")],
        post=[answer],
        read=z.y,
        at="answers",
        steps=steps,
        labels=labels,
        examples=examples,
        bounds={"h": h, "r": y},
        gram=Gram(register="h", groups="examples", most=2 / eta),
    )


def feature_registers(network: LeakyNetwork) -> dict[str, int]:
    """Registers for the layers of a network: one for each run of equal widths, `h` the last."""
    widths = [len(w) for w in network.weights]
    runs = [w for w, before in zip(widths, [0, *widths], strict=False) if w != before]
    return {f"h{i}" if i < len(runs) else "h": w for i, w in enumerate(runs, 1)}


def representation(network: LeakyNetwork, z: Stream, start: Form) -> list[Leaky]:
    """h = Phi(start), a layer of the network each."""
    names, layers, now = iter(feature_registers(network)), [], start
    for w in network.weights:
        into = now if now is not start and len(w) == now.width else getattr(z, next(names))
        layers.append(Leaky(into=into, value=now.through(w), slope=network.slope))
        now = into
    return layers


def code_bits(positions: int) -> int:
    """The binary digits that number so many positions."""
    whole("examples", positions, 1)
    return max(1, (int(positions) - 1).bit_length())
