"""Fu et al. 2024, Figures 24 and 25: the maps of Figure 3 for a transformer of 24 layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.experiments import fu2024_fig3 as fig3
from algoformer.experiments.experiment import Claim, Site, stated
from algoformer.experiments.maps import Maps, draw, exponential, leads, linear
from algoformer.experiments.softmax import SHORT, TINY, stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 4
SOURCE = "Figures 24, 25"
Result = Maps


@dataclass(frozen=True, kw_only=True)
class Config(fig3.Config):
    """As Figure 3, with twice the layers."""

    layers: int = stated(24)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=6, newton=4, descent=8, conjugate=2)


def run(config: Config, site: Site) -> Result:
    """As Figure 3."""
    return fig3.run(config, site)


def claims(result: Result) -> list[Claim]:
    """As Figure 3; a layer of more may do less, so what it is worth is only said not to stand still."""
    return [linear(result, "Newton", SOURCE, more=0.5), exponential(result, SOURCE), leads(result, SOURCE)]


def plot(result: Result) -> Figure:
    """As Figure 3."""
    return draw(result)
