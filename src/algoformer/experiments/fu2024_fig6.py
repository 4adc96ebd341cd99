"""Fu et al. 2024, Figure 6: how wide must a transformer be?

Claim 4: a hidden size of O(d) is enough. One-head transformers of growing width; 32 and 64 are said to suffice for
d = 20, smaller ones to fail.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from algoformer.experiments.drawing import COLOURS, axes
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.layers import model_answers
from algoformer.experiments.softmax import SHORT, TINY, Softmax, stored

REVISION = 2
SOURCE = "Figure 6"


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """One model for each width."""

    layers: int = stated(12)
    widths: tuple[int, ...] = assumed((8, 16, 32, 64))


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=2, widths=(4, 8))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error at the last position over the zero predictor's, by width."""

    widths: list[int]
    errors: list[float]


def run(config: Config, site: Site) -> Result:
    """Ask one model for each width."""
    task = config.task("linear")
    errors = []
    for width in config.widths:
        narrow = config.standard(task, config.layers, width=width, heads=1)
        errors.append(float(model_answers(config, narrow, task, site).errors[-1]))
    return Result(widths=list(config.widths), errors=errors)


def claims(result: Result) -> list[Claim]:
    """The widest is good, the narrowest is not. That one fails to learn is the claim, and no reason not to judge."""
    return [
        Claim(
            text="the widest (64 for d = 20) learns: error below 0.1 of the zero predictor's",
            source=SOURCE,
            measured=result.errors[-1],
            sense="<",
            bound=0.1,
            errors=(result.errors[-1],),
        ),
        Claim(
            text="the narrowest has at least 5 times the error of the widest",
            source=SOURCE,
            measured=result.errors[0] / result.errors[-1],
            sense=">",
            bound=5.0,
            errors=(result.errors[-1],),
        ),
    ]


def plot(result: Result) -> Figure:
    """Error by width."""
    fig, (ax,) = axes(6.4, 3.8)
    ax.loglog(result.widths, result.errors, "o-", color=COLOURS[0])
    ax.set(xlabel="width", ylabel="error / zero predictor's")
    ax.set_xticks(result.widths, [str(w) for w in result.widths])
    return fig
