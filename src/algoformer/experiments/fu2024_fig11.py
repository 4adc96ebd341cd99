"""Fu et al. 2024, Figures 11 and 12: BFGS, L-BFGS and conjugate gradients beside Newton's iteration.

Transformers are said to be like BFGS and to do better than conjugate gradients and L-BFGS. On a quadratic the three are
one method where the line search is exact: what differs is the search, which the paper does not state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from algoformer import analysis
from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, assumed, coded, stated
from algoformer.prompt import Dense, Prompt
from algoformer.solvers import BFGS, LBFGS, ConjugateGradient, Newton

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1


@dataclass(frozen=True, kw_only=True)
class Config:
    """Noiseless linear regression."""

    d: int = stated(20)
    n: int = stated(40)
    prompts: int = coded(320)
    steps: int = assumed(24)
    memory: int = assumed(10)
    newton: int = coded(21)


PAPER = Config()
GPU = CPU = replace(PAPER, prompts=96)
SMOKE = replace(PAPER, d=5, n=10, prompts=8, steps=8, newton=12)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Relative errors with all examples, the likeness to late Newton over prefixes by step, and equality in weights."""

    errors: dict[str, list[float]]
    similarity: dict[str, list[float]]
    zero: float
    apart: float


def run(config: Config, site: Site) -> Result:
    """Race the solvers, and compare each step's residuals with those of Newton's iteration near its end."""
    g = site.generator()
    x = torch.randn(config.prompts, config.n + 1, config.d, generator=g, dtype=torch.float64)
    w = torch.randn(config.prompts, config.d, 1, generator=g, dtype=torch.float64)
    dense = Dense(x, x @ w)
    prompt = Prompt(x[:, :-1], dense.y[:, :-1], x[:, -1:])
    racers: dict[str, Any] = {
        "conjugate gradients": ConjugateGradient(steps=config.steps),
        "BFGS, exact search": BFGS(steps=config.steps),
        "L-BFGS, exact search": LBFGS(steps=config.steps, memory=config.memory),
        "BFGS, unit step": BFGS(steps=config.steps, search="unit"),
        "L-BFGS, unit step": LBFGS(steps=config.steps, memory=config.memory, search="unit"),
        "Newton, from S": Newton(scale="frobenius", steps=config.steps),
    }
    late = analysis.readings(Newton(scale="frobenius", steps=config.newton), dense, [config.newton])
    errors, similarity = {}, {}
    for name, racer in racers.items():
        trace = racer.trace(prompt)
        scale = dense.y[:, -1:].square().mean()
        errors[name] = ((trace - dense.y[:, -1:]).square().mean((1, 2, 3)) / scale).tolist()
        likeness = analysis.error_similarity(racer.trace(dense), late, dense.y, first=1)
        similarity[name] = likeness.mean(-1)[:, 0].tolist()
    exact = [list(racers[name].states(prompt, config.d // 2))[-1].w for name in list(racers)[:2]]
    apart = float((exact[0] - exact[1]).norm() / exact[0].norm())
    null = analysis.null_similarity(late, dense.y, g, first=1)
    return Result(errors=errors, similarity=similarity, zero=float(null.zero.mean()), apart=apart)


def claims(result: Result) -> list[Claim]:
    """Equality under exact search, and the order of the others."""

    def first(name: str) -> float:
        return float(next((t for t, e in enumerate(result.errors[name]) if e < 1e-4), len(result.errors[name])))

    return [
        Claim(
            text="BFGS with exact search is conjugate gradients: weights after d/2 steps agree to 1e-6",
            source="ours",
            measured=result.apart,
            sense="<",
            bound=1e-6,
        ),
        Claim(
            text="with unit steps BFGS needs more steps to 1e-4 than conjugate gradients",
            source="ours",
            measured=first("BFGS, unit step") - first("conjugate gradients"),
            sense=">",
            bound=0.5,
        ),
        Claim(
            text="late iterates of BFGS are like late Newton: similarity of errors above 0.9",
            source="ours",
            measured=result.similarity["BFGS, unit step"][-1],
            sense=">",
            bound=0.9,
        ),
    ]


def plot(result: Result) -> Figure:
    """Errors and likeness to Newton, step by step."""
    fig, (left, right) = axes(11, 3.9, columns=2)
    for (name, errors), colour in zip(result.errors.items(), COLOURS, strict=False):
        left.semilogy([max(e, 1e-16) for e in errors], color=colour, label=name)
        right.plot(result.similarity[name], color=colour)
    right.axhline(result.zero, color="#888888", linestyle=":")
    left.set(xlabel="step", ylabel="error / zero predictor's", ylim=(1e-13, 3), title="all examples")
    right.set(xlabel="step", title="likeness to late Newton (dotted: zero predictor)", ylim=(0, 1.02))
    legend(fig, left)
    return fig
