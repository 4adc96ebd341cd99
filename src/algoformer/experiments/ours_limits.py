"""AlgoFormer project, float32 and softmax limits: how far a compiled transformer is from its algorithm, step by step.

Linear and ReLU attention multiply exactly; softmax attention multiplies by the difference of two exponentials, whose
rounding is amplified. What that costs depends on the dtype by five orders of magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from algoformer.constructions.catalogue import CATALOGUE
from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Knob, Site, assumed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
SOURCE = "ours"
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Constructions of the catalogue at the size of their papers, and attentions to compile them to."""

    constructions: tuple[str, ...] = assumed(("descent-step", "newton", "chain-of-thought"))
    lowerings: tuple[str, ...] = assumed(("relu", "softmax", "softmax, 4 heads"))
    steps: int = assumed(30)
    prompts: int = assumed(64)


PAPER = Config()
GPU = CPU = replace(PAPER, prompts=16)
SMOKE = replace(PAPER, constructions=("descent-step",), lowerings=("relu", "softmax"), steps=4, prompts=2)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Largest distance at each step over the prompts, relative to their largest label; and the declared bars."""

    lines: dict[str, dict[str, list[float]]]
    bars: dict[str, dict[str, float]]


def run(config: Config, site: Site) -> Result:
    """Compile, run, compare with the solver in float64."""
    lines: dict[str, dict[str, list[float]]] = {}
    bars: dict[str, dict[str, float]] = {}
    for name in config.constructions:
        c = CATALOGUE[name]
        if c.algorithm is None:
            raise ValueError(f"{name} must be a construction with a solver to compare with")
        prompt = next(iter(c.prompts.values()))(config.prompts, site.generator(name))
        wanted = c.algorithm().trace(prompt, config.steps)
        labels = prompt.y if hasattr(prompt, "y") else prompt.chains
        size = labels.abs().flatten(1).amax(1)
        for lowering in config.lowerings:
            row, bar = {}, {}
            for i, (dtype_name, dtype) in enumerate(DTYPES.items()):
                with torch.no_grad():
                    got = c.compile(lowering, dtype).trace(prompt.to(dtype=dtype), config.steps).double()
                row[dtype_name] = ((got - wanted).abs().amax((2, 3)) / size).amax(1).tolist()
                bar[dtype_name] = c.bars[lowering][i]
            lines[f"{name}, {lowering}"], bars[f"{name}, {lowering}"] = row, bar
    return Result(lines=lines, bars=bars)


def claims(result: Result) -> list[Claim]:
    """Within the declared bars, and what softmax costs in each dtype."""

    def worst(dtype: str, softmax: bool) -> float:
        return max(max(row[dtype]) for name, row in result.lines.items() if ("softmax" in name) == softmax)

    inside = max(max(row[dtype]) / result.bars[name][dtype] for name, row in result.lines.items() for dtype in DTYPES)
    return [
        Claim(
            text="every compiled transformer stays within its declared bar at every step: the largest share of it < 1",
            source=SOURCE,
            measured=inside,
            sense="<",
            bound=1.0,
        ),
        Claim(
            text="in float64 softmax attention is within 1e-7 of the algorithm",
            source=SOURCE,
            measured=worst("float64", True),
            sense="<",
            bound=1e-7,
        ),
        Claim(
            text="in float32 softmax attention cannot follow to 1e-5",
            source=SOURCE,
            measured=worst("float32", True),
            sense=">",
            bound=1e-5,
        ),
    ]


def plot(result: Result) -> Figure:
    """Distances step by step."""
    fig, panels = axes(11, 4.0, columns=2)
    styles = ("-", "--", ":")
    for i, (name, row) in enumerate(result.lines.items()):
        for ax, dtype in zip(panels, DTYPES, strict=True):
            line = [max(v, 1e-17) for v in row[dtype]]
            ax.semilogy(line, color=COLOURS[i % 7], linestyle=styles[i // 7], label=name)
    for ax, dtype in zip(panels, DTYPES, strict=True):
        ax.set(title=dtype, xlabel="step", ylim=(1e-17, 1e-1))
    panels[0].set_ylabel("distance from the algorithm")
    legend(fig, panels[0])
    return fig


def knob(result: Result) -> Knob:
    """All distances at one step."""
    names = list(result.lines)
    count = len(result.lines[names[0]]["float64"])
    return Knob(
        label="step",
        values=list(range(count)),
        x=list(range(1, len(names) + 1)),
        lines={
            dtype: [[max(result.lines[n][dtype][t], 1e-17) for n in names] for t in range(count)] for dtype in DTYPES
        },
        xlabel="construction, in the order of the key above",
        ylabel="distance from the algorithm",
        log=True,
        caption="The distance does not grow from step to step: an iteration forgives the errors of its layers.",
    )
