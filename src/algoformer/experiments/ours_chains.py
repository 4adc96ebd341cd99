"""AlgoFormer project, how near to Bayes: the models of Figure 2c of Gao et al. on chains of thought, by chains seen.

The Bayes predictor is the mean of the next state given the chains, so an error is its error plus the squared distance
to it. Least squares on the links, then the nonlinearity, is where the construction of Theorem 3.3 tends; with few
chains it is not Bayes, since the mean of leaky(W s) is not leaky of the mean. Nothing is trained here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from algoformer.algorithm import On
from algoformer.experiments import algoformer2024_fig2c as chains
from algoformer.experiments.comparison import above, by_seed, race
from algoformer.experiments.drawing import COLOURS, axes, key, whole_numbers
from algoformer.experiments.experiment import Claim, Site, assumed
from algoformer.experiments.protocol import tested
from algoformer.experiments.softmax import stored
from algoformer.solvers import LeastSquares, Links
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
SHOWN = (0, 1, 2, 5, 10, 15, 19)  # chains seen, in the table


@dataclass(frozen=True, kw_only=True)
class Config(chains.Config):
    """The three models, and how many chains are few."""

    few: int = assumed(5)

    def recipes(self) -> Iterator[Recipe]:
        yield from ()  # those of Figure 2c


PAPER = Config(**vars(chains.PAPER))
GPU = CPU = stored(Config(**vars(chains.GPU)))
SMOKE = Config(**vars(chains.SMOKE), few=2)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Errors over the zero predictor's by chains seen, in the mean over states: of Bayes, least squares and models.

    `above` has how far each model is above Bayes at the end.
    """

    few: int
    bayes: list[float]
    straight: list[float]
    models: dict[str, list[float]]
    above: dict[str, float]

    def distance(self, errors: Sequence[float]) -> list[float]:
        """The squared distance to Bayes, by chains seen."""
        return [error - best for error, best in zip(errors, self.bayes, strict=True)]


def run(config: Config, site: Site) -> Result:
    """Read what the models answered; least squares on the same prompts."""
    task: Any = config.subject
    raced = race(config, site)
    solver = On(LeastSquares(), Links(slope=task.slope))
    straight = tested(solver, task, prompts=config.prompts, device=site.device)[-1]
    zero = [sum(v) for v in zip(*raced.zero, strict=True)]

    def relative(by_state: Sequence[Sequence[float]]) -> list[float]:
        return [sum(v) / z for v, z in zip(zip(*by_state, strict=True), zero, strict=True)]

    return Result(
        few=config.few,
        bayes=relative(raced.oracle),
        straight=relative([straight[i :: task.layers] for i in range(task.layers)]),
        models={name: relative(errors) for name, errors in raced.errors.items()},
        above={name: above(raced, name) for name in raced.errors},
    )


def claims(result: Result) -> list[Claim]:
    """Every model is nearer to Bayes than least squares while it has seen few chains, and farther at the end."""
    made = []
    for name, errors in result.models.items():
        pairs = zip(result.distance(errors), result.distance(result.straight), strict=True)
        ratios = [mine / other for mine, other in pairs]
        learned: dict[str, Any] = {"source": "ours", "bound": 1.0, "errors": (result.above[name],)}
        made += [
            Claim(
                text=f"with at most {result.few} chains seen {name} is nearer to the Bayes predictor than least "
                "squares on the links (largest ratio of squared distances below 1)",
                measured=max(ratios[: result.few + 1]),
                sense="<",
                **learned,
            ),
            Claim(
                text=f"with all chains seen {name} is farther (ratio above 1)",
                measured=ratios[-1],
                sense=">",
                **learned,
            ),
        ]
    return made


def plot(result: Result) -> Figure:
    """Errors, and distances to Bayes."""
    return plot_all([result])


def plot_all(results: Sequence[Result]) -> Figure:
    """The same of several seeds, a line for each."""
    fig, (left, right) = axes(11.0, 4.0, columns=2)
    first = results[0]
    seen = range(len(first.bayes))
    thin = {"linewidth": 1.8 if len(results) == 1 else 1.0}
    left.plot(seen, first.bayes, ":", color="#888888", label="Bayes")
    for ax, line in ((left, first.straight), (right, first.distance(first.straight))):
        ax.plot(seen, line, "--", color="#888888", label="least squares on the links")
    for name, colour in zip(first.models, COLOURS, strict=False):
        for result in results:
            label, errors = name if result is first else None, result.models[name]
            left.plot(seen, errors, color=colour, label=label, **thin)
            right.plot(seen, result.distance(errors), color=colour, label=label, **thin)
    left.set(xlabel="chains seen", ylabel="error / zero predictor's", yscale="log")
    right.set(xlabel="chains seen", ylabel="squared distance to Bayes / zero predictor's", yscale="log")
    for ax in (left, right):
        whole_numbers(ax)
        key(ax)
    return fig


def numbers(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Errors by chains seen; of the models by seed."""
    first = results[0]
    shown = [n for n in SHOWN if n < len(first.bayes)]
    rows = [[name, *(f"{line[n]:.3g}" for n in shown)] for name, line in
            (("Bayes", first.bayes), ("least squares on the links", first.straight))]  # fmt: skip
    for name in first.models:
        rows.append([name, *(by_seed(r.models[name][n] for r in results) for n in shown)])
    return ["error after so many chains", *map(str, shown)], rows
