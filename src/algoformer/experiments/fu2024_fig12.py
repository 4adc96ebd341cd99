"""Fu et al. 2024, Figures 11 and 12, by layer: which step of a quasi-Newton method is each layer most like?

Transformers are said to be like BFGS and to do better than conjugate gradients and L-BFGS. The line search is not
stated: BFGS and L-BFGS take unit steps here, since with exact search both are conjugate gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.analysis import Candidate
from algoformer.experiments import fu2024_fig3 as fig3
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.maps import Maps, able, draw, fitted, linear
from algoformer.experiments.softmax import SHORT, TINY, stored
from algoformer.solvers import BFGS, LBFGS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 4
Result = Maps


@dataclass(frozen=True, kw_only=True)
class Config(fig3.Config):
    """As Figure 3, with other families; the paper's map of conjugate gradients ends at 40 steps."""

    conjugate: int = stated(40)
    quasi: int = assumed(80)
    memory: int = assumed(10)

    @property
    def families(self) -> dict[str, Candidate]:
        """Three, and gradient descent to tell them from."""
        steps, others = list(range(1, self.quasi + 1)), super().families
        return {
            "BFGS": Candidate(BFGS(search="unit"), steps),
            "L-BFGS": Candidate(LBFGS(memory=self.memory, search="unit"), steps),
            "conjugate gradients": others["conjugate gradients"],
            "gradient descent": others["gradient descent"],
        }


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=3, conjugate=3, quasi=4, descent=8)


def run(config: Config, site: Site) -> Result:
    """As Figure 3."""
    return fig3.run(config, site)


def claims(result: Result) -> list[Claim]:
    """At the rate of BFGS, and faster than the other two. The paper's line is through layers 6 to 11."""
    straight = fitted(result.best["BFGS"], result.steps["BFGS"][-1], range(5, 11))[2]
    return [
        Claim(
            text="layers go on as BFGS does: in layers 6 to 11 the matched steps are on a line, R² above 0.9",
            source="Figure 11",
            measured=straight,
            sense=">",
            bound=0.9,
            errors=able(result, straight),
        ),
        Claim(
            text="in the middle half of the layers too: R² above 0.9",
            source="ours",
            measured=result.straight["BFGS"],
            sense=">",
            bound=0.9,
            errors=able(result, result.straight["BFGS"]),
        ),
        Claim(
            text="the last layer is like BFGS at its best step: similarity above 0.9",
            source="Figure 11",
            measured=result.best_similarity["BFGS"][-1],
            sense=">",
            bound=0.9,
            errors=(result.error,),
        ),
        Claim(
            text="it is more like BFGS than like gradient descent, both at their best step",
            source="ours",
            measured=result.best_similarity["BFGS"][-1] - result.best_similarity["gradient descent"][-1],
            sense=">",
            bound=0.0,
            errors=(result.error,),
        ),
        linear(result, "L-BFGS", "Figure 11"),
        linear(result, "conjugate gradients", "Figure 12"),
    ]


def plot(result: Result) -> Figure:
    """As Figure 3."""
    return draw(result)
