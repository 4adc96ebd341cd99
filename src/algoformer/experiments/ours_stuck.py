"""AlgoFormer project, stuck runs: how often training does not leave the zero predictor.

AlgoFormer on regression with a representation from several seeds, with injection and without (equation 2 of Gao et al.;
there the gradient runs through every loop, or pre would never learn). A run is stuck that has not half of the way to
the oracle behind it at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from algoformer.experiments.drawing import COLOURS, axes, key
from algoformer.experiments.experiment import ABLE, Claim, Site, assumed, excess, stated
from algoformer.experiments.protocol import oracles, zeros
from algoformer.experiments.softmax import TINY, Softmax, stored
from algoformer.training import Recipe
from algoformer.training.evaluation import final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 2
KINDS = {"with injection": True, "equation 2": False}


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """Seeds 0, 1, .. of each kind."""

    loops: int = stated(20)
    window: int = stated(15)
    starts: int = assumed(8)

    def shape(self, kind: str) -> Any:
        """The model of a kind."""
        return self.algoformer(self.task("representation"), self.loops, injection=KINDS[kind])

    def recipes(self) -> Iterator[Recipe]:
        """The trainings, each from its own seed."""
        for kind in KINDS:
            for seed in range(self.starts):
                recipe = self.recipe(self.shape(kind), self.task("representation"), window=self.window)
                yield replace(recipe, train=replace(recipe.train, seed=seed))


PAPER = Config()
GPU = Config(steps=10_000, lr=3e-4, prompts=640)
CPU = stored(GPU)
SMOKE = Config(**TINY, loops=2, window=1, starts=2)


@dataclass(frozen=True, kw_only=True)
class Result:
    """By kind: the excess over the oracle of every seed at its end, as a share of the way to the zero predictor."""

    excess: dict[str, list[float]]
    outcomes: dict[str, list[str]]


def run(config: Config, site: Site) -> Result:
    """Train every seed. The seed of the run does not matter."""
    task = config.task("representation")
    floor, zero = final(task, oracles(task, site, config.prompts)), final(task, zeros(task, config.prompts))
    found: dict[str, list[float]] = {}
    outcomes: dict[str, list[str]] = {}
    for kind in KINDS:
        measured = [
            config.measured(
                config.shape(kind), task, replace(site, seed=seed), window=config.window, keep=False, purpose="stuck?"
            )
            for seed in range(config.starts)
        ]
        found[kind] = [excess(final(task, m.errors[-1]), floor, zero) for m in measured]
        outcomes[kind] = [m.outcome for m in measured]
    return Result(excess=found, outcomes=outcomes)


def claims(result: Result) -> list[Claim]:
    """Injection decides whether it trains."""
    rates = {kind: sum(not e < ABLE for e in line) / len(line) for kind, line in result.excess.items()}
    return [
        Claim(
            text="with injection at most a quarter of the seeds is stuck", source="ours",
            measured=rates["with injection"], sense="<", bound=0.26,
        ),
        Claim(
            text="more seeds are stuck without injection than with it (difference of the rates above 0)", source="ours",
            measured=rates["equation 2"] - rates["with injection"], sense=">", bound=0.0,
        ),
    ]  # fmt: skip


def plot(result: Result) -> Figure:
    """A point for each seed."""
    fig, (ax,) = axes(6.4, 3.8)
    for i, (line, colour) in enumerate(zip(result.excess.values(), COLOURS, strict=False)):
        places = [i + 0.04 * (j - len(line) / 2) for j in range(len(line))]
        ax.semilogy(places, [max(e, 1e-6) for e in line], "o", color=colour)
    ax.axhline(ABLE, color="#888888", linestyle=":", label="a model below it has learned")
    key(ax)
    ax.set_xticks(range(len(result.excess)), list(result.excess))
    ax.set(ylabel="excess over the oracle / zero predictor's", xlim=(-0.5, len(result.excess) - 0.5))
    return fig
