"""Giannou et al. 2024, Figure 8: linear self-attention under condition numbers and noise.

Inputs have lmax ~ U[1, 100] and lmax / lmin = kappa, drawn for each batch: one set of weights must serve all scales.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from algoformer.experiments.drawing import COLOURS, label_rows, legend, panels
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.lsa import MEDIUM, SMALL, TINY, Attention
from algoformer.solvers import Newton
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 3
SOURCE = "Figure 8"


@dataclass(frozen=True, kw_only=True)
class Config(Attention):
    """One model for each depth, condition number and noise."""

    kappas: tuple[float, ...] = stated((5.0, 10.0))
    noises: tuple[float, ...] = stated((0.0, 0.1))
    noisy: tuple[float, ...] | None = assumed(None)  # the condition numbers that noise is tried with; None: all
    orders: tuple[int, ...] = stated((2, 3, 4))
    start: ClassVar[Literal["S", "I"]] = "S"  # of Newton's iteration, as the authors'

    @property
    def panels(self) -> Iterator[tuple[float, float]]:
        """Condition numbers and noises."""
        for kappa in self.kappas:
            for noise in self.noises:
                if not noise or self.noisy is None or kappa in self.noisy:
                    yield kappa, noise

    def recipes(self) -> Iterator[Recipe]:
        for kappa, noise in self.panels:
            for layers in self.layers:
                yield self.recipe(layers, self.task(kappa, noise))


PAPER = Config()
GPU = Config(**MEDIUM, kappas=(1.0, 10.0, 100.0), noisy=(10.0,))
CPU = Config(**(SMALL | {"layers": (1, 2, 3), "kappas": (5.0,), "steps": 600, "init": 0.02}), prompts=2000)
SMOKE = Config(**(TINY | {"kappas": (5.0,), "noises": (0.1,)}))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error over the zero predictor's by panel ("kappa 5, noise 0.1") and depth, of the model and of Newton."""

    layers: list[int]
    attention: dict[str, list[float]]
    median: dict[str, list[float]]
    newton: dict[str, dict[str, list[float]]]


def run(config: Config, site: Site) -> Result:
    """One panel for each kappa and noise. Newton has the ridge of the authors' code."""
    attention: dict[str, list[float]] = {}
    median: dict[str, list[float]] = {}
    newton: dict[str, dict[str, list[float]]] = {}
    for kappa, noise in config.panels:
        panel, task = _named(kappa, noise), config.task(kappa, noise)
        errors = [config.errors(layers, task, site) for layers in config.layers]
        attention[panel], median[panel], newton[panel] = [mean for mean, _ in errors], [m for _, m in errors], {}
        for order in config.orders:
            solver = Newton(start=config.start, order=order, ridge=noise**2)
            found = config.tested(solver, task, site, range(1, max(config.layers) + 1))
            newton[panel][str(order)] = [row[-1] / found.zero for row in found.mean]
    return Result(layers=list(config.layers), attention=attention, median=median, newton=newton)


def claims(result: Result) -> list[Claim]:
    """Depth helps in every panel, and the deepest is beyond order 2. Panels that the paper does not have are ours."""
    published = {_named(*panel) for panel in PAPER.panels}
    whose = {panel: SOURCE if panel in published else "ours" for panel in result.attention}
    return [
        claim
        for panel in result.attention
        for claim in (deeper(result, panel, whose[panel]), beyond(result, panel, whose[panel], "Newton of order 2"))
    ]


def deeper(result: Result, panel: str, source: str) -> Claim:
    """The claim that depth helps."""
    line = result.attention[panel]
    return Claim(
        text=f"{panel}: more layers, less error (deepest over shallowest below 1)",
        source=source,
        measured=line[-1] / line[0],
        sense="<",
        bound=1.0,
        errors=(line[-1],),
    )


def beyond(result: Result, panel: str, source: str, newton: str) -> Claim:
    """The claim that the deepest is better than as many steps of order 2."""
    error = result.attention[panel][-1]
    return Claim(
        text=f"{panel}: the deepest is better than {newton} (ratio below 1)",
        source=source,
        measured=error / result.newton[panel]["2"][result.layers[-1] - 1],
        sense="<",
        bound=1.0,
        errors=(error,),
    )


def plot(result: Result, start: str = "S") -> Figure:
    """One panel for each condition number and noise."""
    fig, found = panels(len(result.attention), beside=2.4)
    for ax, (name, line) in zip(found, result.attention.items(), strict=True):
        ax.semilogy(result.layers, line, "o-", color=COLOURS[0], label="linear attention, mean")
        ax.semilogy(result.layers, result.median[name], "o:", color=COLOURS[0], label="linear attention, median")
        for (order, curve), colour in zip(result.newton[name].items(), COLOURS[1:], strict=False):
            ax.semilogy(range(1, len(curve) + 1), curve, color=colour, label=f"Newton of order {order}, from {start}")
        ax.set(title=name, xlabel="layers or steps", xticks=result.layers)
    label_rows(found, "error / zero predictor's")
    legend(fig, found[0])
    return fig


def _named(kappa: float, noise: float) -> str:
    return f"kappa {kappa:g}, noise {noise:g}"
