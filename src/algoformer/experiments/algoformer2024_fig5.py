"""Gao et al. 2024, Figure 5: AlgoFormer beside gradient descent and Newton's method on linear regression.

Without noise AlgoFormer is ahead in the first steps and stops near 1e-3, where Newton's method goes on to rounding;
with noise it is said to be better than both. The cpu preset asks the same in small, of encoders that a CPU trains in
minutes: what it finds is no claim of the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, assumed, stated
from algoformer.experiments.protocol import tested, zeros
from algoformer.experiments.softmax import COMPARED, SMALL, TINY, Encoders
from algoformer.solvers import GradientDescent, Newton, Ridge
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 5
SOURCE = "Figure 5"
RIVALS = {"gradient descent": GradientDescent(), "Newton": Newton()}


@dataclass(frozen=True, kw_only=True)
class Config(Encoders):
    """One model for each (T, dT) and noise."""

    pairs: tuple[tuple[int, int], ...] = stated(((20, 15), (10, 10)))
    noises: tuple[float, ...] = assumed((0.0, 0.1, 1.0))
    longest: int = assumed(30)
    layers: int = assumed(12)  # of the standard transformer, which is trained in both precisions
    precisions: tuple[str, ...] = assumed(())

    @property
    def surely(self) -> Config:
        """How the standard transformer is trained, so that there is something to compare: see `softmax.SHORT`."""
        return replace(self, start_dims=1, cosine=True)

    def recipes(self) -> Iterator[Recipe]:
        """The trainings, pilots first."""
        calm, (count, window) = self.task("linear"), self.pairs[0]
        yield from self.pilots(self.algoformer(calm, count), calm, window=window)
        if self.precisions:
            yield from self.pilots(self.standard(calm, self.layers), calm)
        for noise in self.noises:
            for loops, last in self.pairs:
                yield self.recipe(self.algoformer(calm, loops), self.task("linear", noise), window=last)
        for precision in self.precisions:
            yield self.surely.recipe(self.standard(calm, self.layers), calm, precision=precision)  # type: ignore[arg-type]


PAPER = Config()
GPU = Config(**COMPARED, precisions=("auto", "tf32"))
CPU = Config(**SMALL)
SMOKE = Config(**TINY, pairs=((3, 2),), noises=(0.0, 0.5), longest=4, layers=1, precisions=("auto", "tf32"))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error at the last position before noise over the zero predictor's, by noise, algorithm and step; and ridge's.

    `standard` has the standard transformer without noise by the precision of its training. An `encoder` is not the
    paper's model.
    """

    encoder: bool
    longest: int
    trained: list[int]
    lines: dict[str, dict[str, list[float]]]
    ridge: dict[str, float]
    standard: dict[str, float]


def run(config: Config, site: Site) -> Result:
    """Every step of every algorithm on the same prompts. Learning rates are chosen without noise."""
    steps = tuple(range(1, config.longest + 1))
    lines: dict[str, dict[str, list[float]]] = {}
    ridge: dict[str, float] = {}
    calm, (count, window) = config.task("linear"), config.pairs[0]
    rate = config.rate(config.algoformer(calm, count), calm, site, window=window).lr
    for noise in config.noises:
        task = config.task("linear", noise)
        name, zero = f"noise {noise:g}", zeros(task, config.prompts)[-1]
        lines[name] = {}
        for loops, last in config.pairs:
            found = config.measured(
                config.algoformer(task, loops), task, site, loops=steps, purpose=name, window=last, lr=rate
            )
            lines[name][f"AlgoFormer ({loops}, {last})"] = [row[-1] / zero for row in found.errors]
        for title, solver in RIVALS.items():
            known = tested(solver, task, prompts=config.prompts, loops=steps, last=True)
            lines[name][title] = [row[-1] / zero for row in known]
        best = tested(Ridge(strength=max(noise**2, 1e-12)), task, prompts=config.prompts, last=True)
        ridge[name] = best[-1][-1] / zero
    standard: dict[str, float] = {}
    for precision in config.precisions:
        shape = config.standard(calm, config.layers)
        lr = config.rate(shape, calm, site).lr
        found = config.surely.measured(shape, calm, site, purpose=f"standard, {precision}", lr=lr, precision=precision)
        standard[precision] = found.errors[-1][-1] / zeros(calm, config.prompts)[-1]
    trained = [p[0] for p in config.pairs]
    return Result(
        encoder=config.queries > 0, longest=config.longest, trained=trained, lines=lines, ridge=ridge, standard=standard
    )


def claims(result: Result) -> list[Claim]:
    """Ahead of both early, behind Newton late without noise; ahead of both with the largest noise."""
    source, noises = "ours" if result.encoder else SOURCE, list(result.lines)
    calm, loud = result.lines[noises[0]], result.lines[noises[-1]]
    ours = next(iter(calm))
    end = min(result.trained[0], result.longest) - 1
    early = min(4, end)
    able = (calm[ours][end],)
    both = [result.standard[p] for p in ("auto", "tf32") if p in result.standard]
    precision = (
        [
            Claim(
                text="the standard transformer in bf16 ends within 20 % of one in TF32 (|log ratio| < 0.18)",
                source="ours",
                measured=abs(math.log(both[0] / both[1])),
                sense="<",
                bound=math.log(1.2),
                errors=tuple(both),
            )
        ]
        if len(both) == 2
        else []
    )
    return [
        *(
            Claim(
                text=f"without noise AlgoFormer is ahead of {rival} after 5 steps (ratio of errors below 1)",
                source=source,
                measured=calm[ours][early] / calm[rival][early],
                sense="<",
                bound=1.0,
                errors=able,
            )
            for rival in RIVALS
        ),
        Claim(
            text="without noise Newton is far ahead at the end (ratio of errors above 10)",
            source=source,
            measured=calm[ours][end] / calm["Newton"][-1],
            sense=">",
            bound=10.0,
            errors=able,
        ),
        Claim(
            text="without noise AlgoFormer stops near 1e-3: between 1e-4 and 1e-2, |log10 + 3| below 1",
            source=source,
            measured=abs(math.log10(calm[ours][end]) + 3),
            sense="<",
            bound=1.0,
            errors=able,
        ),
        *(
            Claim(
                text=f"with the largest noise it is better than {rival} at the end (ratio of errors below 1)",
                source=source,
                measured=loud[ours][end] / loud[rival][-1],
                sense="<",
                bound=1.0,
                errors=(loud[ours][end],),
            )
            for rival in RIVALS
        ),
        Claim(
            text="with the largest noise it is better than either at its best step (ratio of errors below 1)",
            source="ours",
            measured=loud[ours][end] / min(min(loud[rival]) for rival in RIVALS),
            sense="<",
            bound=1.0,
            errors=(loud[ours][end],),
        ),
        *precision,
    ]


def plot(result: Result) -> Figure:
    """One panel a noise."""
    return plot_all([result])


def plot_all(results: Sequence[Result]) -> Figure:
    """The same of several seeds, a line for each; the solvers have no seed."""
    first = results[0]
    fig, panels = axes(4.0 * len(first.lines) + 2.4, 3.9, columns=len(first.lines))
    width = 1.8 if len(results) == 1 else 1.0
    for ax, name in zip(panels, first.lines, strict=True):
        for kind, colour in zip(first.lines[name], COLOURS, strict=False):
            for result in results[:1] if kind in RIVALS else results:
                line = [max(v, 1e-14) for v in result.lines[name][kind]]
                label = kind if result is first else None
                ax.semilogy(range(1, len(line) + 1), line, color=colour, label=label, linewidth=width)
        ax.axhline(max(first.ridge[name], 1e-14), color="#888888", linestyle=":", label="ridge (Bayes)")
        ax.set(title=name, xlabel="loops or steps")
    panels[0].set_ylabel("error / zero predictor's")
    legend(fig, panels[0])
    return fig
