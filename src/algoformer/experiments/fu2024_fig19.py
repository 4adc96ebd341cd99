"""Fu et al. 2024, Figure 19: the noisy case.

Label noise 0.1; Newton's iteration works on S + lambda I with lambda = noise squared (assumed, as Bayes has it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.experiments import fu2024_fig3 as fig3
from algoformer.experiments.experiment import Claim, Site, stated
from algoformer.experiments.maps import Maps, draw, exponential, leads
from algoformer.experiments.softmax import SHORT, TINY, stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 5
SOURCE = "Figure 19"
Result = Maps


@dataclass(frozen=True, kw_only=True)
class Config(fig3.Config):
    """As Figure 3, with noise."""

    noise: float = stated(0.1)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=3, newton=4, descent=8, conjugate=2)


def run(config: Config, site: Site) -> Result:
    """As Figure 3."""
    return fig3.run(config, site)


def claims(result: Result) -> list[Claim]:
    """Second-order with noise too."""
    return [exponential(result, SOURCE), leads(result, SOURCE)]


def plot(result: Result) -> Figure:
    """As Figure 3."""
    return draw(result)
