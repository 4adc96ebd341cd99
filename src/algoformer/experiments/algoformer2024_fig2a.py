"""Gao et al. 2024, Figure 2a: AlgoFormer, standard and looped transformer on regression with a representation.

AlgoFormer with (T, dT) = (20, 15) is said to be significantly better than both others.
"""

from __future__ import annotations

from dataclasses import dataclass

from algoformer.experiments import comparison
from algoformer.experiments.comparison import Comparison, Race, draw, first_of_all, race
from algoformer.experiments.experiment import Claim, stated
from algoformer.experiments.softmax import COMPARED, TINY, stored

REVISION = 2
run, plot, plot_all, numbers = race, draw, comparison.draw_all, comparison.numbers
SOURCE = "Figure 2"
Result = Race


@dataclass(frozen=True, kw_only=True)
class Config(Comparison):
    """Three models on this task."""

    problem: str = stated("representation")


PAPER = Config()
GPU = Config(**COMPARED)
CPU = stored(GPU)
SMOKE = Config(**TINY | {"rates": (1e-4, 1e-3)}, loops=2, window=1, layers=2)


def claims(result: Result) -> list[Claim]:
    """AlgoFormer below both others, against each axis."""
    return first_of_all(result, SOURCE)
