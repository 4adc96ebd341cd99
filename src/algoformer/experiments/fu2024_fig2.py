"""Fu et al. 2024, Figure 2: the error of a transformer layer by layer, beside Newton and gradient descent step by step.

Claims 1 and 2 of the paper: a transformer is an iterative algorithm whose layers improve the prediction, and at a rate
that gradient descent does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from algoformer.analysis import readings
from algoformer.experiments.drawing import COLOURS, above, axes, legend
from algoformer.experiments.experiment import Claim, Site, coded, stated
from algoformer.experiments.layers import layer_answers
from algoformer.experiments.softmax import SHORT, TINY, Softmax, stored
from algoformer.solvers import GradientDescent, Newton
from algoformer.tasks import HalfAndHalf, Isotropic, LinearRegression
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 4
SOURCE = "Figure 2"


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """A standard transformer on linear regression."""

    layers: int = stated(12)
    condition: float = stated(1.0)
    noise: float = stated(0.0)
    newton: int = coded(23)
    descent: int = coded(64)
    eta: float = coded(0.01)
    prompts: int = coded(320)

    @property
    def regression(self) -> LinearRegression:
        """The task."""
        covariance = Isotropic() if self.condition == 1 else HalfAndHalf(condition=self.condition)
        return LinearRegression(d=self.d, n=self.n, noise=self.noise, covariance=covariance, dense=True)

    def recipes(self) -> Iterator[Recipe]:
        """All trainings, pilots first."""
        model = self.standard(self.regression, self.layers)
        yield from self.pilots(model, self.regression)
        yield self.recipe(model, self.regression)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=2, newton=4, descent=8)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error with all examples over the zero predictor's, by layer or step."""

    transformer: list[float]
    newton: list[float]
    descent: list[float]


def run(config: Config, site: Site) -> Result:
    """Read every layer, and run the solvers on the same prompts."""
    task = config.regression
    found = layer_answers(config, config.standard(task, config.layers), task, site)
    target = found.prompt.y
    last = found.prompt.prefix(config.n)

    def errors(trace: torch.Tensor) -> list[float]:
        return ((trace[:, :, 0] - target[:, -1]).square().mean((1, 2)) / target[:, -1].square().mean()).tolist()

    newton = Newton(scale="frobenius", ridge=config.noise**2)
    slow = GradientDescent(eta=config.eta, gradient="sum")
    return Result(
        transformer=found.errors.tolist(),
        newton=errors(readings(newton, last, range(config.newton + 1))),
        descent=errors(readings(slow, last, range(config.descent + 1))),
    )


def claims(result: Result) -> list[Claim]:
    """Layers improve, and faster than gradient descent."""
    depth, able = len(result.transformer) - 1, (result.transformer[-1],)
    return [
        Claim(
            text="the last layer is better than the middle one (ratio of errors below 1)",
            source=SOURCE,
            measured=result.transformer[-1] / result.transformer[depth // 2],
            sense="<",
            bound=1.0,
            errors=able,
        ),
        Claim(
            text="its layers do more than as many gradient steps (ratio of errors below 1)",
            source=SOURCE,
            measured=result.transformer[-1] / result.descent[min(depth, len(result.descent) - 1)],
            sense="<",
            bound=1.0,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """Errors by layer or step."""
    fig, (ax,) = axes(8.6, 4.0)
    for line, name, colour in zip(
        (result.transformer, result.newton, result.descent),
        ("transformer, by layer", "Newton, by step", "gradient descent, by step"),
        COLOURS,
        strict=False,
    ):
        ax.semilogy(line, color=colour, label=name)
    ax.set(xlabel="layer or step", ylabel="error / zero predictor's", xlim=(0, max(len(result.newton), 12)))
    above(ax, 1e-12)
    legend(fig, ax)
    return fig
