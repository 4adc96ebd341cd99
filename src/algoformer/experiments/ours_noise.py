"""AlgoFormer project, noise: models that never saw noise in training are asked with it, loop by loop.

Linear regression at 40 examples. An iterative solver that is stopped early is regularised: with noise it passes a least
error on its way to that of least squares. So do trained loops; but they do not end at least squares. Nothing is trained
here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from algoformer.experiments import ours_headline as headline
from algoformer.experiments.answers import kept
from algoformer.experiments.comparison import by_seed
from algoformer.experiments.drawing import COLOURS, above, label_rows, legend, panels, whole_numbers
from algoformer.experiments.experiment import Claim, Site, assumed
from algoformer.experiments.protocol import oracles, tested, watched, zeros
from algoformer.experiments.softmax import stored
from algoformer.solvers import ConjugateGradient, LeastSquares
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 2
SHADES = (COLOURS[4], COLOURS[1], COLOURS[5], COLOURS[0])  # short and long, of looped and AlgoFormer
EXACT = 1e-7  # of the zero predictor's error: what is below is not drawn


@dataclass(frozen=True, kw_only=True)
class Config(headline.Config):
    """The standard deviations of the noise; 0 is that of training."""

    noises: tuple[float, ...] = assumed((0.0, 0.3, 1.0, 3.0))

    def runs(self, site: Site) -> dict[str, Recipe]:
        """The trainings: short ones of `ours_linear`, and long ones of the headline."""
        asked = itertools.product(("looped", "AlgoFormer"), (self.short, self.steps))
        return {f"{name}, {steps:,} steps": self.chosen(name, site, steps) for name, steps in asked}

    def recipes(self) -> Iterator[Recipe]:
        yield from ()  # those of ours_linear and the headline

    @property
    def told(self) -> str:
        """The steps, as the title says them."""
        return f"{self.short:,} and {self.steps:,} steps"


PAPER = Config()
GPU = CPU = stored(Config(**vars(headline.GPU) | {"prompts": 1280}))
SMOKE = Config(**vars(headline.SMOKE) | {"short": 2}, noises=(0.0, 1.0))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Errors at the last position before noise, over the zero predictor's, by noise.

    Those of models and of conjugate gradients are by loop or step, from 0 on.
    """

    models: dict[str, dict[str, list[float]]]
    conjugate: dict[str, list[float]]
    exact: dict[str, float]
    oracle: dict[str, float]


def run(config: Config, site: Site) -> Result:
    """Ask every model, or its kept answers, and the solvers on the same prompts."""
    tasks = {f"{noise:g}": config.task("linear", noise) for noise in config.noises}
    loops = range(config.loops + 1)
    zero = {noise: zeros(task, config.prompts)[-1] for noise, task in tasks.items()}
    models: dict[str, dict[str, list[float]]] = {noise: {} for noise in tasks}

    def asked(algorithm: Any, noise: str, steps: Sequence[int] = loops) -> list[float]:
        found = tested(algorithm, tasks[noise], prompts=config.prompts, device=site.device, loops=steps, last=True)
        return [line[-1] / zero[noise] for line in found]

    for name, recipe in config.runs(site).items():

        def make(recipe: Recipe = recipe) -> dict[str, torch.Tensor]:
            model = watched(recipe, site, fresh=config.train)
            return {"errors": torch.tensor([asked(model, noise) for noise in tasks])}

        sizes = config.prompts, config.loops, *(round(1e3 * noise) for noise in config.noises)
        lines = kept("noise", recipe, sizes, site, make)["errors"].tolist()
        for noise, line in zip(tasks, lines, strict=True):
            models[noise][name] = line
    return Result(
        models=models,
        conjugate={noise: asked(ConjugateGradient(steps=config.loops), noise) for noise in tasks},
        exact={noise: asked(LeastSquares(), noise, ())[-1] for noise in tasks},
        oracle={noise: oracles(tasks[noise], site, config.prompts)[-1] / zero[noise] for noise in tasks},
    )


def claims(result: Result) -> list[Claim]:
    """With noise fewer loops are better, all of them are worse than least squares, and more training makes it worse."""
    clean, *noisy = result.models
    made = []

    def claim(text: str, measured: float, sense: Any, bound: float, *names: str) -> None:
        errors = tuple(result.models[clean][name][-1] for name in names)
        made.append(Claim(text=text, source="ours", measured=measured, sense=sense, bound=bound, errors=errors))

    for name, clear in result.models[clean].items():
        noised = [result.models[noise][name] for noise in noisy]
        best = max(line.index(min(line)) for line in noised)
        claim(f"{name}, any noise: the loop of the least error comes before the last", best, "<", len(clear) - 1, name)
        least = min(result.models[noise][name][-1] / result.exact[noise] for noise in noisy)
        text = f"{name}, any noise: after the last loop the error is above that of least squares (least ratio)"
        claim(text, least, ">", 1.0, name)
    names = list(result.models[clean])
    for short, long in zip(names[::2], names[1::2], strict=True):
        for noise, lines in result.models.items():
            text = f"noise {noise}: {long} against {short}, after the last loop (ratio of errors)"
            claim(text, lines[long][-1] / lines[short][-1], "<" if noise == clean else ">", 1.0, short, long)
    return made


def plot(result: Result) -> Figure:
    """A panel for each noise."""
    return plot_all([result])


def plot_all(results: Sequence[Result]) -> Figure:
    """The same of several seeds, a line for each."""
    first = results[0]
    fig, found = panels(len(first.models), beside=2.6)
    thin = {"linewidth": 1.8 if len(results) == 1 else 1.0}
    for ax, (noise, lines) in zip(found, first.models.items(), strict=True):
        for name, colour in zip(lines, SHADES, strict=True):
            for result in results:
                label = name if result is first else None
                ax.plot(result.models[noise][name], color=colour, label=label, **thin)
        ax.plot(first.conjugate[noise], "--", color="#888888", label="conjugate gradients")
        for name, error, style in (("least squares", first.exact, ":"), ("oracle", first.oracle, "-.")):
            ax.axhline(error[noise], linestyle=style, color="#888888", linewidth=1.2, label=name)
        ax.set(xlabel="loops or steps", yscale="log", title=f"noise {noise}")
        above(ax, EXACT)
        whole_numbers(ax)
    label_rows(found, "error / zero predictor's")
    legend(fig, found[-1])
    return fig


def numbers(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Of models by seed: the error after the last loop, and the least with its loop; the solvers beside them."""
    first = results[0]

    def least(line: Sequence[float]) -> str:
        return f"{min(line):.3g} at {line.index(min(line))}"

    rows = []
    for name in next(iter(first.models.values())):
        lines = [[r.models[noise][name] for r in results] for noise in first.models]
        rows.append([f"{name}: after all loops", *(by_seed(line[-1] for line in of) for of in lines)])
        rows.append([f"{name}: least, and its loop", *(", ".join(map(least, of)) for of in lines)])
    rows.append(["conjugate gradients: least, and its step", *map(least, first.conjugate.values())])
    for name, errors in (("least squares", first.exact), ("oracle", first.oracle)):
        rows.append([name, *(f"{v:.3g}" for v in errors.values())])
    return ["error at noise", *first.models], rows
