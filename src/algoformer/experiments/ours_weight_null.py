"""AlgoFormer project, weight null: what a similarity of induced weights is worth.

The weights that two methods induce are compared as in Fu et al. 2024, Figure 9. Other prompts have other weights, so
the null is 0, not one half as for errors; but a mean of the examples is already 0.8 like least squares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure

from algoformer.analysis import Candidate, induced_trace, weight_similarity
from algoformer.experiments.experiment import Claim, Site, assumed, coded, stated
from algoformer.experiments.maps import Maps, doubling, draw, weight_maps
from algoformer.prompt import Dense
from algoformer.solvers import Averaging, GradientDescent, LeastSquares, Newton

REVISION = 1
SOURCE = "ours"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The prompts of Fu et al.'s maps, fewer of them."""

    d: int = stated(20)
    n: int = stated(40)
    prompts: int = assumed(64)
    newton: int = assumed(12)
    eta: float = coded(0.01)
    descent: int = coded(4096)


PAPER = Config()
GPU = CPU = replace(PAPER, descent=512)
SMOKE = replace(PAPER, d=4, n=8, prompts=12, newton=5, descent=16)


@dataclass(frozen=True, kw_only=True)
class Result(Maps):
    """The map of Newton steps by gradient steps, and the likeness to least squares of what knows less."""

    levels: dict[str, float]


def run(config: Config, site: Site) -> Result:
    """Newton steps in the place of layers."""
    g = site.generator()
    x = torch.randn(config.prompts, config.n, config.d, generator=g, dtype=torch.float64)
    pairs = Dense(x, x @ torch.randn(config.prompts, config.d, 1, generator=g, dtype=torch.float64))

    def weights(solver: Any, steps: list[int]) -> torch.Tensor:
        return torch.stack([f.w for f in induced_trace(solver, pairs, site.generator("queries"), steps)])

    best = weights(LeastSquares(), [0])[0]
    slow = GradientDescent(eta=config.eta, gradient="sum", form="spectral")
    subject = weights(Newton(scale="frobenius"), list(range(config.newton + 1)))
    others = {"averaging": weights(Averaging(), [0])[0], "other prompts": best.roll(1, 0)}
    families = {"gradient descent": Candidate(slow, doubling(config.descent))}
    return Result(
        **vars(weight_maps(subject, pairs, families, error=0.0, site=site)),
        levels={name: float(weight_similarity(w, best).mean()) for name, w in others.items()},
    )


def claims(result: Result) -> list[Claim]:
    """The null is 0, and yet a level names no algorithm."""
    return [
        Claim(
            text="weights of other prompts are not alike: below 0.05 in size",
            source=SOURCE,
            measured=abs(result.levels["other prompts"]),
            sense="<",
            bound=0.05,
        ),
        Claim(
            text="averaging, w = X'y / n, is more than 0.75 like least squares",
            source=SOURCE,
            measured=result.levels["averaging"],
            sense=">",
            bound=0.75,
        ),
        Claim(
            text="the best-matched gradient descent is at least 0.93 like any Newton step: a level separates nothing",
            source=SOURCE,
            measured=min(result.best_similarity["gradient descent"]),
            sense=">",
            bound=0.93,
        ),
        Claim(
            text="what grows does: log2 of the matched gradient step by more than 0.25 a Newton step",
            source=SOURCE,
            measured=result.doublings["gradient descent"],
            sense=">",
            bound=0.25,
        ),
    ]


def plot(result: Result) -> Figure:
    """The map, and the best matches beside the null."""
    return draw(result, rows="Newton step", null="weights of other prompts", first=0)
