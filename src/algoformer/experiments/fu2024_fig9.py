"""Fu et al. 2024, Figure 9: which step of which algorithm has the weights that each layer induces?

What a layer answers to fresh queries is fitted by a linear function; its weights are compared, over all prefixes, with
those of Newton's iteration and of gradient descent. Weights of other prompts are the null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.analysis import Candidate
from algoformer.experiments import fu2024_fig3 as fig3
from algoformer.experiments.experiment import Claim, Site, assumed
from algoformer.experiments.layers import layer_answers, layer_weights
from algoformer.experiments.maps import Maps, draw, exponential, linear, weight_maps
from algoformer.experiments.softmax import SHORT, TINY, stored
from algoformer.prompt import Dense

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 4
SOURCE = "Figure 9"


@dataclass(frozen=True, kw_only=True)
class Config(fig3.Config):
    """As Figure 3; every prefix of `weighed` prompts is asked 4 d fresh queries."""

    weighed: int = assumed(32)

    @property
    def families(self) -> dict[str, Candidate]:
        """The two that the figure has."""
        return {name: c for name, c in super().families.items() if name != "conjugate gradients"}


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=3, newton=4, descent=8, weighed=8)


@dataclass(frozen=True, kw_only=True)
class Result(Maps):
    """The maps, and R² of the linear fit to each layer: without it there are no weights to compare."""

    linearity: list[float]


def run(config: Config, site: Site) -> Result:
    """Weigh every layer, and match its weights with those of both families."""
    task = config.regression
    model = config.standard(task, config.layers)
    error = float(layer_answers(config, model, task, site).errors[-1])
    found = layer_weights(config, config.weighed, model, task, site)
    pairs = Dense(found.prompt.x[:, :-1], found.prompt.y[:, :-1])
    made = weight_maps(found.w, pairs, config.families, error=error, site=site)
    return Result(**vars(made), linearity=found.linearity.mean((1, 2)).tolist())


def claims(result: Result) -> list[Claim]:
    """Linear in Newton steps and exponential in gradient steps, of weights that are there."""
    able = (result.error,)
    return [
        linear(result, "Newton", SOURCE),
        exponential(result, SOURCE),
        Claim(
            text="the first layer has no weights yet: its best similarity is below 0.5",
            source=SOURCE,
            measured=max(result.best_similarity[name][0] for name in result.best_similarity),
            sense="<",
            bound=0.5,
            errors=able,
        ),
        Claim(
            text="the last layer has the weights of a late Newton step: similarity above 0.9",
            source=SOURCE,
            measured=result.best_similarity["Newton"][-1],
            sense=">",
            bound=0.9,
            errors=able,
        ),
        Claim(
            text="the last layer is linear in its query: R² of the fit above 0.9",
            source="ours",
            measured=result.linearity[-1],
            sense=">",
            bound=0.9,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """A map for each family, and the null."""
    return draw(result, null="weights of other prompts")
