"""AlgoFormer project, second representation: Figure 2a of Gao et al. 2024 with another network behind the labels.

What is said of one fixed representation should not hang on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from algoformer.experiments import comparison
from algoformer.experiments.comparison import Comparison, Race, draw, first_of_all, race
from algoformer.experiments.experiment import Claim, assumed
from algoformer.experiments.softmax import COMPARED, TINY, stored
from algoformer.task import Task
from algoformer.tasks import Representation

REVISION = 2
run, plot, plot_all, numbers = race, draw, comparison.draw_all, comparison.numbers
Result = Race


@dataclass(frozen=True, kw_only=True)
class Config(Comparison):
    """Three models; `phi` is the seed of the representation."""

    phi: int = assumed(1)

    @property
    def subject(self) -> Task[Any]:
        return Representation(d=self.d, n=self.n, seed=self.phi, dense=True)


PAPER = Config()
GPU = Config(**COMPARED)
CPU = stored(GPU)
SMOKE = Config(**TINY, loops=2, window=1, layers=2)


def claims(result: Result) -> list[Claim]:
    """AlgoFormer below both others, against each axis."""
    return first_of_all(result, "ours")
