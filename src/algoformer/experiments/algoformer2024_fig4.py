"""Gao et al. 2024, Figure 4: layers and heads of AlgoFormer.

On regression with a representation: more heads and layers, lower error, though "4-layer and 16-head transformers may
exhibit suboptimal performance"; and with as many layers AlgoFormer is better than the standard transformer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from algoformer.experiments.drawing import COLOURS, axes, key, one_scale
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.protocol import zeros
from algoformer.experiments.softmax import COMPARED, TINY, Softmax, stored
from algoformer.models import AlgoFormerConfig, TransformerConfig
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 4
SOURCE = "Figure 4"


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """Layers of each of pre, loop and post, at the default heads, beside standard ones; heads, at one layer."""

    layers: tuple[int, ...] = assumed((1, 2, 3, 4))
    standard_layers: tuple[int, ...] = assumed((3, 6, 9, 12))
    head_counts: tuple[int, ...] = assumed((4, 8, 16))
    loops: int = stated(20)
    window: int = stated(15)

    def shape(self, layers: int, heads: int) -> AlgoFormerConfig:
        """AlgoFormer with so many layers in each part."""
        task = self.task("representation")
        return self.algoformer(task, self.loops, pre=layers, loop=layers, post=layers, heads=heads)

    def flat(self, layers: int) -> TransformerConfig:
        """The standard transformer of so many layers in all."""
        return self.standard(self.task("representation"), layers)

    def recipes(self) -> Iterator[Recipe]:
        """The trainings, pilots first."""
        task = self.task("representation")
        yield from self.pilots(self.shape(1, self.heads), task, window=self.window)
        yield from self.pilots(self.flat(self.standard_layers[-1]), task)
        for layers in self.layers:
            yield self.recipe(self.shape(layers, self.heads), task, window=self.window)
        for layers in self.standard_layers:
            yield self.recipe(self.flat(layers), task)
        for heads in self.head_counts:
            yield self.recipe(self.shape(1, heads), task, window=self.window)


PAPER = Config()
GPU = Config(**COMPARED | {"steps": 30_000}, layers=(1, 2, 4), standard_layers=(3, 6, 12))
CPU = stored(replace(GPU, layers=(1, 2)))  # what is kept: that of 4 layers is not trained yet
SMOKE = Config(**TINY, layers=(1, 2), standard_layers=(3, 6), head_counts=(1, 2), loops=2, window=1)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error at the last position over the zero predictor's."""

    layers: list[int]
    by_layers: list[float]
    standard_layers: list[int]
    standard: list[float]
    heads: list[int]
    by_heads: list[float]


def run(config: Config, site: Site) -> Result:
    """One model for each size. Learning rates are those of one layer a part, and of the deepest standard one."""
    task = config.task("representation")
    zero = zeros(task, config.prompts)[-1]
    rate = config.rate(config.shape(1, config.heads), task, site, window=config.window).lr
    flat = config.rate(config.flat(config.standard_layers[-1]), task, site).lr

    def error(shape: Any, **how: Any) -> float:
        return config.measured(shape, task, site, purpose="size", **how).errors[-1][-1] / zero

    def algoformer(layers: int, heads: int) -> float:
        return error(config.shape(layers, heads), window=config.window, lr=rate)

    return Result(
        layers=list(config.layers),
        by_layers=[algoformer(layers, config.heads) for layers in config.layers],
        standard_layers=list(config.standard_layers),
        standard=[error(config.flat(layers), lr=flat) for layers in config.standard_layers],
        heads=list(config.head_counts),
        by_heads=[algoformer(1, heads) for heads in config.head_counts],
    )


def claims(result: Result) -> list[Claim]:
    """More helps, but not the most, 4 layers and 16 heads; and AlgoFormer is better at the same number of layers."""
    flat = dict(zip(result.standard_layers, result.standard, strict=True))
    pairs = [(e, flat[3 * n]) for n, e in zip(result.layers, result.by_layers, strict=True) if 3 * n in flat]
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
        *(
            Claim(
                text=f"the most {what} are not the best: their error over the least of the others above 1",
                source=SOURCE,
                measured=line[-1] / min(line[:-1]),
                sense=">",
                bound=1.0,
                errors=tuple(line),
                comparable=most,
            )
            for what, line, most in (
                ("layers", result.by_layers, result.layers[-1] >= 4),
                ("heads", result.by_heads, result.heads[-1] >= 16),
            )
        ),
        Claim(
            text="with as many layers it is better than the standard transformer (largest ratio of errors below 1)",
            source="Section 5.3",
            measured=max(ours / theirs for ours, theirs in pairs),
            sense="<",
            bound=1.0,
            errors=tuple(e for pair in pairs for e in pair),
        ),
    ]


def plot(result: Result) -> Figure:
    """Error by size."""
    fig, (left, right) = axes(9.5, 3.8, columns=2)
    layers = [3 * n for n in result.layers]
    left.plot(layers, result.by_layers, "o-", color=COLOURS[0], label="AlgoFormer: a third each in pre, loop, post")
    left.plot(result.standard_layers, result.standard, "o-", color=COLOURS[1], label="standard")
    left.set(
        xlabel="layers in all", ylabel="error / zero predictor's", xticks=sorted({*layers, *result.standard_layers})
    )
    left.set_ylim(bottom=0)
    key(left)
    one_scale((left, right))
    right.plot(result.heads, result.by_heads, "o-", color=COLOURS[0])
    right.set(xlabel="heads, with 3 layers in all", xticks=result.heads)
    return fig
