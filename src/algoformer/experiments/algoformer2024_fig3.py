"""Gao et al. 2024, Figure 3: loops in training (T, dT), and loops far beyond T.

On regression with a representation. "A larger dT enhances stable long-term inference", and T decides the capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, assumed
from algoformer.experiments.softmax import SHORT, TINY, Softmax, stored
from algoformer.training import evaluate

REVISION = 1
SOURCE = "Figure 3"


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """One model for each (T, dT)."""

    pairs: tuple[tuple[int, int], ...] = assumed(((20, 5), (20, 10), (20, 15), (10, 5), (10, 10)))
    longest: int = assumed(100)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, pairs=((3, 1), (3, 2)), longest=6)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error at the last position over the zero predictor's, after each number of loops; mean and median."""

    pairs: list[list[int]]
    loops: list[int]
    mean: list[list[float]]
    median: list[list[float]]


def run(config: Config, site: Site) -> Result:
    """Train or load, then run on."""
    task = config.task("representation")
    loops = list(range(1, config.longest + 1))
    mean, median = [], []
    for count, window in config.pairs:
        model = config.model(config.algoformer(task, count), task, site, window=window)
        found = evaluate(model, task, prompts=config.prompts, steps=loops, seed=site.seed, device=site.device)
        mean.append([row[-1] / found.zero for row in found.mean])
        median.append([row[-1] / found.zero for row in found.median])
    return Result(pairs=[list(p) for p in config.pairs], loops=loops, mean=mean, median=median)


def claims(result: Result) -> list[Claim]:
    """Of two models with one T, the one with the larger dT grows less beyond it; and nothing is gained there."""
    made = []
    for depth in sorted({p[0] for p in result.pairs}):
        same = sorted((p[1], i) for i, p in enumerate(result.pairs) if p[0] == depth)
        if len(same) < 2:
            continue
        (short, a), (long, b) = same[0], same[-1]
        trained = [result.mean[i][depth - 1] for i in (a, b)]
        drift = [result.mean[i][-1] / result.mean[i][depth - 1] for i in (a, b)]
        made.append(
            Claim(
                text=f"T = {depth}: with dT = {long} the error grows less beyond T than with dT = {short} (ratio < 1)",
                source=SOURCE,
                measured=drift[1] / drift[0],
                sense="<",
                bound=1.0,
                errors=tuple(trained),
            )
        )
    return made


def plot(result: Result) -> Figure:
    """Error against loops."""
    fig, (ax,) = axes(8.6, 4.0)
    for (depth, window), line, colour in zip(result.pairs, result.mean, COLOURS, strict=False):
        ax.semilogy(result.loops, line, color=colour, label=f"T = {depth}, dT = {window}")
        ax.axvline(depth, color=colour, linestyle=":", linewidth=0.8)
    ax.set(xlabel="loops", ylabel="error / zero predictor's")
    legend(fig, ax)
    return fig
