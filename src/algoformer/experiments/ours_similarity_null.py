"""AlgoFormer project, similarity null: what a similarity of errors is worth.

On noiseless problems the zero predictor scores 0.50 against least squares, since most of a residual is what no method
could know. The first layers of published maps (Fu et al. 2024, Figure 3: 0.508 to 0.511) are at this null.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from algoformer import analysis
from algoformer.experiments.drawing import COLOURS, axes, legend, whole_numbers
from algoformer.experiments.experiment import Claim, Site, coded, stated
from algoformer.prompt import Dense
from algoformer.solvers import GradientDescent, LeastSquares, Newton

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 3
SOURCE = "ours"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The prompts of Fu et al.'s maps."""

    d: int = stated(20)
    n: int = stated(40)
    prompts: int = coded(320)
    eta: float = coded(0.01)
    descent: tuple[int, ...] = coded((64, 512))
    newton: tuple[int, ...] = coded((1, 10, 21))


PAPER = Config()
GPU = CPU = replace(PAPER, prompts=160)
SMOKE = replace(PAPER, d=5, n=10, prompts=16, descent=(4, 16), newton=(1, 8))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Similarity to least squares of each method and of the nulls, and its curve over prefixes.

    These have fewer than d examples: from d on, least squares leaves nothing but rounding, which nothing is like.
    """

    similarity: dict[str, float]
    low: dict[str, float]
    high: dict[str, float]
    prefixes: dict[str, list[float]]
    published: float


def run(config: Config, site: Site) -> Result:
    """Everything against least squares."""
    g = torch.Generator().manual_seed(site.seed)
    x = torch.randn(config.prompts, config.n + 1, config.d, generator=g, dtype=torch.float64)
    w = torch.randn(config.prompts, config.d, 1, generator=g, dtype=torch.float64)
    prompt = Dense(x, x @ w)
    best = analysis.readings(LeastSquares(), prompt, [0])
    slow = GradientDescent(eta=config.eta, gradient="sum")
    quick = Newton(scale="frobenius")
    readings: dict[str, Any] = {"zero predictor": torch.zeros_like(best)}
    for name, solver, steps in (("gradient", slow, config.descent), ("Newton", quick, config.newton)):
        for t, found in zip(steps, analysis.readings(solver, prompt, steps), strict=True):
            readings[f"{name} {t}"] = found[None]
    noise = analysis.null_similarity(best, prompt.y, g).noise[0]
    scores = {name: analysis.error_similarity(r, best, prompt.y)[0, 0] for name, r in readings.items()}
    curves = {name: analysis.prefix_similarity(r, best, prompt.y)[0, : config.d] for name, r in readings.items()}
    bands = {name: analysis.Bootstrap(seed=site.seed).band(s) for name, s in {**scores, "noise": noise}.items()}
    return Result(
        similarity={name: float(b.value) for name, b in bands.items()},
        low={name: float(b.low) for name, b in bands.items()},
        high={name: float(b.high) for name, b in bands.items()},
        prefixes={name: curve.tolist() for name, curve in curves.items()},
        published=0.508,
    )


def claims(result: Result) -> list[Claim]:
    """The null is not 0, and published low values are at it."""
    zero = result.similarity["zero predictor"]
    return [
        Claim(
            text="the zero predictor is 0.4 or more like least squares: the null is not 0",
            source=SOURCE,
            measured=zero,
            sense=">",
            bound=0.4,
        ),
        Claim(
            text="the published similarity of a first layer, 0.508, is within 0.03 of the zero predictor's",
            source=SOURCE,
            measured=abs(zero - result.published),
            sense="<",
            bound=0.03,
        ),
        Claim(
            text="noise as large as the residual is not like it: below 0.1",
            source=SOURCE,
            measured=abs(result.similarity["noise"]),
            sense="<",
            bound=0.1,
        ),
    ]


def plot(result: Result) -> Figure:
    """Scores with their bands, and where along the prompt they come from."""
    fig, (left, right) = axes(11, 4.0, columns=2)
    names = list(result.similarity)
    spread = [
        [result.similarity[n] - result.low[n] for n in names],
        [result.high[n] - result.similarity[n] for n in names],
    ]
    left.barh(names, [result.similarity[n] for n in names], xerr=spread, color=COLOURS[0])
    left.invert_yaxis()
    left.set(title="similarity to least squares", xlim=(-0.05, 1.05))
    for (name, curve), colour in zip(result.prefixes.items(), COLOURS, strict=False):
        right.plot(range(len(curve)), curve, color=colour, label=name)
    right.set(title="by the number of examples", xlabel="examples, fewer than dimensions", ylim=(-0.05, 1.05))
    whole_numbers(right)
    legend(fig, right)
    return fig
