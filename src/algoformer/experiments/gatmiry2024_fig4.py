"""Gatmiry et al. 2024, Figure 4: the distance of A from I during training, by number of loops.

"The iterate A converges to identity for all number of loops", slower with more of them, and "just training with 1 loop
does not converge". Exactly, A converges to a I with a below 1, for 1 loop to n / (n + d + 1).
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
SOURCE = "Figure 4"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Looped linear transformers, A symmetric, trained on Sigma = I."""

    d: int = stated(10)
    n: int = assumed(20)
    loops: tuple[int, ...] = assumed((1, 2, 5, 10))
    steps: int = assumed(10_000)
    batch: int = assumed(1000)
    lr: float = assumed(0.02)


PAPER = Config()
GPU = CPU = replace(PAPER, steps=800, batch=500)
SMOKE = replace(PAPER, loops=(1, 3), steps=40, batch=100)


@dataclass(frozen=True, kw_only=True)
class Result:
    """By number of loops: the distance from I during training, the final scale and direction, the exact optimum."""

    loops: list[int]
    steps: list[int]
    trajectory: list[list[float]]
    scales: list[list[float]]
    absolute: list[float]
    direction: list[float]
    scale: list[float]
    optimum: list[float]


def run(config: Config, site: Site) -> Result:
    """Train one model for each number of loops."""
    g, eye = site.generator(), torch.eye(config.d, dtype=torch.float64)
    trajectory, scales, absolute, direction, scale = [], [], [], [], []
    steps: list[int] = []
    for loops in config.loops:
        made = Looped(
            d=config.d, n=config.n, loops=loops, steps=config.steps, batch=config.batch, lr=config.lr, points=200
        ).train(g)
        steps = made.steps
        trajectory.append(((made.weights[:, 0] - eye).norm(dim=(1, 2)) / eye.norm()).tolist())
        scales.append((made.weights[:, 0].diagonal(dim1=1, dim2=2).mean(1)).tolist())
        absolute.append(float((made.A[0] - eye).norm() / eye.norm()))
        direction.append(float(distance_to_identity(made.A[0])))
        scale.append(float(made.A[0].trace()) / config.d)
    return Result(
        loops=list(config.loops),
        steps=steps,
        trajectory=trajectory,
        scales=scales,
        absolute=absolute,
        direction=direction,
        scale=scale,
        optimum=[float(looped_optimum(config.d, config.n, k).a) for k in config.loops],
    )


def claims(result: Result) -> list[Claim]:
    """The three sentences of the caption."""
    one = result.loops.index(1)
    return [
        Claim(
            text="A converges to I for every number of loops: |A - I| / |I| < 0.1",
            source=SOURCE,
            measured=max(result.absolute),
            sense="<",
            bound=0.1,
        ),
        Claim(
            text="A converges to a multiple of I for every number of loops: min over a of |A - a I| / |A| < 0.1",
            source=SOURCE,
            measured=max(result.direction),
            sense="<",
            bound=0.1,
        ),
        Claim(
            text="training with 1 loop does not converge: the learned scale is more than 0.1 from the exact optimum's",
            source=SOURCE,
            measured=abs(result.scale[one] - result.optimum[one]),
            sense=">",
            bound=0.1,
        ),
        Claim(
            text="convergence is slower with more loops: steps to 95 % of the final scale, most loops over 1 loop, > 1",
            source=SOURCE,
            measured=_reach(result, -1) / max(_reach(result, one), 1),
            sense=">",
            bound=1.0,
        ),
    ]


def _reach(result: Result, i: int) -> float:
    """The first kept step at which the scale is 95 % of its last."""
    line = result.scales[i]
    return float(next(s for s, v in zip(result.steps, line, strict=True) if v >= 0.95 * line[-1]))


def plot(result: Result) -> Figure:
    """Distances from I, and the scale on its way to the exact optimum."""
    fig, (left, right) = axes(10.5, 3.9, columns=2)
    rows = zip(result.loops, result.trajectory, result.scales, result.optimum, COLOURS, strict=False)
    for loops, line, scale, best, colour in rows:
        left.plot(result.steps, line, color=colour, label=f"{loops} loops" if loops > 1 else "1 loop")
        right.plot(result.steps, scale, color=colour)
        right.axhline(best, color=colour, linestyle=":")
    left.set(xlabel="training step", ylabel="|A - I| / |I|", ylim=(0, 1.05), title="distance from I")
    right.set(xlabel="training step", ylabel="tr A / d", ylim=(0, 1.05), title="scale, and exact optimum (dotted)")
    legend(fig, left)
    return fig
