"""Every construction at its size in the papers, what it must equal and how closely: for tests, docs and commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from algoformer.algorithm import Algorithm, On
from algoformer.constructions.autoregression import autoregression
from algoformer.constructions.chain_of_thought import chain_of_thought
from algoformer.constructions.decoder import decoder_gradient_descent
from algoformer.constructions.fused import fuse
from algoformer.constructions.gradient_descent import (
    gradient_descent,
    gradient_descent_plus_plus,
    preconditioned_gradient_descent,
)
from algoformer.constructions.logistic import damped_newton
from algoformer.constructions.lowering import Compiled, compile
from algoformer.constructions.newton import newton
from algoformer.constructions.newton_schulz import least_squares, matrix_inverse
from algoformer.constructions.program import Program
from algoformer.constructions.regression import descent_step, regression_with_representation
from algoformer.prompt import Dense, Prompt
from algoformer.solvers import (
    DampedNewton,
    Features,
    GradientDescent,
    GradientDescentPlusPlus,
    Links,
    Newton,
    PreconditionedGradientDescent,
    Windows,
)
from algoformer.tasks import (
    Autoregression,
    ChainOfThought,
    LeakyNetwork,
    LinearRegression,
    LogisticRegression,
    Representation,
    Spectrum,
)

Draw = Callable[[int, torch.Generator], Any]

LOWERINGS: Mapping[str, Mapping[str, Any]] = {
    "linear": {"attention": "linear"},
    "bare linear": {"attention": "linear", "masked": False},
    "relu": {"attention": "relu"},
    "softmax": {"attention": "softmax", "heads": 2},
    "softmax, 4 heads": {"attention": "softmax", "heads": 4},
}


@dataclass(frozen=True, kw_only=True)
class Construction:
    """A program at its paper's size, with its source, the budget claimed there, and what its lowerings must reach.

    `bars` are the largest |transformer - algorithm| / max|y| at any step in float64 and float32, one for each lowering
    there is; the others are refused. `algorithm` is None where no solver of the package iterates alike.
    """

    source: str
    claim: str
    program: Callable[[], Program]
    algorithm: Callable[[], Algorithm[Any, Any]] | None
    prompts: Mapping[str, Draw]
    bars: Mapping[str, tuple[float, float]]

    def compile(self, lowering: str, dtype: torch.dtype = torch.float64) -> Compiled:
        """The transformer of one of its lowerings."""
        return compile(self.program(), dtype=dtype, **LOWERINGS[lowering])


# The declared range of the regression prompts below (d = 20, N = 40, mean square 1 a feature): |x| <= 11,
# eigenvalues of X'X / N <= 9, |y| <= 8, |x_i' S^+ x_test| <= 2.
_D, _N, _STEPS = 20, 40, 50
_X, _MOST, _Y, _REACH = 11.0, 9.0, 8.0, 2.0
_ETA = 1 / _MOST


def _geometric(d: int, kappa: float) -> Tensor:
    """d eigenvalues of condition number kappa and mean 1."""
    values = torch.logspace(0, -math.log10(kappa), d, dtype=torch.float64)
    return values / values.mean()


def isotropic(batch: int, generator: torch.Generator) -> Prompt:
    """x ~ N(0, I), y = <w, x> with Var y = 1."""
    p: Any = LinearRegression(d=_D, n=_N).sample(batch, generator, torch.float64).prompt
    return Prompt(p.x, _D**-0.5 * p.y, p.queries)


def conditioned(batch: int, generator: torch.Generator, d: int = _D, n: int = _N, kappa: float = 100.0) -> Prompt:
    """X with X'X / n of condition number kappa, exactly; queries of the same second moment."""
    z = torch.randn(batch, n + 1, d, generator=generator, dtype=torch.float64)
    u, _, v = torch.linalg.svd(z[:, :n], full_matrices=False)
    root = _geometric(d, kappa).sqrt()
    x = math.sqrt(n) * (u * root) @ v
    w = d**-0.5 * torch.randn(batch, d, 1, generator=generator, dtype=torch.float64)
    return Prompt(x, x @ w, (z[:, n:] * root) @ v)


def coloured(batch: int, generator: torch.Generator) -> Prompt:
    """x ~ N(0, Sigma) with Sigma of condition number 100 and mean eigenvalue 1."""
    sigma = Spectrum(eigenvalues=tuple(_geometric(_D, 100).tolist()))
    p: Any = LinearRegression(d=_D, n=_N, covariance=sigma).sample(batch, generator, torch.float64).prompt
    return Prompt(p.x, _D**-0.5 * p.y, p.queries)


def _small(kappa: float) -> Draw:
    """Giannou's size, d = 10 and n = 50, with singular values of A from 1 to 1/kappa."""

    def draw(batch: int, generator: torch.Generator) -> Prompt:
        p = conditioned(batch, generator, d=10, n=50, kappa=kappa**2)
        top = math.sqrt(50 * float(_geometric(10, kappa**2)[0]))
        return Prompt(p.x / top, p.y / top, p.queries / top)

    return draw


def _square(batch: int, generator: torch.Generator) -> Prompt:
    """A square system: ten examples of ten features, singular values from 1 to 1/10."""
    p = conditioned(batch, generator, d=10, n=10, kappa=100)
    top = math.sqrt(10 * float(_geometric(10, 100)[0]))
    return Prompt(p.x / top, p.y / top, p.queries / top)


def _dense(draw: Draw) -> Draw:
    def all_of(batch: int, generator: torch.Generator) -> Dense:
        p = draw(batch, generator)
        return Dense(p.x, p.y)

    return all_of


def _of(task: Any) -> Draw:
    def draw(batch: int, generator: torch.Generator) -> Any:
        return task.sample(batch, generator, torch.float64).prompt

    return draw


@cache
def _network(layers: int) -> LeakyNetwork:
    return Representation(d=_D, layers=layers).phi


_SERIES = Autoregression(d=_D, n=_N, q=3, width=_D)
_SLOPE = 0.1
_LINEAR = {"isotropic": isotropic, "kappa(S) = 100": conditioned, "covariance, kappa = 100": coloured}
_REPRESENTED = {"isotropic": _of(Representation(d=_D, n=_N, k=5))}
_CHAINS = {
    f"{known} known": _of(ChainOfThought(d=_D, n=_N, layers=6, known=known, slope=_SLOPE)) for known in (1, 4, 6)
}
_SMALL = {"kappa(A) = 10": _small(10.0), "kappa(A) = 100": _small(100.0)}
_EXACT = {"relu": (1e-12, 1e-5)}
_TWO, _FOUR = "softmax", "softmax, 4 heads"
_DESCENT = {**_EXACT, _TWO: (2e-9, 1e-3), _FOUR: (1e-10, 2e-4)}
_MATRICES = dict.fromkeys(("linear", "bare linear", "relu"), (1e-12, 1e-3))

CATALOGUE: Mapping[str, Construction] = {
    "gradient-descent": Construction(
        source="von Oswald et al. 2023; Ahn et al. 2023, Lemma 2",
        claim="one linear-attention layer a step, width d + 1",
        program=lambda: gradient_descent(_D, eta=_ETA, steps=_STEPS),
        algorithm=lambda: GradientDescent(eta=_ETA, steps=_STEPS),
        prompts=_LINEAR,
        bars={"linear": (1e-12, 1e-5)},
    ),
    "preconditioned-gradient-descent": Construction(
        source="Ahn et al. 2023, Lemma 2; Gatmiry et al. 2024, Proposition 3.1",
        claim="one linear-attention layer a step, width d + 1",
        program=lambda: preconditioned_gradient_descent(_preconditioner(), steps=_STEPS),
        algorithm=lambda: PreconditionedGradientDescent(preconditioner=_preconditioner(), steps=_STEPS),
        prompts=_LINEAR,
        bars={"linear": (1e-12, 1e-5)},
    ),
    "gd++": Construction(
        source="von Oswald et al. 2023",
        claim="one linear-attention layer a step, width d + 1",
        program=lambda: gradient_descent_plus_plus(_D, eta=(_ETA,) * _STEPS, gamma=(0.1 * _ETA,) * _STEPS),
        algorithm=lambda: GradientDescentPlusPlus(eta=(_ETA,) * _STEPS, gamma=(0.1 * _ETA,) * _STEPS),
        prompts=_LINEAR,
        bars={"linear": (1e-12, 1e-5)},
    ),
    "descent-step": Construction(
        source="AlgoFormer, Lemma A.2",
        claim="one layer, two softmax heads",
        program=lambda: descent_step(_D, eta=_ETA, steps=_STEPS, x=_X, y=_Y),
        algorithm=lambda: GradientDescent(eta=_ETA, steps=_STEPS),
        prompts=_LINEAR,
        bars={"linear": (1e-12, 1e-5), **_DESCENT},
    ),
    "regression-with-representation": Construction(
        source="AlgoFormer, Theorem 3.1",
        claim="pre L+1 x 2, loop 1 x 2, post 1 x 1",
        program=lambda: regression_with_representation(
            _network(3), eta=1 / 30, steps=_STEPS, labels=5, examples=_N, h=14.0, y=12.0
        ),
        algorithm=lambda: On(GradientDescent(eta=1 / 30, steps=_STEPS), Features(_network(3))),
        prompts=_REPRESENTED,
        bars=_DESCENT,
    ),
    "autoregression": Construction(
        source="AlgoFormer, Lemma A.3 and Theorem 3.2",
        claim="pre 1 x q + (L+1) x 1, loop 1 x 2, post 1 x 1",
        program=lambda: autoregression(_D, 3, _SERIES.phi, eta=1 / 60, steps=_STEPS, examples=_N, h=16.0, y=14.0),
        algorithm=lambda: On(GradientDescent(eta=1 / 60, steps=_STEPS), Windows(q=3, phi=_SERIES.phi)),
        prompts={"series": _of(_SERIES)},
        bars={**_EXACT, _TWO: (1e-8, 2e-3), _FOUR: (1e-10, 1e-3)},
    ),
    "chain-of-thought": Construction(
        source="AlgoFormer, Theorem 3.3",
        claim="pre 7 x 2, loop 1 x 2, post 1 x 1; one set of weights for every position in the chain",
        program=lambda: chain_of_thought(_D, 7, slope=_SLOPE, eta=1 / 60, steps=_STEPS, examples=_N, s=28.0),
        algorithm=lambda: On(GradientDescent(eta=1 / 60, steps=_STEPS), Links(slope=_SLOPE)),
        prompts=_CHAINS,
        bars={"relu": (1e-11, 1e-4), _TWO: (1e-8, 5e-3), _FOUR: (2e-10, 1e-3)},
    ),
    "newton": Construction(
        source="AlgoFormer, Lemma A.4 and Theorem 4.1; with ReLU attention Fu et al. 2024",
        claim="pre 1 x 2, loop 1 x 2, post 2 x 2; Fu: k + 8 layers, O(d) width",
        program=lambda: newton(_D, most=_MOST * _N, steps=_STEPS, examples=_N, x=_X, reach=_REACH),
        algorithm=lambda: Newton(scale=(_MOST * _N) ** -2, steps=_STEPS, form="stream"),
        prompts=_LINEAR,
        bars={"relu": (1e-12, 5e-6), _TWO: (2e-9, 1e-3), _FOUR: (1e-10, 2e-4)},
    ),
    "decoder-gradient-descent": Construction(
        source="AlgoFormer, Lemma A.5 and Theorem 4.2",
        claim="causal; pre 1 x 2, loop 1 x 2, post 2 x 2; all prefixes at once",
        program=lambda: decoder_gradient_descent(_D, eta=_X**-2, steps=_STEPS, examples=_N, x=_X, y=_Y, w=2.0),
        algorithm=lambda: GradientDescent(eta=_X**-2, steps=_STEPS),
        prompts={name: _dense(draw) for name, draw in _LINEAR.items()},
        bars={**_EXACT, _TWO: (2e-9, 2e-3), _FOUR: (1e-10, 2e-4)},
    ),
    "matrix-inverse": Construction(
        source="Giannou et al. 2024, Lemma 4.1",
        claim="two layers a step, width 4d",
        program=lambda: matrix_inverse(10, alpha=0.9, steps=30),
        algorithm=None,
        prompts={"kappa(A) = 10": _square},
        bars=_MATRICES,
    ),
    "least-squares": Construction(
        source="Giannou et al. 2024, Theorem 4.2",
        claim="3 + T layers, 2 heads, width 4d + 3",
        program=lambda: least_squares(10, scale=0.9, steps=30),
        algorithm=lambda: Newton(scale=0.9, steps=30, form="stream"),
        prompts=_SMALL,
        bars=_MATRICES,
    ),
    "least-squares-order-3": Construction(
        source="Giannou et al. 2024, eq. 3.4",
        claim="width 4d + 3 for order 2",
        program=lambda: least_squares(10, scale=0.9, steps=30, order=3, start="I"),
        algorithm=lambda: Newton(scale=0.9, steps=30, order=3, start="I", form="stream"),
        prompts=_SMALL,
        bars=_MATRICES,
    ),
    "ridge": Construction(
        source="Giannou et al. 2024, Remark 4.4",
        claim="3 + T layers, 2 heads, width 4d + 3",
        program=lambda: least_squares(10, scale=0.9, steps=30, ridge=0.01),
        algorithm=lambda: Newton(scale=0.9, steps=30, ridge=0.01, form="stream"),
        prompts=_SMALL,
        bars=_MATRICES,
    ),
    "logistic-regression": Construction(
        source="Giannou et al. 2024, Theorem 5.2",
        claim="11 + 2k layers a step, width 6d + 4",
        program=lambda: damped_newton(5, mu=0.1, steps=12, hinges=1024),
        algorithm=lambda: DampedNewton(mu=0.1, steps=12),
        prompts={"|a| <= 1": _of(LogisticRegression(d=5, n=26, bounded=True))},
        bars={"linear": (2e-5, 2e-5)},
    ),
    "fused": Construction(
        source="AlgoFormer, section 2.2",
        claim="4 heads for parts of one head each",
        program=lambda: fuse(
            regression_with_representation(_network(1), eta=1 / 30, steps=_STEPS, examples=_N, h=14.0, y=12.0)
        ),
        algorithm=None,
        prompts={"isotropic": _of(Representation(d=_D, n=_N, layers=1))},
        bars=_DESCENT,
    ),
}


def _preconditioner() -> Tensor:
    """A fixed matrix: its symmetric part has eigenvalues from eta / 2 to eta, its skew part singular values eta / 5."""
    q, _ = torch.linalg.qr(torch.randn(_D, _D, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    half = q[:, : _D // 2] @ q[:, _D // 2 :].mT
    values = torch.linspace(0.5 * _ETA, _ETA, _D, dtype=torch.float64)
    matrix: Tensor = (q * values) @ q.mT + 0.2 * _ETA * (half - half.mT)
    return matrix
