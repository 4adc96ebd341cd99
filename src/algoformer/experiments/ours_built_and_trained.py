"""AlgoFormer project, built and trained: transformers from weights beside transformers from training, on one axis.

Linear transformers of Ahn et al.'s form, one set with the weights of theory, one trained from random weights; both are
ordinary modules, run on the same prompts. Between the two there is a path without a barrier if the layers are put in
the same order, and a barrier if they are not: any order of the layers is as good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from algoformer.analysis import interpolated, relative_error
from algoformer.experiments.drawing import COLOURS, axes
from algoformer.experiments.experiment import Claim, Knob, Site, assumed, stated
from algoformer.experiments.linear import lbfgs
from algoformer.models import LinearTransformer, LinearTransformerConfig
from algoformer.tasks import LinearRegression
from algoformer.theory import layered_optimum, matrix_layers, sampled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
SOURCE = "ours"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Isotropic inputs; depths from 1 on."""

    d: int = stated(5)
    n: int = stated(20)
    depths: tuple[int, ...] = assumed((1, 2, 3))
    batch: int = assumed(4000)
    iterations: int = assumed(120)
    init: float = assumed(0.1)
    prompts: int = assumed(20_000)
    shares: int = assumed(41)


PAPER = Config()
GPU = CPU = PAPER
SMOKE = replace(PAPER, d=3, depths=(1, 2), batch=100, iterations=20, prompts=200, shares=5)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Errors over the zero predictor's by depth; and, for the deepest, exact losses from trained to built."""

    depths: list[int]
    built: list[float]
    trained: list[float]
    traces: dict[str, list[list[float]]]
    share: list[float]
    ordered: list[float]
    reversed: list[float]


def run(config: Config, site: Site) -> Result:
    """Train each depth on a fixed batch; build it from the exact optimum; run both as models."""
    g = site.generator()
    sample = LinearRegression(d=config.d, n=config.n).sample(config.prompts, g, torch.float64)
    built: list[float] = []
    trained: list[float] = []
    traces: dict[str, list[list[float]]] = {"built": [], "trained": []}
    share = torch.linspace(0, 1, config.shares, dtype=torch.float64)
    ordered: list[float] = []
    backwards: list[float] = []
    deepest = max(config.depths)
    for depth in config.depths:

        def loss(A: Tensor) -> Tensor:
            same = torch.Generator().manual_seed(site.seed)
            return sampled(A, config.n, samples=config.batch, generator=same)[0]

        start = config.init * torch.randn(depth, config.d, config.d, generator=g, dtype=torch.float64)
        A = lbfgs(loss, start, iterations=config.iterations)
        order = A.diagonal(dim1=1, dim2=2).mean(1).argsort().argsort()
        steps = torch.tensor([float(a) for a in layered_optimum(config.d, config.n, depth).a], dtype=torch.float64)
        eye = torch.eye(config.d, dtype=torch.float64)
        best = steps[order][:, None, None] * eye
        pair = {"built": _model(best), "trained": _model(A)}
        for name, model in pair.items():
            with torch.no_grad():
                trace = model.trace(sample.prompt)
            errors = [relative_error(answer, sample.target).mean for answer in trace]
            traces[name].append(errors + [errors[-1]] * (deepest - depth))
            (built if name == "built" else trained).append(errors[-1])
        if depth == deepest:
            ordered = _path(A, best, share, config.n)
            backwards = _path(A, best.flip(0), share, config.n)
    return Result(
        depths=list(config.depths), built=built, trained=trained, traces=traces, share=share.tolist(),
        ordered=ordered, reversed=backwards,
    )  # fmt: skip


def _model(A: Tensor) -> LinearTransformer:
    model = LinearTransformer(LinearTransformerConfig(features=A.shape[1], layers=len(A))).double()
    with torch.no_grad():
        model.A.copy_(A)
    return model


def _path(a: Tensor, b: Tensor, share: Tensor, n: int) -> list[float]:
    """The exact loss over d between two stacks of layers."""
    between = (interpolated({"A": a}, {"A": b}, float(s))["A"] for s in share)
    return [float(matrix_layers(A, n)) / a.shape[1] for A in between]


def claims(result: Result) -> list[Claim]:
    """As good as each other, and what lies between."""
    able = (*result.built, *result.trained)
    ends = max(result.ordered[0], result.ordered[-1])
    return [
        Claim(
            text="trained models are within 10 % of built ones at every depth",
            source=SOURCE,
            measured=max(abs(t / b - 1) for t, b in zip(result.trained, result.built, strict=True)),
            sense="<",
            bound=0.1,
            errors=able,
        ),
        Claim(
            text="with the layers in one order there is no barrier: the loss between is at most 5 % above its ends",
            source=SOURCE,
            measured=max(result.ordered) / ends - 1,
            sense="<",
            bound=0.05,
            errors=able,
        ),
        Claim(
            text="with the layers reversed there is: the loss between is more than 20 % above its ends",
            source=SOURCE,
            measured=max(result.reversed) / ends - 1,
            sense=">",
            bound=0.2,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """Errors by depth, and the two paths."""
    fig, (left, right) = axes(10.5, 3.9, columns=2)
    left.semilogy(result.depths, result.built, "s-", color=COLOURS[0], label="built")
    left.semilogy(result.depths, result.trained, "o--", color=COLOURS[1], label="trained")
    left.set(xlabel="layers", ylabel="error / zero predictor's", xticks=result.depths)
    right.plot(result.share, result.ordered, color=COLOURS[2], label="layers in one order")
    right.plot(result.share, result.reversed, color=COLOURS[3], label="layers reversed")
    right.set(xlabel="share of the built weights", title="exact loss from trained to built")
    handles = [*left.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    names = [*left.get_legend_handles_labels()[1], *right.get_legend_handles_labels()[1]]
    fig.legend(handles, names, loc="outside right center", frameon=False, labelcolor="#010101", fontsize=9)
    return fig


def knob(result: Result) -> Knob:
    """Layer by layer, by depth."""
    count = len(result.traces["built"][0])
    return Knob(
        label="layers of the model",
        values=result.depths,
        x=list(range(count)),
        lines=result.traces,
        xlabel="after layer",
        ylabel="error / zero predictor's",
        log=True,
        caption="The error after each layer. The first layers of a deep model are no shallow model: they prepare.",
    )
