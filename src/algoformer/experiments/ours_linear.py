"""AlgoFormer project, linear regression: AlgoFormer, standard and looped transformer under one protocol.

The task of Yang et al. 2024 and Garg et al. 2022, on which Gao et al. compare AlgoFormer with algorithms alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from algoformer.experiments import comparison
from algoformer.experiments.comparison import Comparison, Race, draw, first_of_all, race
from algoformer.experiments.experiment import Claim, assumed
from algoformer.experiments.softmax import COMPARED, TINY, stored

REVISION = 2
run, plot, plot_all, numbers = race, draw, comparison.draw_all, comparison.numbers
Result = Race


@dataclass(frozen=True, kw_only=True)
class Config(Comparison):
    """Three models on this task."""

    problem: str = assumed("linear")


PAPER = Config()
GPU = Config(**COMPARED | {"steps": 24_000})
CPU = stored(GPU)
SMOKE = Config(**TINY, loops=2, window=1, layers=2)


def claims(result: Result) -> list[Claim]:
    """AlgoFormer below both others, against each axis."""
    return first_of_all(result, "ours")
