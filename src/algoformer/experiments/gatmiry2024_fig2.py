"""Gatmiry et al. 2024, Figure 2: looped models beside layered ones during training.

"A 1-layer model looped L times performs similarly to an L-layer model." The exact optima of both are drawn in: layers
with steps of their own are better, and more so the more there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.linear import Looped
from algoformer.theory import layered_optimum, looped_optimum, sampled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
SOURCE = "Figure 2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Looped and layered linear transformers on Sigma = I."""

    d: int = stated(10)
    n: int = assumed(20)
    loops: tuple[int, ...] = assumed((1, 2, 3, 5))
    steps: int = assumed(10_000)
    batch: int = assumed(1000)
    lr: float = assumed(0.02)
    samples: int = assumed(100_000)


PAPER = Config()
GPU = CPU = replace(PAPER, steps=800, batch=500, samples=20_000)
SMOKE = replace(PAPER, loops=(1, 2), steps=40, batch=100, samples=1000)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Losses over E y^2 = d: curves, final values on fresh prompts, and exact optima, by number of loops."""

    loops: list[int]
    steps: list[int]
    looped: list[list[float]]
    layered: list[list[float]]
    looped_final: list[float]
    layered_final: list[float]
    looped_optimum: list[float]
    layered_optimum: list[float]


def run(config: Config, site: Site) -> Result:
    """Train one looped and one layered model for each depth, and judge them on the same fresh prompts."""
    g = site.generator()
    curves: dict[bool, list[list[float]]] = {False: [], True: []}
    final: dict[bool, list[float]] = {False: [], True: []}
    steps: list[int] = []
    for loops in config.loops:
        for layered in (False, True):
            made = Looped(
                d=config.d, n=config.n, loops=loops, steps=config.steps, batch=config.batch, lr=config.lr,
                layered=layered,
            ).train(g)  # fmt: skip
            steps = made.steps
            curves[layered].append([v / config.d for v in made.losses])
            fresh = torch.Generator().manual_seed(10**6 + site.seed)
            stack = made.A.expand(loops, config.d, config.d)
            loss, _ = sampled(stack, config.n, samples=config.samples, generator=fresh)
            final[layered].append(float(loss) / config.d)
    return Result(
        loops=list(config.loops),
        steps=steps,
        looped=curves[False],
        layered=curves[True],
        looped_final=final[False],
        layered_final=final[True],
        looped_optimum=[float(looped_optimum(config.d, config.n, k).loss) / config.d for k in config.loops],
        layered_optimum=[float(layered_optimum(config.d, config.n, k).loss) / config.d for k in config.loops],
    )


def claims(result: Result) -> list[Claim]:
    """The two sentences of the caption, and how near training comes to the optimum."""
    errors = (*result.looped_final, *result.layered_final)
    falls = [a / b for a, b in zip(result.looped_final[1:], result.looped_final[:-1], strict=True)]
    optimum, final = result.looped_optimum, result.looped_final
    deepest = (result.looped_final[-1], result.layered_final[-1])
    return [
        Claim(
            text="L loops do about as well as L layers: at the largest L, layered over looped loss > 0.9",
            source=SOURCE,
            measured=deepest[1] / deepest[0],
            sense=">",
            bound=0.9,
            errors=deepest,
        ),
        Claim(
            text="the same of the exact optima",
            source="ours",
            measured=result.layered_optimum[-1] / result.looped_optimum[-1],
            sense=">",
            bound=0.9,
            exact=True,
        ),
        Claim(
            text="more loops, lower loss: the largest ratio of one depth to the next smaller is below 1",
            source=SOURCE,
            measured=max(falls),
            sense="<",
            bound=1.0,
            errors=errors,
        ),
        Claim(
            text="the looped model comes within 10 % of its exact optimum at every depth",
            source="ours",
            measured=max(abs(f / o - 1) for f, o in zip(final, optimum, strict=True)),
            sense="<",
            bound=0.1,
            errors=errors,
        ),
    ]


def plot(result: Result) -> Figure:
    """Curves of training with the exact optima as dotted lines."""
    fig, panels = axes(10.5, 3.9, columns=2)
    parts = ((result.looped, result.looped_optimum, "looped"), (result.layered, result.layered_optimum, "layered"))
    for ax, (curves, optima, title) in zip(panels, parts, strict=True):
        for loops, curve, best, colour in zip(result.loops, curves, optima, COLOURS, strict=False):
            ax.semilogy(result.steps, curve, color=colour, label=f"L = {loops}")
            ax.axhline(best, color=colour, linestyle=":")
        ax.set(title=f"{title}: training, and exact optimum (dotted)", xlabel="training step")
    low = 0.8 * min(result.layered_optimum)
    for ax in panels:
        ax.set_ylim(low, 1.2)
    panels[0].set_ylabel("loss / zero predictor's")
    legend(fig, panels[0])
    return fig
