"""Fu et al. 2024, Figure 21: two-layer tanh networks as targets, against gradient descent on such a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.experiments import fu2024_fig20 as fig20
from algoformer.experiments.experiment import Claim, Site, stated
from algoformer.experiments.maps import Maps, draw
from algoformer.experiments.softmax import SHORT, TINY, stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 4
Result = Maps


@dataclass(frozen=True, kw_only=True)
class Config(fig20.Config):
    """As Figure 20, with tanh."""

    unit: str = stated("tanh")


PAPER = Config()
GPU = Config(**SHORT, descent=2048)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=3, hidden=2, descent=8)


def run(config: Config, site: Site) -> Result:
    """As Figure 20."""
    return fig20.run(config, site)


def claims(result: Result) -> list[Claim]:
    """As Figure 20."""
    return fig20.matched(result)


def plot(result: Result) -> Figure:
    """As Figure 20."""
    return draw(result)
