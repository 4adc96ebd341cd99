"""AlgoFormer project, who computes the representation: linear probes for phi in the models of Figure 2 of Gao et al.

There pre is to compute phi and the loop to regress on it. What every loop and layer takes in is asked for phi(x) in a
regression, and for phi of the last three values in a series. Nothing is trained here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from algoformer.experiments.answers import kept
from algoformer.experiments.comparison import Comparison, above, by_seed, race
from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, assumed
from algoformer.experiments.protocol import watched
from algoformer.experiments.softmax import COMPARED, TINY, stored
from algoformer.training import Recipe, represented

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
PROBLEMS = ("representation", "autoregression")
MOST = 0.9  # of what a model ever knows of phi


@dataclass(frozen=True, kw_only=True)
class Config(Comparison):
    """The three models on both problems."""

    probed: int = assumed(256)  # prompts that a probe is fitted on, and as many that judge it

    def recipes(self) -> Iterator[Recipe]:
        yield from ()  # those of Figure 2


PAPER = Config()
GPU = CPU = stored(Config(**COMPARED))
SMOKE = Config(**TINY, loops=2, window=1, layers=2)


@dataclass(frozen=True, kw_only=True)
class Result:
    """By problem and model: R² for phi by layers passed, and how far the error is above the oracle's.

    `inputs` is the R² from the inputs of phi. The first state of AlgoFormer has passed its pre.
    """

    inputs: dict[str, float]
    passed: dict[str, list[int]]  # the same for all problems
    model: dict[str, dict[str, list[float]]]
    untrained: dict[str, dict[str, list[float]]]
    above: dict[str, dict[str, float]]


def run(config: Config, site: Site) -> Result:
    """Probe every model, or read what its probes found."""
    parts: dict[str, dict[str, Any]] = {name: {} for name in ("inputs", "model", "untrained", "above")}
    for problem in PROBLEMS:
        here = replace(config, problem=problem)
        found = {name: _probed(here, name, site) for name in here.entrants}
        raced = race(here, site)
        parts["inputs"][problem] = float(found["AlgoFormer"]["inputs"])
        for part in ("model", "untrained"):
            parts[part][problem] = {name: one[part].tolist() for name, one in found.items()}
        parts["above"][problem] = {name: above(raced, name) for name in found}
    begun = {name: getattr(e.model, "pre", 0) for name, e in config.entrants.items()}
    lengths = {name: len(line) for name, line in parts["model"][PROBLEMS[0]].items()}
    return Result(passed={name: list(range(b, b + lengths[name])) for name, b in begun.items()}, **parts)


def _probed(config: Config, name: str, site: Site) -> dict[str, Tensor]:
    task: Any = config.subject
    recipe = config.chosen(name, site)

    def make() -> dict[str, Tensor]:
        model = watched(recipe, site, fresh=config.train).cpu()
        return {part: torch.tensor(v) for part, v in vars(represented(model, task, config.probed)).items()}

    return kept("represented", recipe, (config.probed,), site, make)


def claims(result: Result) -> list[Claim]:
    """Pre computes phi, before the loop; and who knows more of it errs less."""
    made = []
    for problem, lines in result.model.items():
        line, inputs, errors = lines["AlgoFormer"], result.inputs[problem], result.above[problem]
        unknown = {name: -scores[-1] for name, scores in lines.items()}
        for text, measured, bound in (
            ("after pre a linear probe knows more of phi than from the inputs of phi", line[0] - inputs, 0.0),
            ("pre knows most of what AlgoFormer ever knows of phi: R² after it over the largest",
             line[0] / max(line), MOST),
            ("who knows more of phi at the end is nearer to the oracle: pairs in that order, of all",
             _ordered(unknown, errors), 0.99),
        ):  # fmt: skip
            made.append(
                Claim(
                    text=f"{problem}: {text}",
                    source="ours",
                    measured=measured,
                    sense=">",
                    bound=bound,
                    errors=tuple(errors.values()),
                )
            )
    return made


def _ordered(first: dict[str, float], second: dict[str, float]) -> float:
    """The share of pairs of names that two tables put in the same order."""
    pairs = [(a, b) for a in first for b in first if a < b]
    return sum((first[a] < first[b]) == (second[a] < second[b]) for a, b in pairs) / len(pairs)


def plot(result: Result) -> Figure:
    """A panel for each problem."""
    return plot_all([result])


def plot_all(results: Sequence[Result]) -> Figure:
    """The same of several seeds, a line for each."""
    fig, panels = axes(12.6, 4.0, columns=len(PROBLEMS))
    thin = {"linewidth": 1.8 if len(results) == 1 else 1.0}
    for ax, problem in zip(panels, PROBLEMS, strict=True):
        first = results[0]
        ax.axhline(first.inputs[problem], color="#888888", linestyle=":", label="from the inputs of phi")
        for (name, passed), colour in zip(first.passed.items(), COLOURS, strict=False):
            ax.plot(passed, first.untrained[problem][name], "--", color=colour, alpha=0.5, linewidth=1.0)
            for result in results:
                label = name if result is first else None
                ax.plot(passed, result.model[problem][name], "o-", color=colour, ms=3, label=label, **thin)
        ax.set(xlabel="layers passed, a loop counted each time (dashed: untrained)", title=problem, ylim=(0.0, 1.02))
    panels[0].set_ylabel("R² of linear probes for phi")
    legend(fig, panels[0])
    return fig


def numbers(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """R² of every model where it begins, at its best and at its end, beside its error; by seed."""
    columns = ["problem", "model", "R² first", "largest", "at the end", "untrained, at the end", "above the oracle"]
    rows = []
    for problem in PROBLEMS:
        for name in results[0].passed:
            lines, others = ([getattr(r, part)[problem][name] for r in results] for part in ("model", "untrained"))
            parts = [
                [line[0] for line in lines],
                [max(line) for line in lines],
                [line[-1] for line in lines],
                [line[-1] for line in others],
                [r.above[problem][name] for r in results],
            ]
            rows.append([problem, name, *map(by_seed, parts)])
    return columns, rows
