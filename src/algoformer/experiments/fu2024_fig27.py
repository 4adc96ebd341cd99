"""Fu et al. 2024, Figure 27: do induced weights lie in the span of examples that are fewer than dimensions?

The least-squares solution of minimum norm does, and so do all iterates of Newton and of gradient descent. A random
direction has the share 1 - i/d of its square outside of the span of i examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from algoformer.experiments import fu2024_fig2
from algoformer.experiments.drawing import COLOURS, axes, legend, whole_numbers
from algoformer.experiments.experiment import Claim, Site, assumed
from algoformer.experiments.layers import layer_answers, layer_weights
from algoformer.experiments.softmax import SHORT, TINY, stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 4
SOURCE = "Figure 27"


@dataclass(frozen=True, kw_only=True)
class Config(fu2024_fig2.Config):
    """The model of Figure 2, and the weights of Figure 9."""

    weighed: int = assumed(32)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY | {"d": 3}, layers=3, weighed=8)


@dataclass(frozen=True, kw_only=True)
class Result:
    """By number of examples, below the dimension: of each layer the share of |w|² outside of their span; of chance too.

    `cosine` is that of the weights with their projection, by layer, over all prompts and numbers of examples.
    """

    error: float
    examples: list[int]
    outside: list[list[float]]
    chance: list[float]
    cosine: list[float]


def run(config: Config, site: Site) -> Result:
    """Project the weights of every layer on the span of the examples that they were induced from."""
    task = config.regression
    model = config.standard(task, config.layers)
    error = float(layer_answers(config, model, task, site).errors[-1])
    found = layer_weights(config, config.weighed, model, task, site)
    examples = list(range(1, min(config.d, config.n + 1)))
    inside = []
    for i in examples:
        basis = torch.linalg.qr(found.prompt.x[:, :i].mT).Q
        w = found.w[:, :, i - 1]
        inside.append((basis.mT @ w).square().sum((2, 3)) / w.square().sum((2, 3)))
    share = torch.stack(inside, 1)  # [t i b]
    return Result(
        error=error,
        examples=examples,
        outside=(1 - share).mean(-1).tolist(),
        chance=[1 - i / config.d for i in examples],
        cosine=share.sqrt().mean((1, 2)).tolist(),
    )


def claims(result: Result) -> list[Claim]:
    """In the span, and not by chance."""
    able = (result.error,)
    ratios = [a / b for a, b in zip(result.outside[-1], result.chance, strict=True)]
    return [
        Claim(
            text="the last layer's weights lie in the span: their cosine with their projection is above 0.95",
            source=SOURCE,
            measured=result.cosine[-1],
            sense=">",
            bound=0.95,
            errors=able,
        ),
        Claim(
            text="with any number of examples less than a quarter of chance's share lies outside",
            source="ours",
            measured=max(ratios),
            sense="<",
            bound=0.25,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """The share outside, by the number of examples, of some layers and of chance."""
    fig, (ax,) = axes(8.6, 4.0)
    depth = len(result.outside)
    shown = sorted({1, max(depth // 4, 1), max(depth // 2, 1), max(3 * depth // 4, 1), depth})
    for layer, colour in zip(shown, COLOURS, strict=False):
        ax.plot(result.examples, result.outside[layer - 1], color=colour, label=f"layer {layer}")
    ax.plot(result.examples, result.chance, color="#888888", linestyle=":", label="random direction")
    whole_numbers(ax)
    ax.set(xlabel="examples", ylabel="share of |w|² outside of their span", ylim=(-0.02, 1.02))
    legend(fig, ax)
    return fig
