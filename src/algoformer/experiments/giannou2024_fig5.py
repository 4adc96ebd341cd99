"""Giannou et al. 2024, Figures 5 and 6: outputs along a sweep of the query, of linear self-attention with LayerNorm.

"LN improves the performance of the model. The spikes are noted in the out-of-distribution range": with LayerNorm the
output is no longer linear in the query, whatever the mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.experiments import giannou2024_fig3 as fig3
from algoformer.experiments.experiment import Claim, Knob, Site, coded, stated
from algoformer.experiments.giannou2024_fig9 import NORMED
from algoformer.experiments.lsa import NORMED_MEDIUM, SMALL, TINY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 3
Result = fig3.Result


@dataclass(frozen=True, kw_only=True)
class Config(fig3.Config):
    """As Figures 3 and 4, with LayerNorm, deeper, beside higher orders."""

    norm: bool = stated(True)
    clip: float | None = coded(None)
    init: float | None = coded(0.02)
    layers: tuple[int, ...] = stated((1, 3, 5, 7, 10, 12))
    orders: tuple[int, ...] = stated((3, 5))


PAPER = Config()
GPU = Config(**NORMED_MEDIUM)
CPU = Config(
    **(SMALL | NORMED | {"layers": (1, 3), "steps": 600}), kappa=1.0, far=17.0, batch_of_prompts=500, points=81
)
SMOKE = Config(**(TINY | NORMED | {"width": 8, "heads": 2}), kappa=1.0, far=17.0, batch_of_prompts=16, points=17)


def run(config: Config, site: Site) -> Result:
    """As Figures 3 and 4."""
    return fig3.run(config, site)


def claims(result: Result) -> list[Claim]:
    """Good inside, off outside, least so at a middle depth, and not a line."""
    near, far = fig3.apart(result, result.attention[-1])
    middle = [fig3.apart(result, line)[1] for line in result.attention[1:-1]]
    errors = (result.error[-1],)
    return [
        Claim(
            text="inside the range of training the deepest model follows the linear function to 10 %",
            source="ours",
            measured=near,
            sense="<",
            bound=0.1,
            errors=errors,
        ),
        Claim(
            text="far outside it does not: more than 10 % off",
            source="Figure 6",
            measured=far,
            sense=">",
            bound=0.1,
            errors=errors,
        ),
        Claim(
            text="far outside a middle depth is nearer than the deepest (least ratio of distances below 1)",
            source="Figure 6",
            measured=min(middle, default=far) / far,
            sense="<",
            bound=1.0,
            errors=errors,
        ),
        Claim(
            text="its output is not a straight line in the query: R² below 0.999",
            source="Figure 6",
            measured=result.linearity[-1],
            sense="<",
            bound=0.999,
            errors=errors,
        ),
    ]


def plot(result: Result) -> Figure:
    """As Figures 3 and 4."""
    return fig3.plot(result)


def knob(result: Result) -> Knob:
    """Turn the depth."""
    return fig3.knob(result)
