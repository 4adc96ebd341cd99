"""Fu et al. 2024, Figures 4 and 15 to 18: the ill-conditioned case.

Claim 3: with covariance of condition number 100 the transformer still matches Newton's iteration, where gradient
descent needs thousands of steps. At the authors' rate, 0.01, it diverges on one prompt in a hundred, whose similarity
is then nothing's; half of it, which needs twice the steps, does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.experiments import fu2024_fig3 as fig3
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.maps import Maps, draw, leads
from algoformer.experiments.softmax import SHORT, TINY, stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 6
SOURCE = "Figures 4, 15"
Result = Maps


@dataclass(frozen=True, kw_only=True)
class Config(fig3.Config):
    """As Figure 3, with half of the eigenvalues 100 times the other half, in a basis of each prompt's own."""

    condition: float = stated(100.0)
    eta: float = assumed(0.005)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=3, newton=4, descent=8, conjugate=2)


def run(config: Config, site: Site) -> Result:
    """As Figure 3."""
    return fig3.run(config, site)


def claims(result: Result) -> list[Claim]:
    """Like Newton, and past what gradient descent does in a thousand steps of the authors' size."""
    able = (result.error,)
    return [
        leads(result, SOURCE),
        Claim(
            text="gradient descent needs thousands of steps to match the last layer: more than 2,000 at half "
            "of the authors' rate",
            source=SOURCE,
            measured=float(result.best["gradient descent"][-1]),
            sense=">",
            bound=2000.0,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """As Figure 3."""
    return draw(result)
