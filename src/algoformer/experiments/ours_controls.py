"""AlgoFormer project, controls: depth, tying and parameters of AlgoFormer apart, and equation 2 as printed.

On regression with a representation: an untied transformer as deep as AlgoFormer unrolled, a loop of three layers
without pre and post (as many parameters), and AlgoFormer without injection (equation 2 of Gao et al., with gradient
through every loop).
"""

from __future__ import annotations

from dataclasses import dataclass

from algoformer.experiments import comparison
from algoformer.experiments.comparison import Comparison, Entrant, Race, below, draw, race
from algoformer.experiments.experiment import Claim
from algoformer.experiments.softmax import COMPARED, TINY, stored

REVISION = 2
run, plot, plot_all, numbers = race, draw, comparison.draw_all, comparison.numbers
Result = Race


@dataclass(frozen=True, kw_only=True)
class Config(Comparison):
    """AlgoFormer and its controls."""

    @property
    def entrants(self) -> dict[str, Entrant]:
        task, whole = self.subject, self.loops + 2
        return {
            "AlgoFormer": Entrant(self.algoformer(task, self.loops), self.window),
            f"untied, {whole} layers": Entrant(self.standard(task, whole)),
            "3 layers a loop": Entrant(self.looped(task, self.loops, layers=3), self.window),
            "equation 2": Entrant(self.algoformer(task, self.loops, injection=False), self.window),
        }


PAPER = Config()
GPU = Config(**COMPARED)
CPU = stored(GPU)
SMOKE = Config(**TINY, loops=2, window=1)


def claims(result: Result) -> list[Claim]:
    """AlgoFormer below each control, against each axis."""
    whole, *others = result.errors
    return [c for name in others for c in below(result, whole, name, "ours")]
