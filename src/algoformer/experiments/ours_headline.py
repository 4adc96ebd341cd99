"""AlgoFormer project, headline: linear regression at 40 examples beside the published errors.

Yang et al. 2024 have, at d = 20 and exactly 40 examples after 500,000 steps, a squared error over d of 4.8e-4 for the
standard transformer of 12 layers and of 7.8e-4 for the looped one. A match is an error within 20 %. Where it is not
reached, a power law fitted to the second half of the learning curve says how many steps it would take: an
extrapolation. A run with a cosine is another recipe, and called so; the one of the standard transformer starts from one
input, at a learning rate of 3e-4 (`softmax.SHORT`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.experiments import comparison
from algoformer.experiments.comparison import Comparison, Entrant, Race, above, last, race
from algoformer.experiments.drawing import COLOURS, INK, axes, counted, legend
from algoformer.experiments.experiment import Claim, Site, assumed
from algoformer.experiments.protocol import PowerLaw
from algoformer.experiments.softmax import COMPARED, SHORT, TINY, stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 4
numbers = comparison.numbers
BETTER, SURER = "AlgoFormer, cosine", "standard, cosine"
STANDARD, LOOPED = 4.8e-4, 7.8e-4
LONG = {"AlgoFormer": LOOPED, "looped": LOOPED, "standard": STANDARD}  # at a constant rate: a power law can be fitted
PUBLISHED = LONG | {BETTER: LOOPED, SURER: STANDARD}
PUBLISHED_AT = 500_000
MATCH = 1.2


@dataclass(frozen=True, kw_only=True)
class Config(Comparison):
    """Long runs of three models, and short ones of two by other recipes."""

    problem: str = assumed("linear")
    steps: int = assumed(500_000)
    standard_steps: int = assumed(500_000)
    short: int = assumed(24_000)
    standard_short: int = assumed(100_000)

    @property
    def entrants(self) -> dict[str, Entrant]:
        known = super().entrants
        return known | {
            "standard": known["standard"]._replace(how={"steps": self.standard_steps}),
            BETTER: known["AlgoFormer"]._replace(how={"steps": self.short, "cosine": True}, like="AlgoFormer"),
            SURER: known["standard"]._replace(how=SHORT | {"steps": self.standard_short, "ema": 0.0}),
        }

    @property
    def told(self) -> str:
        """The steps, as the title says them."""
        short = f"cosine {self.short:,} and {self.standard_short:,}"
        return f"{self.steps:,} steps, standard {self.standard_steps:,}, {short}"


PAPER = Config()
GPU = Config(**COMPARED | {"steps": 200_000}, standard_steps=300_000)
CPU = stored(GPU)
SMOKE = Config(**TINY, loops=2, window=1, layers=2, standard_steps=4, short=3, standard_short=3)


@dataclass(frozen=True, kw_only=True)
class Result(Race):
    """The race; by long run the fitted power law, and the steps at which it would come to the published error."""

    laws: dict[str, list[float]]
    needed: dict[str, float]


def run(config: Config, site: Site) -> Result:
    """Train or load, test, and fit."""
    found = race(config, site)
    laws, needed = {}, {}
    for name, bar in LONG.items():
        curve = found.curves[name]
        late = [
            (s, max(e, 1e-12)) for s, e in zip(curve["step"], curve["last"], strict=True) if 2 * s >= curve["step"][-1]
        ]
        law = PowerLaw.of(*zip(*late, strict=True)) if len(late) > 1 else PowerLaw(math.nan, math.nan)
        laws[name], needed[name] = [law.scale, law.exponent], law.steps(bar)
    return Result(**vars(found), laws=laws, needed=needed)


def claims(result: Result) -> list[Claim]:
    """Each run reaches the published error, to 20 %, in fewer steps; and how soon a long one would."""
    made = []
    for name, bar in PUBLISHED.items():
        error, whose = above(result, name), "standard" if bar == STANDARD else "looped"
        steps = f"after {result.curves[name]['step'][-1]:,.0f} steps"
        made.append(
            Claim(
                text=f"{name} reaches the published error of the {whose} transformer, {bar:g}, {steps}: "
                f"ratio below {MATCH}",
                source="ours" if name in ("AlgoFormer", BETTER) else "Yang et al. 2024",  # who have no AlgoFormer
                measured=error / bar,
                sense="<",
                bound=MATCH,
                errors=(error,),
            )
        )
        if name in LONG:
            made.append(
                Claim(
                    text=f"{name} comes to {bar:g} within {PUBLISHED_AT:,} steps by the power law of its second half",
                    source="ours",
                    measured=result.needed[name],
                    sense="<",
                    bound=PUBLISHED_AT,
                    errors=(error,),
                )
            )
    return made


def plot(result: Result) -> Figure:
    """Learning curves, their laws and the published errors."""
    fig, (ax,) = axes(9.5, 4.4)
    for (name, curve), colour in zip(result.curves.items(), COLOURS, strict=False):
        ax.loglog(curve["step"], [max(v, 1e-12) for v in curve["last"]], color=colour, label=name)
        ax.plot(curve["step"][-1], last(result.errors[name]) / last(result.zero), "o", color=colour)
        scale, exponent = result.laws.get(name, (math.nan, math.nan))
        if exponent > 0:
            ends = [curve["step"][-1] / 2, max(PUBLISHED_AT, curve["step"][-1])]
            ax.plot(ends, [scale * s**-exponent for s in ends], "--", color=colour, linewidth=1)
    for bar, words in ((STANDARD, "standard, published"), (LOOPED, "looped, published")):
        ax.plot(PUBLISHED_AT, bar, "*", markersize=12, color="#888888")
        ax.annotate(words, (PUBLISHED_AT, bar), (8, 0), textcoords="offset points", va="center", fontsize=8, color=INK)
    ax.set(xlabel="steps", ylabel="squared error at 40 examples / zero predictor's")
    counted(ax)
    legend(fig, ax)
    return fig
