"""Fu et al. 2024, Figures 22 and 23: the maps of Figure 3 for a transformer of one head.

One head is said to be enough: layers match Newton and gradient steps as with eight.
"""

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
SOURCE = "Figures 22, 23"
Result = Maps


@dataclass(frozen=True, kw_only=True)
class Config(fig3.Config):
    """As Figure 3, with one head."""

    heads: int = stated(1)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY | {"heads": 1}, layers=3, newton=4, descent=8, conjugate=2)


def run(config: Config, site: Site) -> Result:
    """As Figure 3."""
    return fig3.run(config, site)


def claims(result: Result) -> list[Claim]:
    """As Figure 3, and the last layer near Newton's end (19 to 21 steps in the paper)."""
    return [
        linear(result, "Newton", SOURCE),
        exponential(result, SOURCE),
        leads(result, SOURCE),
        Claim(
            text="the last layer is most like a late Newton step: beyond the 15th",
            source=SOURCE,
            measured=float(result.best["Newton"][-1]),
            sense=">",
            bound=15.0,
            errors=(result.error,),
        ),
    ]


def plot(result: Result) -> Figure:
    """As Figure 3."""
    return draw(result)
