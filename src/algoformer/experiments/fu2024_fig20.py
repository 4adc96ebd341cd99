"""Fu et al. 2024, Figure 20: two-layer ReLU networks as targets, against gradient descent on such a network.

No Newton's iteration is known here; the paper asks how many steps of gradient descent a layer is worth, on a scale of
doublings, and leaves open what the transformer does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.analysis import Candidate
from algoformer.experiments.experiment import Claim, Site, assumed, coded, stated
from algoformer.experiments.layers import layer_answers
from algoformer.experiments.maps import Maps, doubling, draw, error_maps, exponential
from algoformer.experiments.softmax import SHORT, TINY, Softmax, stored
from algoformer.solvers import NetworkGradientDescent
from algoformer.tasks import Regression, ReluNetwork, TanhNetwork
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 4
FAMILY = "gradient descent on a network"
Result = Maps


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """A standard transformer on networks of a few hidden units; a network of that kind is trained on every prefix."""

    n: int = assumed(100)
    layers: int = stated(12)
    hidden: int = coded(4)
    unit: str = stated("relu")
    descent: int = coded(4096)
    eta: float = assumed(0.01)
    prompts: int = assumed(64)

    @property
    def network(self) -> Regression:
        """The task."""
        kind = ReluNetwork if self.unit == "relu" else TanhNetwork
        return kind(d=self.d, n=self.n, hidden=self.hidden, dense=True)

    @property
    def families(self) -> dict[str, Candidate]:
        """Gradient descent alone."""
        solver = NetworkGradientDescent(hidden=self.hidden, unit=self.unit, eta=self.eta)  # type: ignore[arg-type]
        return {FAMILY: Candidate(solver, doubling(self.descent))}

    def recipes(self) -> Iterator[Recipe]:
        """The one training."""
        yield self.recipe(self.standard(self.network, self.layers), self.network)


PAPER = Config()
GPU = Config(**SHORT, descent=2048)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=3, hidden=2, descent=8)


def run(config: Config, site: Site) -> Result:
    """Read every layer, train a network on every prefix, and match."""
    task = config.network
    return error_maps(layer_answers(config, config.standard(task, config.layers), task, site), config.families, site)


def claims(result: Result) -> list[Claim]:
    """Exponentially many steps of gradient descent, if it is that at all."""
    return matched(result)


def matched(result: Result) -> list[Claim]:
    """The claims about both kinds of network: ours, for to the paper they remain a mystery."""
    return [
        exponential(result, "ours", FAMILY),
        Claim(
            text="gradient descent on a network is more like the last layer than the zero predictor is",
            source="ours",
            measured=result.best_similarity[FAMILY][-1] - result.null[-1],
            sense=">",
            bound=0.0,
            errors=(result.error,),
        ),
    ]


def plot(result: Result) -> Figure:
    """The map, its matches, and the null."""
    return draw(result)
