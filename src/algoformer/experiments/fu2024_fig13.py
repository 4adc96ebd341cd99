"""Fu et al. 2024, Figures 13 and 14: single layers against all steps of Newton's iteration and of gradient descent.

Rows of the maps of Figure 3 as lines, for layers 2, 3 and 12, with the bands of a bootstrap over prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer import analysis
from algoformer.experiments import fu2024_fig3 as fig3
from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, stated
from algoformer.experiments.layers import layer_answers
from algoformer.experiments.softmax import SHORT, TINY, stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 4
SOURCE = "Figures 13, 14"


@dataclass(frozen=True, kw_only=True)
class Config(fig3.Config):
    """As Figure 3, for some layers."""

    shown: tuple[int, ...] = stated((2, 3, 12))


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=3, newton=4, descent=8, shown=(1, 2, 3))


@dataclass(frozen=True, kw_only=True)
class Result:
    """By family: the steps, and the similarity [layer][step] with its band; the zero predictor's, by layer."""

    error: float
    layers: list[int]
    steps: dict[str, list[int]]
    similarity: dict[str, list[list[float]]]
    low: dict[str, list[list[float]]]
    high: dict[str, list[list[float]]]
    zero: list[float]


def run(config: Config, site: Site) -> Result:
    """Compare the layers with two families."""
    task = config.regression
    found = layer_answers(config, config.standard(task, config.layers), task, site)
    prompt, rows = found.prompt, found.answers[list(config.shown)]
    families = {name: config.families[name] for name in ("Newton", "gradient descent")}
    bands = {}
    for name, c in families.items():
        scores = analysis.error_similarity(rows, analysis.readings(c.algorithm, prompt, c.steps), prompt.y)
        bands[name] = analysis.Bootstrap(seed=site.seed).band(scores.permute(2, 0, 1).contiguous())
    return Result(
        error=float(found.errors[-1]),
        layers=list(config.shown),
        steps={name: list(c.steps) for name, c in families.items()},
        similarity={name: b.value.tolist() for name, b in bands.items()},
        low={name: b.low.tolist() for name, b in bands.items()},
        high={name: b.high.tolist() for name, b in bands.items()},
        zero=analysis.null_similarity(rows, prompt.y, site.generator()).zero.mean(-1).tolist(),
    )


def claims(result: Result) -> list[Claim]:
    """The maximum moves to the right, and farther for gradient descent."""
    able = (result.error,)
    peaks = {
        name: [result.steps[name][max(range(len(row)), key=row.__getitem__)] for row in rows]
        for name, rows in result.similarity.items()
    }
    return [
        Claim(
            text="from the first of these layers to the last the best Newton step moves by more than 10",
            source=SOURCE,
            measured=float(peaks["Newton"][-1] - peaks["Newton"][0]),
            sense=">",
            bound=10.0,
            errors=able,
        ),
        Claim(
            text="and the best gradient step grows more than a hundredfold",
            source=SOURCE,
            measured=peaks["gradient descent"][-1] / peaks["gradient descent"][0],
            sense=">",
            bound=100.0,
            errors=able,
        ),
        Claim(
            text="late Newton steps are more like the last layer than the zero predictor is, by more than 0.1",
            source="ours",
            measured=result.low["Newton"][-1][-1] - result.zero[-1],
            sense=">",
            bound=0.1,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """One line a layer, one panel a family."""
    fig, panels = axes(10.5, 3.9, columns=2)
    for ax, (name, rows) in zip(panels, result.similarity.items(), strict=True):
        steps = result.steps[name]
        for i, (layer, colour) in enumerate(zip(result.layers, COLOURS, strict=False)):
            ax.plot(steps, rows[i], color=colour, label=f"layer {layer}")
            ax.fill_between(steps, result.low[name][i], result.high[name][i], color=colour, alpha=0.2)
            ax.axhline(result.zero[i], color=colour, linestyle=":", linewidth=1)
        ax.set(title=name, xlabel="steps")
    panels[0].set(ylabel="similarity of errors (dotted: zero predictor)")
    panels[1].set_xscale("log", base=2)
    legend(fig, panels[0])
    return fig
