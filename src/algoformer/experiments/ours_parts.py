"""AlgoFormer project, parts of AlgoFormer: without its pre- or its post-transformer.

On regression with a representation, where Gao et al. say that pre computes the representation and post reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from algoformer.experiments import comparison
from algoformer.experiments.comparison import Comparison, Entrant, Race, below, draw, race
from algoformer.experiments.experiment import Claim
from algoformer.experiments.softmax import COMPARED, TINY, stored

REVISION = 3
run, plot, plot_all, numbers = race, draw, comparison.draw_all, comparison.numbers
Result = Race


@dataclass(frozen=True, kw_only=True)
class Config(Comparison):
    """AlgoFormer whole, and with one part left out, at the same learning rate."""

    @property
    def entrants(self) -> dict[str, Entrant]:
        task = self.subject
        return {
            "AlgoFormer": Entrant(self.algoformer(task, self.loops), self.window),
            "without pre": Entrant(self.algoformer(task, self.loops, pre=0), self.window, like="AlgoFormer"),
            "without post": Entrant(self.algoformer(task, self.loops, post=0), self.window, like="AlgoFormer"),
        }


PAPER = Config()
GPU = Config(**COMPARED)
CPU = stored(GPU)
SMOKE = Config(**TINY, loops=2, window=1, layers=2)


def claims(result: Result) -> list[Claim]:
    """The whole is below what is left without a part, after as many steps and for as many FLOPs."""
    whole, *less = result.errors
    return [c for name in less for c in below(result, whole, name, "ours")[:3]]
