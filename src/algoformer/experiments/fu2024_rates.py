"""Fu et al. 2024, Table of rates: steps to an accuracy against the condition number.

Gradient descent needs O(kappa log 1/eps) steps, Newton's iteration O(log kappa + log log 1/eps). Counted on problems
whose X'X has an exact spectrum: half of the eigenvalues 1, half 1/kappa.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from algoformer.experiments.drawing import COLOURS, axes, legend
from algoformer.experiments.experiment import Claim, Site, assumed
from algoformer.prompt import Prompt
from algoformer.solvers import ConjugateGradient, GradientDescent, Newton

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 1
SOURCE = "Table of rates"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Two clusters of eigenvalues; the table itself states no sizes."""

    d: int = assumed(8)
    kappas: tuple[float, ...] = assumed((10.0, 100.0, 1000.0, 10000.0))
    accuracies: tuple[float, ...] = assumed((1e-2, 1e-4, 1e-8, 1e-12))
    middle: float = assumed(1e-8)


PAPER = Config()
GPU = CPU = replace(PAPER, kappas=(10.0, 30.0, 100.0, 300.0, 1000.0))
SMOKE = replace(PAPER, d=4, kappas=(10.0, 30.0, 100.0))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Steps by algorithm, against kappa at the middle accuracy, and against the accuracy at kappa = 100."""

    kappas: list[float]
    accuracies: list[float]
    by_kappa: dict[str, list[int]]
    by_accuracy: dict[str, list[int]]


def run(config: Config, site: Site) -> Result:
    """Count the steps of each solver until |w - w*|^2 / |w*|^2 is below the accuracy."""
    g = site.generator()
    racers = {
        "gradient descent": GradientDescent(gradient="sum"),
        "Newton, from S": Newton(),
        "Newton, from I": Newton(start="I"),
        "conjugate gradients": ConjugateGradient(),
    }
    by_kappa: dict[str, list[int]] = {name: [] for name in racers}
    by_accuracy: dict[str, list[int]] = {}
    for kappa in config.kappas:
        prompt, w = _problem(config.d, kappa, g)
        for name, racer in racers.items():
            by_kappa[name].append(_steps(racer, prompt, w, [config.middle])[0])
            if kappa == 100.0:
                by_accuracy[name] = _steps(racer, prompt, w, list(config.accuracies))
    return Result(
        kappas=list(config.kappas), accuracies=list(config.accuracies), by_kappa=by_kappa, by_accuracy=by_accuracy
    )


def _problem(d: int, kappa: float, g: torch.Generator) -> tuple[Prompt, torch.Tensor]:
    """X with the singular values 1 and kappa^-1/2 in random bases, one query for each coordinate of w."""
    u, _ = torch.linalg.qr(torch.randn(2 * d, d, generator=g, dtype=torch.float64))
    v, _ = torch.linalg.qr(torch.randn(d, d, generator=g, dtype=torch.float64))
    values = torch.ones(d, dtype=torch.float64)
    values[d // 2 :] = kappa**-0.5
    x = (u * values) @ v.mT
    w = v.sum(1, keepdim=True)  # the same share of every eigenvector
    return Prompt(x[None], (x @ w)[None], torch.eye(d, dtype=torch.float64)[None]), w


def _steps(racer: object, prompt: Prompt, w: torch.Tensor, accuracies: list[float]) -> list[int]:
    found: list[int] = []
    for t, state in enumerate(racer.states(prompt, 10**7)):  # type: ignore[attr-defined]
        error = float((state.w[0] - w).square().sum() / w.square().sum())
        while len(found) < len(accuracies) and error < accuracies[len(found)]:
            found.append(t)
        if len(found) == len(accuracies):
            return found
    return found


def claims(result: Result) -> list[Claim]:
    """The exponents of the table."""
    x = [math.log2(k) for k in result.kappas]
    descent = _slope(x, [math.log2(v) for v in result.by_kappa["gradient descent"]])
    newton = _slope(x, [float(v) for v in result.by_kappa["Newton, from S"]])
    identity = _slope(x, [float(v) for v in result.by_kappa["Newton, from I"]])
    first, *_, last = result.by_accuracy["Newton, from S"]
    slow = result.by_accuracy["gradient descent"]
    return [
        Claim(
            text="gradient descent's steps grow like kappa: exponent within 0.1 of 1",
            source=SOURCE,
            measured=abs(descent - 1),
            sense="<",
            bound=0.1,
            exact=True,
        ),
        Claim(
            text="Newton's steps grow like log kappa: a doubling of kappa costs at most 2.3 steps",
            source=SOURCE,
            measured=newton,
            sense="<",
            bound=2.3,
            exact=True,
        ),
        Claim(
            text="started from a multiple of I, a doubling costs at most 1.3 steps",
            source="ours",
            measured=identity,
            sense="<",
            bound=1.3,
            exact=True,
        ),
        Claim(
            text="Newton's steps grow like log log 1/eps: from the first accuracy to the last at most 4 more",
            source=SOURCE,
            measured=float(last - first),
            sense="<",
            bound=4.5,
            exact=True,
        ),
        Claim(
            text="gradient descent's grow like log 1/eps: the last accuracy costs more than 4 times the first",
            source=SOURCE,
            measured=slow[-1] / slow[0],
            sense=">",
            bound=4.0,
            exact=True,
        ),
    ]


def _slope(x: list[float], y: list[float]) -> float:
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


def plot(result: Result) -> Figure:
    """Steps against kappa, and against the accuracy."""
    fig, (left, right) = axes(10.5, 3.9, columns=2)
    for (name, steps), colour in zip(result.by_kappa.items(), COLOURS, strict=False):
        left.loglog(result.kappas, steps, "o-", color=colour, label=name)
        right.loglog(result.accuracies, result.by_accuracy[name], "o-", color=colour)
    left.set(xlabel="condition number", ylabel="steps", title="steps to 1e-8")
    right.set(xlabel="accuracy", title="steps at condition number 100")
    right.invert_xaxis()
    legend(fig, left)
    return fig
