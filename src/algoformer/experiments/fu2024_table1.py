"""Fu et al. 2024, Table 1: an LSTM is like online gradient descent, a transformer like Newton's iteration.

Similarity of errors of both models with three algorithms, each at its best step; the paper has .991 / .957 / .806 for
the transformer and .920 / .916 / .954 for the LSTM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from algoformer import analysis
from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, coded, stated
from algoformer.experiments.layers import model_answers
from algoformer.experiments.softmax import SHORT, TINY, Softmax, stored
from algoformer.solvers import GradientDescent, Newton, OnlineGradientDescent
from algoformer.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 3
SOURCE = "Table 1"


@dataclass(frozen=True, kw_only=True)
class Config(Softmax):
    """A transformer and an LSTM on linear regression."""

    layers: int = stated(12)
    lstm_layers: int = stated(10)
    newton: int = coded(23)
    descent: int = coded(4096)
    eta: float = coded(0.01)
    prompts: int = coded(320)

    def recipes(self) -> Iterator[Recipe]:
        """All trainings."""
        task = self.task("linear")
        yield self.recipe(self.standard(task, self.layers), task)
        yield self.recipe(self.lstm(self.lstm_layers), task)


PAPER = Config()
GPU = Config(**SHORT)
CPU = stored(GPU)
SMOKE = Config(**TINY, layers=2, lstm_layers=1, newton=4, descent=8)


@dataclass(frozen=True, kw_only=True)
class Result:
    """By model and algorithm: similarity at the best step, on prompts that did not choose it; and errors."""

    similarity: dict[str, dict[str, float]]
    errors: dict[str, float]
    zero: dict[str, float]


def run(config: Config, site: Site) -> Result:
    """Match the answers of both models with three families."""
    task = config.task("linear")
    models = {
        "transformer": model_answers(config, config.standard(task, config.layers), task, site),
        "LSTM": model_answers(config, config.lstm(config.lstm_layers), task, site),
    }
    descent = sorted({round(2 ** (e / 2)) for e in range(40) if 2 ** (e / 2) <= config.descent})
    families = {
        "Newton": [analysis.Candidate(Newton(scale="frobenius"), list(range(config.newton + 1)))],
        "gradient descent": [
            analysis.Candidate(GradientDescent(eta=config.eta, gradient="sum", form="spectral"), descent)
        ],
        "online gradient descent": [
            analysis.Candidate(OnlineGradientDescent(eta=eta), [config.n]) for eta in ("kaczmarz", 0.01, 0.03)
        ],
    }
    similarity: dict[str, dict[str, float]] = {}
    errors: dict[str, float] = {}
    zero: dict[str, float] = {}
    for name, found in models.items():
        answer, target = found.answers, found.prompt.y
        errors[name] = float(found.errors[-1])
        zero[name] = float(analysis.null_similarity(answer, target, site.generator()).zero.mean())
        similarity[name] = {
            family: float(analysis.match(answer, list(c), found.prompt, target).similarity.value[0])
            for family, c in families.items()
        }
    return Result(similarity=similarity, errors=errors, zero=zero)


def claims(result: Result) -> list[Claim]:
    """Who is most like whom."""
    t, r = result.similarity["transformer"], result.similarity["LSTM"]
    able = tuple(result.errors.values())
    return [
        Claim(
            text="the transformer is more like Newton than like gradient descent",
            source=SOURCE,
            measured=t["Newton"] - t["gradient descent"],
            sense=">",
            bound=0.0,
            errors=able,
        ),
        Claim(
            text="the transformer is more like Newton than like online gradient descent",
            source=SOURCE,
            measured=t["Newton"] - t["online gradient descent"],
            sense=">",
            bound=0.0,
            errors=able,
        ),
        Claim(
            text="the LSTM is more like online gradient descent than like Newton",
            source=SOURCE,
            measured=r["online gradient descent"] - r["Newton"],
            sense=">",
            bound=0.0,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """Bars by model and algorithm, with the zero predictor's as lines."""
    fig, (ax,) = axes(8.0, 3.8)
    families = list(next(iter(result.similarity.values())))
    for i, (family, colour) in enumerate(zip(families, COLOURS, strict=False)):
        places = [j + 0.25 * (i - 1) for j in range(len(result.similarity))]
        ax.bar(places, [row[family] for row in result.similarity.values()], 0.22, color=colour, label=family)
    for j, value in enumerate(result.zero.values()):
        ax.plot([j - 0.4, j + 0.4], [value, value], color="#888888", linestyle=":")
    ax.set_xticks(range(len(result.similarity)), list(result.similarity))
    ax.set(ylabel="similarity of errors (dotted: zero predictor)", ylim=(0, 1.05))
    legend(fig, ax)
    return fig
