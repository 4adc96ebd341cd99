"""AlgoFormer project, outside of training: trained models on other prompts than they were trained on.

Models of the headline on linear regression with other numbers of examples, fewer inputs, scaled inputs, inputs of
condition number 10 and noise; beside them the oracle of each. AlgoFormer is that of the short recipe: the long one,
asked with noise, is in `ours_noise`. Nothing is trained here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from algoformer.experiments import ours_headline as headline
from algoformer.experiments.answers import kept
from algoformer.experiments.drawing import COLOURS, above, label_rows, legend, panels
from algoformer.experiments.experiment import Claim, Site, assumed
from algoformer.experiments.protocol import oracles, tested, watched, zeros
from algoformer.experiments.softmax import stored
from algoformer.tasks import HalfAndHalf, LinearRegression, ScaledInputs
from algoformer.training import Recipe
from algoformer.training.evaluation import final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 5
NAMES = (headline.BETTER, "looped", headline.SURER)


@dataclass(frozen=True, kw_only=True)
class Config(headline.Config):
    """Values of each shift; the first of each is as in training."""

    examples: tuple[int, ...] = assumed((40, 10, 20, 30, 60, 100))
    inputs: tuple[int, ...] = assumed((20, 15, 10, 5, 2))
    scales: tuple[float, ...] = assumed((1.0, 1 / 3, 0.5, 2.0, 3.0))
    kappas: tuple[float, ...] = assumed((1.0, 10.0))
    noises: tuple[float, ...] = assumed((0.0, 0.1, 0.3, 1.0, 3.0))

    def shifts(self) -> dict[str, dict[str, Any]]:
        """The tasks, by shift and value."""
        task = LinearRegression(d=self.d, n=self.n, dense=True)
        return {
            "examples": {str(n): replace(task, n=n) for n in self.examples},
            "inputs": {str(d): replace(task, active=d) for d in self.inputs},
            "scale of x": {f"{s:.3g}": task if s == 1 else ScaledInputs(task, scale=s) for s in self.scales},
            "kappa": {
                f"{k:g}": task if k == 1 else replace(task, covariance=HalfAndHalf(condition=k)) for k in self.kappas
            },
            "noise": {f"{s:g}": replace(task, noise=s) for s in self.noises},
        }

    def recipes(self) -> Iterator[Recipe]:
        yield from ()  # those of the headline


PAPER = Config()
GPU = CPU = stored(Config(**vars(headline.GPU) | {"prompts": 1280}))
SMOKE = Config(
    **vars(headline.SMOKE), examples=(4, 2, 6), inputs=(2, 1), scales=(1.0, 2.0), kappas=(1.0, 10.0), noises=(0.0, 1.0)
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Error at the last position over the zero predictor's: by shift, value and model, the oracle among them."""

    errors: dict[str, dict[str, dict[str, float]]]


def run(config: Config, site: Site) -> Result:
    """Ask every model, or its kept answers."""
    task, shifts = config.subject, config.shifts()
    errors: dict[str, dict[str, dict[str, float]]] = {
        shift: {v: {} for v in values} for shift, values in shifts.items()
    }
    flat = [(shift, value, other) for shift, values in shifts.items() for value, other in values.items()]
    for name in NAMES:
        recipe = config.chosen(name, site)

        def make(recipe: Recipe = recipe) -> dict[str, torch.Tensor]:
            model = watched(recipe, site, fresh=config.train)
            found = [tested(model, other, prompts=config.prompts, device=site.device)[-1] for *_, other in flat]
            return {"errors": torch.tensor([final(task, line) for line in found])}

        numbers = (config.prompts, *config.examples, *config.inputs, *config.scales, *config.kappas, *config.noises)
        found = kept("outside", recipe, [round(1e3 * v) for v in numbers], site, make)["errors"]
        for (shift, value, other), error in zip(flat, found.tolist(), strict=True):
            errors[shift][value][name] = error / zeros(other, config.prompts)[-1]
    for shift, value, other in flat:
        errors[shift][value]["oracle"] = oracles(other, site, config.prompts)[-1] / zeros(other, config.prompts)[-1]
    return Result(errors=errors)


def claims(result: Result) -> list[Claim]:
    """Within a factor of ten of the error of training where the range of training is not left, and not beyond it."""
    made = []
    for name in NAMES:
        for shift, values in result.errors.items():
            first, *others = values
            base = values[first][name]
            made.append(
                Claim(
                    text=f"{name}, {shift} other than {first}: the largest error is below 10 times that of training "
                    "or the oracle's own",
                    source="ours",
                    measured=max(values[v][name] / max(base, values[v]["oracle"]) for v in others),
                    sense="<",
                    bound=10.0,
                    errors=(base,),
                )
            )
    return made


def plot(result: Result) -> Figure:
    """A panel for each shift."""
    fig, found = panels(len(result.errors), beside=1.8)
    for ax, (shift, values) in zip(found, result.errors.items(), strict=True):
        order = sorted(values, key=float)
        for name, colour in zip((*NAMES, "oracle"), (*COLOURS[:3], "#888888"), strict=True):
            style = ":" if name == "oracle" else "o-"
            ax.semilogy([float(v) for v in order], [values[v][name] for v in order], style, color=colour, label=name)
        ax.set(xlabel=shift)
        above(ax, 1e-7)
    label_rows(found, "error / zero predictor's")
    legend(fig, found[0])
    return fig
