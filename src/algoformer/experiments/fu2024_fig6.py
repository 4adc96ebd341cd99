"""Fu et al. 2024, Figure 6: how wide must a transformer be?

Claim 4: a hidden size of O(d) is enough. One-head transformers of growing width; 32 and 64 are said to suffice for
d = 20, smaller ones to fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer.experiments.drawing import COLOURS, axes, key
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.layers import layer_answers, model_answers
from algoformer.experiments.softmax import SHORT, TINY, Softmax, stored
from algoformer.models import TransformerConfig
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 5
SOURCE = "Figure 6"


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """One model for each width."""

    layers: int = stated(12)
    widths: tuple[int, ...] = assumed((8, 16, 32, 64))

    def narrow(self, width: int) -> TransformerConfig:
        """One head of this width."""
        return self.standard(self.task("linear"), self.layers, width=width, heads=1)

    def recipes(self) -> Iterator[Recipe]:
        """All trainings."""
        for width in self.widths:
            yield self.recipe(self.narrow(width), self.task("linear"))


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=2, widths=(4, 8))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error at the last position over the zero predictor's, by width; and what each layer knows, by its read-out."""

    widths: list[int]
    errors: list[float]
    layers: list[list[float]]


def run(config: Config, site: Site) -> Result:
    """Ask one model for each width, and its layers."""
    task = config.task("linear")
    models = [config.narrow(width) for width in config.widths]
    return Result(
        widths=list(config.widths),
        errors=[float(model_answers(config, model, task, site).errors[-1]) for model in models],
        layers=[layer_answers(config, model, task, site).errors.tolist() for model in models],
    )


def claims(result: Result) -> list[Claim]:
    """The two widest are good, the narrowest is not. That one fails to learn is no reason not to judge."""
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
            text="half of that width learns too: error below 0.1 of the zero predictor's",
            source=SOURCE,
            measured=result.errors[-2],
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
    """Error by width, and by layer."""
    fig, (left, right) = axes(10, 3.8, columns=2)
    left.loglog(result.widths, result.errors, "o-", color=COLOURS[0])
    left.set(xlabel="width", ylabel="error / zero predictor's")
    left.set_xticks(result.widths, [str(w) for w in result.widths])
    left.set_xticks([], minor=True)
    for width, line, colour in zip(result.widths, result.layers, COLOURS, strict=False):
        right.semilogy(range(len(line)), line, color=colour, label=f"width {width}")
    right.set(xlabel="layer, by its own read-out")
    key(right)
    return fig
