"""Gao et al. 2024, Figure 2c: AlgoFormer, standard and looped transformer on chain of thought with a network.

A network of six layers is drawn for each prompt; every state of its chains is asked, and has a curve of its own. The
oracle is Bayes: with few chains it is far below least squares on the links, and so are the trained models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from algoformer.experiments import comparison
from algoformer.experiments.comparison import Comparison, Race, below, draw, first_of_all, race
from algoformer.experiments.experiment import Claim, stated
from algoformer.experiments.softmax import COMPARED, TINY, stored
from algoformer.task import Task
from algoformer.tasks import ChainOfThought

REVISION = 3
run, plot, plot_all, numbers = race, draw, comparison.draw_all, comparison.numbers
SOURCE = "Figure 2"
Result = Race


@dataclass(frozen=True, kw_only=True)
class Config(Comparison):
    """Three models on this task."""

    problem: str = stated("chain")
    chains: int = stated(40)  # and one more, of which all states are asked too

    @property
    def subject(self) -> Task[Any]:
        return ChainOfThought(d=self.d, n=self.chains, dense=True)


PAPER = Config()
GPU = Config(**COMPARED | {"steps": 30_000}, chains=19)
CPU = stored(GPU)
SMOKE = Config(**TINY | {"rates": (1e-4, 1e-3)}, loops=2, window=1, layers=2, chains=4)


def claims(result: Result) -> list[Claim]:
    """AlgoFormer below both others, against each axis; and the standard transformer below the looped one."""
    return [*first_of_all(result, SOURCE), *below(result, "standard", "looped", SOURCE)[:2]]  # by steps
