"""Gao et al. 2024, Figure 4: layers and heads of AlgoFormer.

On regression with a representation: more heads and layers, lower error, though "4-layer and 16-head transformers may
exhibit suboptimal performance"; and with as many layers AlgoFormer is better than the standard transformer.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from algoformer.experiments.drawing import COLOURS, axes
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.softmax import SHORT, TINY, Softmax, stored
from algoformer.training import evaluate

REVISION = 1
SOURCE = "Figure 4"


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """Layers of each of pre, loop and post, at the default heads; heads, at one layer."""

    layers: tuple[int, ...] = assumed((1, 2, 3, 4))
    head_counts: tuple[int, ...] = assumed((4, 8, 16))
    loops: int = stated(20)
    window: int = stated(15)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=(1, 2), head_counts=(1, 2), loops=2, window=1)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error at the last position over the zero predictor's."""

    layers: list[int]
    by_layers: list[float]
    standard: list[float]
    heads: list[int]
    by_heads: list[float]


def run(config: Config, site: Site) -> Result:
    """One model for each size; the standard transformer has the layers of pre, loop and post together."""
    task = config.task("representation")

    def error(model: object) -> float:
        return evaluate(model, task, prompts=config.prompts, seed=site.seed, device=site.device).last  # type: ignore[arg-type]

    def algoformer(layers: int, heads: int) -> float:
        shape = config.algoformer(task, config.loops, pre=layers, loop=layers, post=layers, heads=heads)
        return error(config.model(shape, task, site, window=config.window))

    return Result(
        layers=list(config.layers),
        by_layers=[algoformer(layers, config.heads) for layers in config.layers],
        standard=[error(config.model(config.standard(task, 3 * k), task, site)) for k in config.layers],
        heads=list(config.head_counts),
        by_heads=[algoformer(1, heads) for heads in config.head_counts],
    )


def claims(result: Result) -> list[Claim]:
    """More helps, and AlgoFormer is better at the same number of layers."""
    return [
        Claim(
            text="more layers, lower error: 2 (or the next size) over 1 below 1",
            source=SOURCE,
            measured=result.by_layers[1] / result.by_layers[0],
            sense="<",
            bound=1.0,
            errors=tuple(result.by_layers[:2]),
        ),
        Claim(
            text="more heads, lower error: the second number over the first below 1",
            source=SOURCE,
            measured=result.by_heads[1] / result.by_heads[0],
            sense="<",
            bound=1.0,
            errors=tuple(result.by_heads[:2]),
        ),
        Claim(
            text="with as many layers it is better than the standard transformer (largest ratio of errors below 1)",
            source="Section 5.3",
            measured=max(a / b for a, b in zip(result.by_layers, result.standard, strict=True)),
            sense="<",
            bound=1.0,
            errors=(*result.by_layers, *result.standard),
        ),
    ]


def plot(result: Result) -> Figure:
    """Error by size."""
    fig, (left, right) = axes(9.5, 3.8, columns=2)
    left.plot(result.layers, result.by_layers, "o-", color=COLOURS[0], label="AlgoFormer")
    left.plot(result.layers, result.standard, "o-", color=COLOURS[1], label="standard, three times the layers")
    left.set(xlabel="layers of each part", ylabel="error / zero predictor's", xticks=result.layers)
    left.legend(labelcolor="#010101", fontsize=9)
    right.plot(result.heads, result.by_heads, "o-", color=COLOURS[0])
    right.set(xlabel="heads", xticks=result.heads)
    return fig
