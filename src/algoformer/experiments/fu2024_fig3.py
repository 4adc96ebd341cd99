"""Fu et al. 2024, Figure 3: which step of which algorithm is each layer most like?

Maps of the similarity of errors, layer by step. Layers are said to match Newton steps linearly and gradient steps
exponentially. Matches are chosen on half of the prompts and reported on the other; a family is named only where its
lead over the next excludes 0; and the zero predictor stands beside all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.figure import Figure

from algoformer import analysis
from algoformer.experiments import fu2024_fig2
from algoformer.experiments.drawing import COLOURS, axes, heat
from algoformer.experiments.experiment import Claim, Site, assumed, coded
from algoformer.experiments.layers import read_layers
from algoformer.experiments.softmax import SHORT, TINY, stored
from algoformer.solvers import ConjugateGradient, GradientDescent, Newton

REVISION = 1
SOURCE = "Figure 3"


@dataclass(frozen=True, kw_only=True)
class Config(fu2024_fig2.Config):
    """As Figure 2, with more gradient steps."""

    descent: int = coded(4096)
    conjugate: int = assumed(20)
    prompts: int = coded(320)


PAPER = Config()
GPU = Config(**SHORT, descent=1024)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=3, newton=4, descent=8, conjugate=3)


@dataclass(frozen=True, kw_only=True)
class Result:
    """By family: the steps tried, the map [layer][step], the match of each layer and its similarity elsewhere."""

    error: float
    steps: dict[str, list[int]]
    similarity: dict[str, list[list[float]]]
    best: dict[str, list[int]]
    best_similarity: dict[str, list[float]]
    verdicts: list[str]
    zero: list[float]
    newton_slope: float
    descent_slope: float


def run(config: Config, site: Site) -> Result:
    """Read every layer, and match it with three families."""
    task = config.regression
    model = config.model(config.standard(task, config.layers), task, site)
    found = read_layers(model, task, config.prompts, site)
    prompt, target, rows = found.prompt, found.prompt.y, found.answers[1:]
    grid = sorted({t for t in (*range(1, 9), *(round(2 ** (e / 2)) for e in range(6, 40))) if t <= config.descent})
    families = {
        "Newton": analysis.Candidate(Newton(scale="frobenius", ridge=config.noise**2), list(range(config.newton + 1))),
        "gradient descent": analysis.Candidate(GradientDescent(eta=config.eta, gradient="sum"), grid),
        "conjugate gradients": analysis.Candidate(ConjugateGradient(), list(range(1, config.conjugate + 1))),
    }
    bootstrap = analysis.Bootstrap(seed=site.seed)
    matched = {name: analysis.match(rows, [c], prompt, target, bootstrap=bootstrap) for name, c in families.items()}
    maps = {
        name: analysis.error_similarity(rows, analysis.readings(c.algorithm, prompt, c.steps), target).mean(-1).tolist()
        for name, c in families.items()
    }
    zero = analysis.null_similarity(rows, target, site.generator()).zero.mean(-1)
    layers = list(range(1, len(rows) + 1))
    return Result(
        error=float(found.errors[-1]),
        steps={name: list(c.steps) for name, c in families.items()},
        similarity=maps,
        best={name: m.step for name, m in matched.items()},
        best_similarity={name: m.similarity.value.tolist() for name, m in matched.items()},
        verdicts=[str(v) for v in analysis.separate(matched, bootstrap)],
        zero=zero.tolist(),
        newton_slope=_slope(layers, [float(s) for s in matched["Newton"].step]),
        descent_slope=_slope(layers, [math.log2(s) for s in matched["gradient descent"].step]),
    )


def _slope(x: list[int], y: list[float]) -> float:
    """Of y over the middle half of the layers, where matches are neither at the start nor at the end of the grid."""
    cut = max(len(x) // 4, 1)
    x, y = x[cut : len(x) - cut] or x, y[cut : len(y) - cut] or y
    mx, my = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mx) ** 2 for a in x)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / spread if spread else 0.0


def leads(result: Result, source: str) -> Claim:
    """The claim that the last layer is more like Newton, which the figures of all three kinds of problem make."""
    return Claim(
        text="the last layer is more like Newton than like gradient descent, both at their best step",
        source=source,
        measured=result.best_similarity["Newton"][-1] - result.best_similarity["gradient descent"][-1],
        sense=">",
        bound=0.0,
        errors=(result.error,),
    )


def claims(result: Result) -> list[Claim]:
    """Linear in Newton steps, exponential in gradient steps, and more like Newton than like gradient descent."""
    able = (result.error,)
    return [
        Claim(
            text="a layer is worth several Newton steps, linearly: more than 1 a layer in the middle layers",
            source=SOURCE,
            measured=result.newton_slope,
            sense=">",
            bound=1.0,
            errors=able,
        ),
        Claim(
            text="and exponentially many gradient steps: log2 of the match grows by more than 0.5 a layer there",
            source=SOURCE,
            measured=result.descent_slope,
            sense=">",
            bound=0.5,
            errors=able,
        ),
        leads(result, SOURCE),
        Claim(
            text="the lead of the family named for the last layer excludes 0 (1 if one is named)",
            source="ours",
            measured=float(result.verdicts[-1] != "not separated"),
            sense=">",
            bound=0.5,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """A map for each family, with its matches, and the null."""
    count = len(result.similarity)
    fig, panels = axes(4.2 * (count + 1), 4.0, columns=count + 1)
    layers = range(len(result.verdicts))
    for ax, (name, rows) in zip(panels, result.similarity.items(), strict=False):
        heat(ax, rows)
        steps = result.steps[name]
        shown = range(0, len(steps), max(len(steps) // 6, 1))
        ax.set_xticks(list(shown), [str(steps[i]) for i in shown])
        ax.set_yticks(list(layers), [str(i + 1) for i in layers])
        ax.plot([steps.index(s) for s in result.best[name]], list(layers), "o", color="white", markersize=4)
        ax.set(title=name, xlabel="steps", ylabel="layer")
    last = panels[-1]
    for (name, line), colour in zip(result.best_similarity.items(), COLOURS, strict=False):
        last.plot(range(1, len(line) + 1), line, color=colour, label=name)
    last.plot(range(1, len(result.zero) + 1), result.zero, color="#888888", linestyle=":", label="zero predictor")
    last.set(title="best match, other prompts", xlabel="layer")
    last.legend(labelcolor="#010101", fontsize=8)
    return fig
