"""Fu et al. 2024, Figure 26: known algorithm against known algorithm, and how the matched steps grow.

The similarity of errors of Newton's iteration and gradient descent, on the recipe of the paper's code. The best match
of Newton step k among gradient steps grows exponentially in k; and it is 0.98 alike whatever k is, so that a level of
similarity alone names no algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from algoformer import analysis
from algoformer.experiments.drawing import COLOURS, axes, heat
from algoformer.experiments.experiment import Claim, Knob, Site, assumed, coded, stated
from algoformer.prompt import Dense
from algoformer.solvers import GradientDescent, Newton

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
SOURCE = "Figure 26, Table of rates"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Noiseless linear regression at every prefix."""

    d: int = stated(20)
    n: int = stated(40)
    prompts: int = coded(320)
    newton: int = assumed(12)
    eta: float = coded(0.01)
    descent: int = coded(4096)
    dense: int = assumed(14)  # gradient steps up to this are all tried, then four to each doubling
    draws: int = assumed(1000)


PAPER = Config()
GPU = CPU = replace(PAPER, descent=256, newton=11)
SMOKE = replace(PAPER, d=6, n=12, prompts=16, newton=5, descent=32, draws=20)


@dataclass(frozen=True, kw_only=True)
class Result:
    """The map [newton step][gradient step], the best matches with the similarity on other prompts, and the growth."""

    newton: list[int]
    descent: list[int]
    similarity: list[list[float]]
    distance: list[list[float]]
    best: list[int]
    best_similarity: list[float]
    best_low: list[float]
    slope: float
    slope_error: float


def run(config: Config, site: Site) -> Result:
    """Draw prompts as the reference recipe does: x, then w, from one generator."""
    g = torch.Generator().manual_seed(site.seed)
    x = torch.randn(config.prompts, config.n + 1, config.d, generator=g, dtype=torch.float64)
    w = torch.randn(config.prompts, config.d, 1, generator=g, dtype=torch.float64)
    prompt = Dense(x, x @ w)
    newton = list(range(config.newton + 1))
    wanted = {*range(1, config.dense + 1), *(round(2 ** (e / 4)) for e in range(80))}
    descent = sorted(t for t in wanted if t <= config.descent)
    iteration = Newton(scale="frobenius", steps=config.newton)
    slow = GradientDescent(eta=config.eta, gradient="sum", steps=config.descent)
    rows = analysis.readings(iteration, prompt, newton)
    columns = analysis.readings(slow, prompt, descent)
    map_ = analysis.error_similarity(rows, columns, prompt.y).mean(-1)
    apart = analysis.error_distance(rows, columns, prompt.y).mean(-1)
    found = analysis.match(
        rows,
        [analysis.Candidate(slow, descent)],
        prompt,
        prompt.y,
        bootstrap=analysis.Bootstrap(draws=config.draws, seed=site.seed),
    )
    inside = [k for k in newton if k >= 2 and found.step[k] < descent[-1]]
    slope, error = analysis.growth(inside, [found.step[k] for k in inside])
    return Result(
        newton=newton,
        descent=descent,
        similarity=map_.tolist(),
        distance=apart.tolist(),
        best=found.step,
        best_similarity=found.similarity.value.tolist(),
        best_low=found.similarity.low.tolist(),
        slope=slope,
        slope_error=error,
    )


def claims(result: Result) -> list[Claim]:
    """Exponential growth, the law we derive for it, and what a level of similarity is worth."""
    inside = [k for k in result.newton if result.best[k] < result.descent[-1]]
    return [
        Claim(
            text="a Newton step is worth exponentially many gradient steps: log2 of the match grows by > 0.25 a step",
            source=SOURCE,
            measured=result.slope - 2 * result.slope_error,
            sense=">",
            bound=0.25,
        ),
        Claim(
            text="from M_0 = a S the match grows like 2^(k/2): the slope is within 0.12 of 0.5",
            source="ours",
            measured=abs(result.slope - 0.5),
            sense="<",
            bound=0.12,
        ),
        Claim(
            text="the best-matched gradient descent is at least 0.97 like any Newton step: a level separates nothing",
            source="ours",
            measured=min(result.best_similarity[k] for k in inside),
            sense=">",
            bound=0.97,
        ),
    ]


def plot(result: Result) -> Figure:
    """The map, and the matched steps."""
    fig, (left, right) = axes(10.5, 4.2, columns=2)
    heat(left, result.similarity)
    shown = range(0, len(result.descent), max(len(result.descent) // 8, 1))
    left.set_xticks(list(shown), [str(result.descent[i]) for i in shown])
    left.set(title="similarity of errors", xlabel="gradient steps", ylabel="Newton steps")
    left.plot([result.descent.index(t) for t in result.best], result.newton, "o", color="white", markersize=4)
    right.semilogy(result.newton, result.best, "o-", base=2, color=COLOURS[0])
    right.set(title="best-matching gradient step", xlabel="Newton steps", ylabel="gradient steps")
    return fig


def knob(result: Result) -> Knob:
    """One row of the map at a time."""
    return Knob(
        label="Newton steps",
        values=result.newton,
        x=result.descent,
        lines={"similarity of errors": result.similarity, "distance of predictions": result.distance},
        xlabel="gradient steps",
        ylabel="similarity, distance",
        logx=True,
        caption="Turn up the Newton steps and the most similar gradient step moves right, twice as far for every two.",
    )
