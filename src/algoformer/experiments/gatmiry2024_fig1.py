"""Gatmiry et al. 2024, Figure 1: what a looped model learns from few examples.

The figure is said to show that A comes very close to I even for small n, and for n < d. The exact optimum is A = a I
with a well below 1 until n is much larger than d; only the direction of A, not its size, is that of I.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from algoformer.analysis import distance_to_identity
from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.linear import Looped
from algoformer.theory import looped_optimum

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
SOURCE = "Figure 1"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Looped linear transformers, A symmetric, trained on Sigma = I."""

    d: int = stated(5)
    n: tuple[int, ...] = assumed((2, 3, 5, 10, 20, 40))
    loops: int = assumed(3)
    steps: int = assumed(5000)
    batch: int = assumed(1000)
    lr: float = assumed(0.02)


PAPER = Config()
GPU = CPU = replace(PAPER, steps=800, batch=500)
SMOKE = replace(PAPER, n=(3, 20), steps=40, batch=100)


@dataclass(frozen=True, kw_only=True)
class Result:
    """For each n: the learned scale tr A / d, two distances from I, the trajectory of one; and the exact optimum."""

    n: list[int]
    scale: list[float]
    absolute: list[float]
    direction: list[float]
    optimum: list[float]
    steps: list[int]
    trajectory: list[list[float]]


def run(config: Config, site: Site) -> Result:
    """Train one model for each n."""
    eye = torch.eye(config.d, dtype=torch.float64)
    g = site.generator()
    scale, absolute, direction, trajectory = [], [], [], []
    steps: list[int] = []
    for n in config.n:
        trained = Looped(
            d=config.d, n=n, loops=config.loops, steps=config.steps, batch=config.batch, lr=config.lr
        ).train(g)
        A = trained.A[0]
        scale.append(float(A.trace()) / config.d)
        absolute.append(float((A - eye).norm() / eye.norm()))
        direction.append(float(distance_to_identity(A)))
        steps = trained.steps
        trajectory.append(((trained.weights[:, 0] - eye).norm(dim=(1, 2)) / eye.norm()).tolist())
    return Result(
        n=list(config.n),
        scale=scale,
        absolute=absolute,
        direction=direction,
        optimum=[float(looped_optimum(config.d, n, config.loops).a) for n in config.n],
        steps=steps,
        trajectory=trajectory,
    )


def claims(result: Result) -> list[Claim]:
    """The caption, in both readings of "close to I", and our exact optimum."""
    apart = max(abs(a - b) for a, b in zip(result.scale, result.optimum, strict=True))
    return [
        Claim(
            text="A is very close to I for every n: |A - I| / |I| < 0.1",
            source=SOURCE,
            measured=max(result.absolute),
            sense="<",
            bound=0.1,
        ),
        Claim(
            text="A is a multiple of I for every n: min over a of |A - a I| / |A| < 0.1",
            source=SOURCE,
            measured=max(result.direction),
            sense="<",
            bound=0.1,
        ),
        Claim(
            text="the learned scale is the exact optimum's, to 0.05",
            source="ours",
            measured=apart,
            sense="<",
            bound=0.05,
        ),
        Claim(
            text="the exact optimum itself is not close to I at the smallest n: 1 - a > 0.1",
            source="ours",
            measured=1 - result.optimum[0],
            sense=">",
            bound=0.1,
            exact=True,
        ),
    ]


def plot(result: Result) -> Figure:
    """Distances during training, and the learned scales beside the exact ones."""
    fig, (left, right) = axes(10.5, 3.9, columns=2)
    for n, line, colour in zip(result.n, result.trajectory, COLOURS, strict=False):
        left.plot(result.steps, line, color=colour, label=f"n = {n}")
    left.set(xlabel="training step", ylabel="|A - I| / |I|", ylim=(0, 1.05), title="distance from I")
    right.semilogx(result.n, result.optimum, color="#888888", label="exact optimum")
    right.semilogx(result.n, result.scale, "o", color=COLOURS[0], label="learned")
    right.set_xticks(result.n, [str(n) for n in result.n], minor=False)
    right.minorticks_off()
    right.set(xlabel="examples n", ylabel="tr A / d", ylim=(0, 1.05), title="scale of A: exact (line), learned (dots)")
    legend(fig, left)
    return fig
