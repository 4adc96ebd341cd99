"""Fu et al. 2024, Figure 3: which step of which algorithm is each layer most like?

Maps of the similarity of errors, layer by step. Layers are said to match Newton steps linearly and gradient steps
exponentially. Matches are chosen on half of the prompts and reported on the other; a family is named only where its
lead over the next excludes 0; and the zero predictor stands beside all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.analysis import Candidate
from algoformer.experiments import fu2024_fig2
from algoformer.experiments.experiment import Claim, Site, assumed, coded
from algoformer.experiments.layers import layer_answers
from algoformer.experiments.maps import Maps, doubling, draw, error_maps, exponential, leads, linear
from algoformer.experiments.softmax import SHORT, TINY, stored
from algoformer.solvers import ConjugateGradient, GradientDescent, Newton

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 5
SOURCE = "Figure 3"
Result = Maps


@dataclass(frozen=True, kw_only=True)
class Config(fu2024_fig2.Config):
    """As Figure 2, with more gradient steps."""

    descent: int = coded(4096)
    conjugate: int = assumed(20)

    @property
    def families(self) -> dict[str, Candidate]:
        """The algorithms that a layer may be like, with the steps to try."""
        newton = Newton(scale="frobenius", ridge=self.noise**2)
        descent = GradientDescent(eta=self.eta, gradient="sum", form="spectral")
        return {
            "Newton": Candidate(newton, list(range(self.newton + 1))),
            "gradient descent": Candidate(descent, doubling(self.descent)),
            "conjugate gradients": Candidate(ConjugateGradient(), list(range(1, self.conjugate + 1))),
        }


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=3, newton=4, descent=8, conjugate=3)


def run(config: Config, site: Site) -> Result:
    """Read every layer, and match it with each family."""
    task = config.regression
    return error_maps(layer_answers(config, config.standard(task, config.layers), task, site), config.families, site)


def claims(result: Result) -> list[Claim]:
    """Linear in Newton steps, exponential in gradient steps, and more like Newton than like gradient descent."""
    return [
        linear(result, "Newton", SOURCE),
        exponential(result, SOURCE),
        leads(result, SOURCE),
        Claim(
            text="the lead of the family named for the last layer excludes 0 (1 if one is named)",
            source="ours",
            measured=float(result.verdicts[-1] != "not separated"),
            sense=">",
            bound=0.5,
            errors=(result.error,),
        ),
    ]


def plot(result: Result) -> Figure:
    """A map for each family, with its matches, and the null."""
    return draw(result)
