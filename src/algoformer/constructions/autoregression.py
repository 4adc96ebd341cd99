"""AR(q) with representation by softmax attention (AlgoFormer, Lemma A.3 and Theorem 3.2).

Lemma A.3.    One layer with q heads copies the q values before each token to it.
Theorem 3.2.  Pre copies and applies the L-layer network Phi to the window (x_{t-q}, .., x_{t-1}); the loop is Lemma A.2
              with label x_t; post moves the answer to the empty token at n + 1, where it predicts x_{n+1}.
Proof.        A token at t holds the codes of t - 1, .., t - q as queries and its own as a key; what no key matches is
              0 by the sink. The blank token takes e^C (n - q), so that the mean is over the n - q windows. []

Put right: the paper aligns Phi(x_{t+1-q:t}) with no label; every head needs rows of its own; the first q tokens, whose
windows are not full, must not be examples; the prompt lacks the empty token.
"""

from __future__ import annotations

from algoformer.checks import real
from algoformer.constructions.encoder import Code, Encoder, Fills, Group, LogCount
from algoformer.constructions.instructions import Copy, Gate, Linear, Mac
from algoformer.constructions.program import Gram, Program
from algoformer.constructions.regression import code_bits, feature_registers, representation
from algoformer.constructions.stream import Stream, join
from algoformer.prompt import Series
from algoformer.tasks.network import LeakyNetwork


def autoregression(
    d: int,
    q: int,
    network: LeakyNetwork | None = None,
    *,
    eta: float,
    steps: int,
    examples: int = 64,
    h: float = 8.0,
    y: float = 8.0,
) -> Program:
    """Theorem 3.2 for at most `examples` windows with |Phi| <= h, |x_t| <= y; without a network Phi is the window."""
    real("eta", eta, above=0)
    if network is not None and network.weights[0].shape[1] != q * d:
        raise ValueError(f"the network must take q d = {q * d} numbers; got {network.weights[0].shape[1]}")
    bits = code_bits(examples + 2 * q + 1)
    lags = [f"x{m}" for m in range(1, q + 1)]
    codes: Fills = {f"q{m}": Code(bits, shift=q - m) for m in range(1, q + 1)}
    features = {"h": q * d} if network is None else feature_registers(network)
    z = Stream(
        x=d,
        **dict.fromkeys(lags, d),
        **features,
        r=d,
        **dict.fromkeys(("one", "initial", "window", "slot", "blank", "log_n"), 1),
        k=2 * bits,
        **dict.fromkeys(codes, 2 * bits),
    )
    own: Fills = {"k": Code(bits, key=True, shift=q), "one": 1}
    tokens = Encoder(
        (
            Group("initial", "values", {"x": "x", "initial": 1, **own}, stop=q),
            Group("windows", "values", {"x": "x", "window": 1, **own, **codes}, start=q),
            Group("slot", "next", {"slot": 1, "one": 1, **codes}),
            Group("blank", "blank", {"blank": 1, "one": 1, "log_n": LogCount()}),
        ),
        kind=Series,
    )
    history, asking = ("initial", "windows"), ("windows", "slot")
    copies = [
        Copy(
            into=getattr(z, f"x{m}"),
            value=z.x,
            key=z.k,
            query=getattr(z, f"q{m}"),
            keys=history,
            queries=asking,
            sink="blank",
        )
        for m in range(1, q + 1)
    ]
    window = join(*(getattr(z, name) for name in reversed(lags)))
    phi = [Linear(into=z.h, value=window)] if network is None else representation(network, z, window)
    return Program(
        name="autoregression with representation (AlgoFormer, Theorem 3.2)",
        stream=z,
        encoder=tokens,
        pre=[[*copies, phi[0], Linear(into=z.r, value=z.x)], *([layer] for layer in phi[1:])],
        loop=[Mac(into=z.r, scale=-eta, value=z.r, key=z.h, query=z.h, keys="windows", mean=True, dump="blank")],
        post=[Gate(into=z.x, value=-z.r, block=z.initial + z.window + z.blank)],
        read=z.x,
        at="slot",
        steps=steps,
        labels=d,
        examples=examples,
        bounds={"h": h, "r": y},
        gram=Gram(register="h", groups="windows", most=2 / eta),
    )
