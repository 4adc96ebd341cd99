"""Giannou et al. 2024, Figure 9: linear self-attention with LayerNorm under condition numbers.

With LayerNorm the network is no polynomial any more, and can rescale each prompt by itself. Newton's iteration starts
from a multiple of I, where it is sooner at the solution than from the authors' multiple of S.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from algoformer.experiments import giannou2024_fig8 as fig8
from algoformer.experiments.experiment import Claim, Site, assumed, coded, stated
from algoformer.experiments.lsa import NORMED_MEDIUM, SMALL, TINY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 2
SOURCE = "Figure 9"
Result = fig8.Result


@dataclass(frozen=True, kw_only=True)
class Config(fig8.Config):
    """As Figure 8, with LayerNorm before each layer and before the reading."""

    norm: bool = stated(True)
    clip: float | None = coded(None)
    init: float | None = coded(0.02)
    kappas: tuple[float, ...] = stated((5.0, 10.0, 20.0, 50.0, 100.0))
    noises: tuple[float, ...] = stated((0.0,))
    orders: tuple[int, ...] = assumed((2, 4, 6, 8))  # the key, hard to read, has at least 4, 6 and 8
    start: ClassVar[Literal["S", "I"]] = "I"


NORMED = {"width": 32, "heads": 4, "norm": True, "init": 0.1, "robust": None, "lr": 0.003}
PAPER = Config()
GPU = Config(**NORMED_MEDIUM, kappas=(10.0,))
CPU = Config(**(SMALL | NORMED | {"layers": (1, 2, 3), "kappas": (5.0,), "steps": 600}), prompts=2000)
SMOKE = Config(**(TINY | NORMED | {"width": 8, "heads": 2, "kappas": (5.0,)}))


def run(config: Config, site: Site) -> Result:
    """As Figure 8."""
    return fig8.run(config, site)


def claims(result: Result) -> list[Claim]:
    """More layers help at every condition number; and whether the deepest is beyond order 2 from this start."""
    start = "Newton of order 2 from a multiple of I"
    return [
        claim
        for panel in result.attention
        for claim in (fig8.deeper(result, panel, SOURCE), fig8.beyond(result, panel, "ours", start))
    ]


def plot(result: Result) -> Figure:
    """As Figure 8."""
    return fig8.plot(result, "I")
