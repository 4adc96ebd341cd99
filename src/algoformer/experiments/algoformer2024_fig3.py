"""Gao et al. 2024, Figure 3: loops in training (T, dT), and loops far beyond T.

On regression with a representation. "A larger dT enhances stable long-term inference", and T decides the capacity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from algoformer.experiments.drawing import COLOURS, axes, key, one_scale
from algoformer.experiments.experiment import Claim, Site, assumed
from algoformer.experiments.protocol import zeros
from algoformer.experiments.softmax import COMPARED, TINY, Softmax, stored
from algoformer.models import AlgoFormerConfig
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 3
SOURCE = "Figure 3"


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """One model for each (T, dT)."""

    pairs: tuple[tuple[int, int], ...] = assumed(
        ((20, 15), (20, 10), (20, 5), (10, 10), (10, 5), (30, 15), (30, 10), (30, 5))
    )
    beyond: int = assumed(5)  # times T loops are tried

    def shape(self, loops: int) -> AlgoFormerConfig:
        """The model of T loops."""
        return self.algoformer(self.task("representation"), loops)

    def recipes(self) -> Iterator[Recipe]:
        """The trainings, pilots first."""
        task = self.task("representation")
        yield from self.pilots(self.shape(self.pairs[0][0]), task, window=self.pairs[0][1])
        for count, window in self.pairs:
            yield self.recipe(self.shape(count), task, window=window)


PAPER = Config()
GPU = Config(**COMPARED | {"steps": 30_000})
CPU = stored(replace(GPU, pairs=tuple(p for p in GPU.pairs if p[0] < 30)))  # of T = 30 nothing is trained yet
SMOKE = Config(**TINY, pairs=((3, 2), (3, 1)), beyond=2)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error at the last position over the zero predictor's, after each number of loops, for each (T, dT)."""

    pairs: list[list[int]]
    errors: list[list[float]]
    outcomes: list[str]
    rate: float


def run(config: Config, site: Site) -> Result:
    """Train or load, then run on. The learning rate is that of the first pair."""
    task = config.task("representation")
    rate = config.rate(config.shape(config.pairs[0][0]), task, site, window=config.pairs[0][1]).lr
    zero = zeros(task, config.prompts)[-1]
    errors, outcomes = [], []
    for count, window in config.pairs:
        loops = tuple(range(1, config.beyond * count + 1))
        found = config.measured(
            config.shape(count), task, site, loops=loops, purpose=f"T = {count}, dT = {window}", window=window, lr=rate
        )
        errors.append([row[-1] / zero for row in found.errors])
        outcomes.append(found.outcome)
    return Result(pairs=[list(p) for p in config.pairs], errors=errors, outcomes=outcomes, rate=rate)


def claims(result: Result) -> list[Claim]:
    """Of two models with one T, the one with the larger dT grows less beyond it; and T decides the capacity."""
    made = []
    lines = {(depth, window): line for (depth, window), line in zip(result.pairs, result.errors, strict=True)}
    depths = sorted({depth for depth, _ in lines})
    for depth in depths:
        windows = sorted(window for t, window in lines if t == depth)
        if len(windows) < 2:
            continue
        short, long = windows[0], windows[-1]
        trained = [lines[depth, window][depth - 1] for window in (short, long)]
        drift = [lines[depth, window][-1] / error for window, error in zip((short, long), trained, strict=True)]
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
    if len(depths) > 1:
        ends = [min(line[t - 1] for (t, _), line in lines.items() if t == depth) for depth in (depths[0], depths[-1])]
        made.append(
            Claim(
                text=f"T decides the capacity: the best of T = {depths[-1]} is below that of {depths[0]} (ratio < 1)",
                source=SOURCE,
                measured=ends[1] / ends[0],
                sense="<",
                bound=1.0,
                errors=tuple(ends),
            )
        )
    return made


def plot(result: Result) -> Figure:
    """Error against loops, a panel for each T."""
    depths = sorted({p[0] for p in result.pairs})
    fig, panels = axes(4.0 * len(depths) + 2, 3.9, columns=len(depths))
    one_scale(panels)
    colours = dict(zip(sorted({p[1] for p in result.pairs}), COLOURS, strict=False))
    for ax, depth in zip(panels, depths, strict=True):
        for (t, window), line in zip(result.pairs, result.errors, strict=True):
            if t == depth:
                shown = [v if v < 1e3 else float("nan") for v in line]
                ax.semilogy(range(1, len(line) + 1), shown, color=colours[window], label=f"dT = {window}")
        ax.axvline(depth, color="#888888", linestyle=":", linewidth=0.8)
        ax.set(title=f"T = {depth}", xlabel="loops")
        key(ax)
    panels[0].set_ylabel("error / zero predictor's")
    return fig
