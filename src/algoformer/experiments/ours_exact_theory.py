"""AlgoFormer project, exact theory against training: the same three-layer model on the exact loss and on samples.

Ahn et al.'s setting (d = 5, n = 20, three layers). Gradient steps on the exact population loss reach its optimum to
many digits; the same number of steps on sampled prompts stops at the noise of the samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.linear import adam, lbfgs, symmetrised
from algoformer.theory import layered_optimum, matrix_layers, sampled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
SOURCE = "ours"


@dataclass(frozen=True, kw_only=True)
class Config:
    """One start for all; L-BFGS on the exact loss and on a fixed batch, Adam on fresh samples."""

    d: int = stated(5)
    n: int = stated(20)
    layers: int = stated(3)
    init: float = assumed(0.1)
    iterations: int = assumed(120)
    fixed: int = assumed(20_000)
    steps: int = assumed(3000)
    batch: int = assumed(1000)
    lr: float = assumed(0.02)


PAPER = Config()
GPU = PAPER
CPU = replace(PAPER, fixed=5000, steps=1500, batch=500)
SMOKE = replace(PAPER, d=3, layers=2, iterations=30, fixed=300, steps=30, batch=50)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Population loss less the exact optimum, over the optimum, against gradient evaluations."""

    at: dict[str, list[int]]
    gaps: dict[str, list[float]]
    optimum: float


def run(config: Config, site: Site) -> Result:
    """Three routes from one start."""
    best = float(layered_optimum(config.d, config.n, config.layers).loss)
    g = site.generator()
    start = config.init * torch.randn(config.layers, config.d, config.d, generator=g, dtype=torch.float64)
    at: dict[str, list[int]] = {}
    gaps: dict[str, list[float]] = {}

    def exact(A: Tensor) -> Tensor:
        value = matrix_layers(symmetrised(A), config.n, symmetric=True)
        assert isinstance(value, Tensor)
        return value

    def fixed(A: Tensor) -> Tensor:
        same = torch.Generator().manual_seed(site.seed)
        return sampled(symmetrised(A), config.n, samples=config.fixed, generator=same)[0]

    def fresh(A: Tensor) -> Tensor:
        return sampled(symmetrised(A), config.n, samples=config.batch, generator=g)[0]

    def watch(name: str, every: int) -> object:
        at[name], gaps[name] = [], []

        def observe(step: int, value: float, A: Tensor) -> None:
            if step % every == 0:
                at[name].append(step)
                gaps[name].append(float(exact(A)) / best - 1)

        return observe

    lbfgs(exact, start, iterations=config.iterations, observe=watch("L-BFGS, exact loss", 1))  # type: ignore[arg-type]
    lbfgs(fixed, start, iterations=config.iterations, observe=watch("L-BFGS, fixed batch", 1))  # type: ignore[arg-type]
    every = max(config.steps // 60, 1)
    last = adam(fresh, start, steps=config.steps, lr=config.lr, observe=watch("Adam, fresh samples", every))  # type: ignore[arg-type]
    at["Adam, fresh samples"].append(config.steps)
    gaps["Adam, fresh samples"].append(float(exact(last)) / best - 1)
    return Result(at=at, gaps=gaps, optimum=best / config.d)


def claims(result: Result) -> list[Claim]:
    """How much nearer the exact route ends."""
    exact = result.gaps["L-BFGS, exact loss"][-1]
    able = tuple(result.optimum * (1 + gaps[-1]) for gaps in result.gaps.values())
    return [
        Claim(
            text="on the exact loss training ends within 1e-6 of the optimum",
            source=SOURCE,
            measured=exact,
            sense="<",
            bound=1e-6,
            errors=able,
        ),
        Claim(
            text="on a fixed batch it ends more than 1e-4 away",
            source=SOURCE,
            measured=result.gaps["L-BFGS, fixed batch"][-1],
            sense=">",
            bound=1e-4,
            errors=able,
        ),
        Claim(
            text="on fresh samples it ends more than 1e-6 away",
            source=SOURCE,
            measured=result.gaps["Adam, fresh samples"][-1],
            sense=">",
            bound=1e-6,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """Gaps on the way."""
    fig, (ax,) = axes(8.6, 4.0)
    for (name, gaps), colour in zip(result.gaps.items(), COLOURS, strict=False):
        ax.loglog([t + 1 for t in result.at[name]], [max(v, 1e-14) for v in gaps], color=colour, label=name)
    ax.set(xlabel="iteration", ylabel="population loss / optimum - 1")
    legend(fig, ax)
    return fig
