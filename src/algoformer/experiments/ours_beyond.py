"""AlgoFormer project, loops beyond training: with the input injected into every loop, and without.

Equation 2 of Gao et al. has no injection. Figure 3 of theirs says that a larger dT keeps the error from growing beyond
the T loops of training; here is what the injection does to that. In small: encoders that a CPU trains in minutes. The
gradient runs through all loops without injection, and with it through the dT that enter the loss: at dT = T all differ
in the injection alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from algoformer.experiments.drawing import COLOURS, axes, key, one_scale
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.ours_stuck import KINDS
from algoformer.experiments.protocol import zeros
from algoformer.experiments.softmax import SMALL, TINY, Encoders
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
SOURCE = "ours"


@dataclass(frozen=True, kw_only=True)
class Config(Encoders):
    """One model for each dT, with injection and without."""

    loops: int = stated(10)
    windows: tuple[int, ...] = assumed((5, 10))
    beyond: int = assumed(5)  # times T loops are tried

    def shape(self, kind: str) -> Any:
        """The model of a kind."""
        return self.algoformer(self.task("linear"), self.loops, injection=KINDS[kind])

    def recipes(self) -> Iterator[Recipe]:
        """The trainings."""
        for kind in KINDS:
            for window in self.windows:
                yield self.recipe(self.shape(kind), self.task("linear"), window=window)


PAPER = Config()
GPU = CPU = Config(**SMALL)
SMOKE = Config(**TINY, queries=2, loops=2, windows=(1, 2), beyond=2)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error at the last query over the zero predictor's, by kind, dT and loop, from 1 on."""

    trained: int
    windows: list[int]
    lines: dict[str, list[list[float]]]


def run(config: Config, site: Site) -> Result:
    """Train, then run on."""
    task = config.task("linear")
    zero = zeros(task, config.prompts)[-1]
    loops = tuple(range(1, config.beyond * config.loops + 1))
    lines: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    for kind, rows in lines.items():
        for window in config.windows:
            found = config.measured(
                config.shape(kind), task, site, loops=loops, purpose=f"{kind}, dT = {window}", window=window
            )
            rows.append([row[-1] / zero for row in found.errors])
    return Result(trained=config.loops, windows=list(config.windows), lines=lines)


def claims(result: Result) -> list[Claim]:
    """With injection nothing grows, without it everything does, though less with a larger dT."""
    trained = {kind: [row[result.trained - 1] for row in rows] for kind, rows in result.lines.items()}
    grown = {kind: [row[-1] / row[result.trained - 1] for row in rows] for kind, rows in result.lines.items()}
    calm, bare = KINDS
    beside = [ours / theirs for ours, theirs in zip(grown[calm], grown[bare], strict=True)]
    grows = f"error after {len(result.lines[calm][0]) // result.trained} T loops over that after T"
    pair = f"dT = {result.windows[-1]} than with dT = {result.windows[0]}"
    found: list[tuple[str, float, Any, float]] = [
        (f"{calm} no error grows beyond T: the largest {grows} is below 1.5", max(grown[calm]), "<", 1.5),
        (f"{bare}: every error grows beyond T: the least {grows} is above 2", min(grown[bare]), ">", 2.0),
        (f"{calm} the error grows less than without, at every dT (largest ratio < 1)", max(beside), "<", 1.0),
        (f"{bare}: the error grows less with {pair} (ratio < 1)", grown[bare][-1] / grown[bare][0], "<", 1.0),
        (f"after T loops the best of {bare} is below the best {calm} (ratio of errors < 1)",
         min(trained[bare]) / min(trained[calm]), "<", 1.0),
    ]  # fmt: skip
    errors = tuple(e for row in trained.values() for e in row)
    return [
        Claim(text=text, source=SOURCE, measured=measured, sense=sense, bound=bound, errors=errors)
        for text, measured, sense, bound in found
    ]


def plot(result: Result) -> Figure:
    """Error against loops, a panel for each kind."""
    return plot_all([result])


def plot_all(results: Sequence[Result]) -> Figure:
    """The same of several seeds, a line for each."""
    first = results[0]
    fig, panels = axes(9.5, 3.9, columns=len(first.lines))
    one_scale(panels)
    width = 1.8 if len(results) == 1 else 1.0
    for ax, kind in zip(panels, first.lines, strict=True):
        for i, (window, colour) in enumerate(zip(first.windows, COLOURS, strict=False)):
            for result in results:
                shown = [v if v < 1e3 else float("nan") for v in result.lines[kind][i]]
                label = f"dT = {window}" if result is first else None
                ax.semilogy(range(1, len(shown) + 1), shown, color=colour, label=label, linewidth=width)
        ax.axvline(first.trained, color="#888888", linestyle=":", linewidth=0.8)
        ax.set(title=kind, xlabel="loops")
        key(ax)
    panels[0].set_ylabel("error / zero predictor's")
    return fig
