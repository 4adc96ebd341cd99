"""The tour in small: minutes on two cores, a table in the terminal and a page with pictures at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.provenance import provenance
from algoformer.report.page import COLOURS, Section, axes, figure, legend, page, table
from algoformer.solvers import (
    ConjugateGradient,
    GradientDescent,
    LeastSquares,
    NearestNeighbours,
    Nesterov,
    Newton,
    Ridge,
)
from algoformer.tasks import HalfAndHalf, LinearRegression

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Chapter:
    """A picture and a table, with the words around them."""

    name: str
    title: str
    text: str
    picture: Figure
    caption: str
    columns: list[str]
    rows: list[list[Any]]

    @property
    def section(self) -> Section:
        """The chapter on the page."""
        return Section(self.title, self.text, [figure(self.picture, self.caption), table(self.columns, self.rows)])


@dataclass(frozen=True)
class Result:
    """Where the page is, and what it says."""

    page: Path
    chapters: list[Chapter]

    @property
    def numbers(self) -> dict[str, Any]:
        """All tables by the name of their chapter, with where they come from."""
        tables = {c.name: [dict(zip(c.columns, row, strict=True)) for row in c.rows] for c in self.chapters}
        return tables | {"provenance": provenance()}


def run(out: Path, *, seed: int = 0, progress: Progress | None = None) -> Result:
    """Write `out`/index.html and a picture for each chapter, and give what they show."""
    out.mkdir(parents=True, exist_ok=True)
    report = progress or (lambda done, total, what: None)
    chapters: list[Chapter] = []
    for i, (what, chapter) in enumerate(CHAPTERS):
        report(i, len(CHAPTERS), what)
        chapters.append(chapter(torch.Generator().manual_seed(seed)))
        chapters[-1].picture.savefig(out / f"{chapters[-1].name}.png", dpi=160, bbox_inches="tight")
    report(len(CHAPTERS), len(CHAPTERS), "done")
    origin = provenance()
    html = page(
        "Algorithms in context",
        "Every solver here sees a prompt of examples and answers a query, as a transformer would: a first state, a "
        "step, a reading. This page was made by `algoformer demo`.",
        [c.section for c in chapters],
        f"Seed {seed}, commit {origin['commit']}, torch {origin['versions']['torch']}, {origin['device']}.",
    )
    target = out / "index.html"
    draft = target.with_suffix(".tmp")
    draft.write_text(html, encoding="utf-8")
    draft.replace(target)
    return Result(target, chapters)


def _race(g: torch.Generator) -> Chapter:
    racers: dict[str, Algorithm[Any, Any]] = {
        "gradient descent": GradientDescent(),
        "Nesterov": Nesterov(),
        "conjugate gradients": ConjugateGradient(),
        "Newton, from S": Newton(),
        "Newton, from I": Newton(start="I"),
        "Newton of order 3, from I": Newton(start="I", order=3),
    }
    problems = {
        "isotropic inputs": LinearRegression(),
        "condition number 100": LinearRegression(covariance=HalfAndHalf()),
    }
    fig, panels = axes(10.5, 3.9, columns=2)
    steps: dict[str, list[str]] = {name: [] for name in racers}
    for ax, (title, task) in zip(panels, problems.items(), strict=True):
        sample = task.sample(256, g, torch.float64)
        for (name, racer), colour in zip(racers.items(), COLOURS, strict=False):
            error = _error(racer.trace(sample.prompt, 60), sample.target, sample.target)
            ax.semilogy(error.clamp(min=1e-16), color=colour, label=name)
            steps[name] += [_first(error, eps) for eps in (1e-2, 1e-6)]
        ax.set(title=title, xlabel="step", ylim=(1e-13, 3), xlim=(0, 60))
    panels[0].set_ylabel("error / zero predictor's")
    legend(fig, panels[0])
    return Chapter(
        "race",
        "A race, step by step",
        "256 noiseless linear problems with 40 examples in 20 dimensions. First-order methods need steps in proportion "
        "to the condition number or its root, Newton's iteration in proportion to its logarithm (Fu et al. 2024; "
        "Giannou et al. 2024).",
        fig,
        "Squared error after each step, relative to the zero predictor; mean over 256 prompts.",
        ["steps to", "1e-2, isotropic", "1e-6, isotropic", "1e-2, condition 100", "1e-6, condition 100"],
        [[name, *found] for name, found in steps.items()],
    )


def _contexts(g: torch.Generator) -> Chapter:
    noise = 0.5
    sample = LinearRegression(n=40, noise=noise, dense=True).sample(256, g, torch.float64)
    racers: dict[str, Algorithm[Any, Any]] = {
        "ridge (Bayes)": Ridge(strength=noise**2),
        "least squares": LeastSquares(),
        "Newton, 12 steps": Newton(steps=12),
        "gradient descent, 12 steps": GradientDescent(steps=12),
        "3 nearest neighbours": NearestNeighbours(),
    }
    fig, (ax,) = axes(8.6, 4.0)
    rows: list[list[Any]] = []
    for (name, racer), colour in zip(racers.items(), COLOURS, strict=False):
        answers = racer.predict(sample.prompt)
        error = (answers - sample.truth.clean).square().mean((0, 2)) / sample.truth.clean.square().mean()
        ax.plot(error, color=colour, label=name)
        rows.append([name, *(float(error[n]) for n in (5, 10, 20, 40))])
    ax.set(xlabel="examples in the prompt", ylabel="error / zero predictor's", ylim=(0, 2), xlim=(0, 40))
    legend(fig, ax)
    return Chapter(
        "context",
        "How much context is enough",
        f"Solvers asked at every prefix of a prompt with label noise {noise}: one `Dense` prompt, 41 answers. Least "
        "squares suffers most where there are as many examples as dimensions; an iteration stopped early is a kind of "
        "ridge.",
        fig,
        "Error of the clean label against the number of examples; mean over 256 prompts.",
        ["error with", "5 examples", "10", "20", "40"],
        rows,
    )


CHAPTERS: list[tuple[str, Callable[[torch.Generator], Chapter]]] = [
    ("racing the solvers", _race),
    ("growing the context", _contexts),
]


def _error(trace: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    return (trace - target).square().mean((1, 2, 3)) / scale.square().mean()


def _first(error: Tensor, eps: float) -> str:
    below = (error < eps).nonzero()
    return str(int(below[0])) if len(below) else f"> {len(error) - 1}"
