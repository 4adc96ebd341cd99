"""Gao et al. 2024, Figure 5: AlgoFormer beside gradient descent and Newton's method on linear regression.

Without noise AlgoFormer is ahead in the first steps and stops near 1e-3, where Newton's method goes on to rounding;
with noise it is said to be better than both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.softmax import SHORT, TINY, Softmax, stored
from algoformer.solvers import GradientDescent, Newton, Ridge
from algoformer.training import evaluate

REVISION = 1
SOURCE = "Figure 5"


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """One model for each (T, dT) and noise."""

    pairs: tuple[tuple[int, int], ...] = stated(((20, 15), (10, 10)))
    noises: tuple[float, ...] = assumed((0.0, 0.1, 1.0))
    longest: int = assumed(30)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, pairs=((3, 2),), noises=(0.0, 0.5), longest=4)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error at the last position over the zero predictor's, by noise, algorithm and step; and ridge's."""

    longest: int
    trained: list[int]
    lines: dict[str, dict[str, list[float]]]
    ridge: dict[str, float]


def run(config: Config, site: Site) -> Result:
    """Every step of every algorithm on the same kind of prompts."""
    steps = list(range(1, config.longest + 1))
    lines: dict[str, dict[str, list[float]]] = {}
    ridge: dict[str, float] = {}
    for noise in config.noises:
        task = config.task("linear", noise)
        name = f"noise {noise:g}"
        lines[name] = {}
        for count, window in config.pairs:
            model = config.model(config.algoformer(task, count), task, site, window=window)
            found = evaluate(model, task, prompts=config.prompts, steps=steps, seed=site.seed, device=site.device)
            lines[name][f"AlgoFormer ({count}, {window})"] = [row[-1] / found.zero for row in found.mean]
        few = min(config.prompts, 128)
        for title, solver in (("gradient descent", GradientDescent()), ("Newton", Newton())):
            found = evaluate(solver, task, prompts=few, steps=steps, seed=site.seed, dtype=torch.float64)
            lines[name][title] = [row[-1] / found.zero for row in found.mean]
        best = Ridge(strength=max(noise**2, 1e-12))
        ridge[name] = evaluate(best, task, prompts=few, seed=site.seed, dtype=torch.float64).last
    return Result(longest=config.longest, trained=[p[0] for p in config.pairs], lines=lines, ridge=ridge)


def claims(result: Result) -> list[Claim]:
    """Ahead early, behind late without noise; ahead with the largest noise."""
    noises = list(result.lines)
    calm, loud = result.lines[noises[0]], result.lines[noises[-1]]
    ours = next(iter(calm))
    end = min(result.trained[0], result.longest) - 1
    early = min(4, end)
    able = (calm[ours][end],)
    return [
        Claim(
            text="without noise AlgoFormer is ahead of Newton after 5 steps (ratio of errors below 1)",
            source=SOURCE,
            measured=calm[ours][early] / calm["Newton"][early],
            sense="<",
            bound=1.0,
            errors=able,
        ),
        Claim(
            text="without noise Newton is far ahead at the end (ratio of errors above 10)",
            source=SOURCE,
            measured=calm[ours][end] / calm["Newton"][-1],
            sense=">",
            bound=10.0,
            errors=able,
        ),
        Claim(
            text="without noise AlgoFormer stops near 1e-3: between 1e-4 and 1e-2, |log10 + 3| below 1",
            source=SOURCE,
            measured=abs(_log10(calm[ours][end]) + 3),
            sense="<",
            bound=1.0,
            errors=able,
        ),
        Claim(
            text="with the largest noise it is better than Newton at the end (ratio of errors below 1)",
            source=SOURCE,
            measured=loud[ours][end] / loud["Newton"][-1],
            sense="<",
            bound=1.0,
            errors=(loud[ours][end],),
        ),
    ]


def _log10(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).log10())


def plot(result: Result) -> Figure:
    """One panel a noise."""
    fig, panels = axes(4.0 * len(result.lines) + 2.4, 3.9, columns=len(result.lines))
    for ax, (name, lines) in zip(panels, result.lines.items(), strict=True):
        for (kind, line), colour in zip(lines.items(), COLOURS, strict=False):
            ax.semilogy(range(1, result.longest + 1), [max(v, 1e-14) for v in line], color=colour, label=kind)
        ax.axhline(max(result.ridge[name], 1e-14), color="#888888", linestyle=":", label="ridge (Bayes)")
        ax.set(title=name, xlabel="loops or steps")
    panels[0].set_ylabel("error / zero predictor's")
    legend(fig, panels[0])
    return fig
