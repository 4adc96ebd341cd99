"""How models are compared: what is the same for all, how each is measured, and what counts as below.

Models of a comparison see the same prompts in the same order (data are a function of seed and step) with the same
batch, optimiser, precision, steps and curriculum. Each has the best of three learning rates, by a short pilot with a
seed that no other run uses. All are tested, in float32 and after their last step, on the same prompts, drawn on the CPU
from a seed that no training uses. Errors are per label coordinate and before noise, over the zero predictor's; beside
them stands the excess over the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.experiments.answers import kept
from algoformer.experiments.experiment import Site
from algoformer.experiments.trained import Made, made, trained
from algoformer.models import Model
from algoformer.task import Task
from algoformer.training import Recipe, Watch, evaluate
from algoformer.training.evaluation import final

RATES = (1e-4, 3e-4, 1e-3)
PILOT = 10_000  # steps
PILOT_SEED = 1_000_000  # of the training of pilots
VALIDATION, TEST = 2_000_001, 2_000_002  # of prompts; no training has these seeds
WATCHED = 640  # prompts of the learning curve
LOOKS, APART = 30, 1000  # points of the learning curve at most, and steps between them at least
OUTCOMES = ("finished", "stuck", "diverged")
FLAT = 0.1  # of the error, over the last third of the steps
LEAST = 1e-9  # of the zero predictor: two models at the oracle are equally good


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What became of a training: errors before noise by loop or layer and asked position, and the learning curve.

    The curve is that of the prompts of validation: steps, the error at the last position, and the mean over positions.
    A run that diverged has the error of the zero predictor, also at the end of its curve: it counts, as one that
    learned nothing.
    """

    outcome: str
    loops: list[int]
    errors: list[list[float]]
    steps: list[int]
    last: list[float]
    mean: list[float]


def measured(
    recipe: Recipe,
    site: Site,
    *,
    fresh: bool,
    prompts: int,
    loops: Sequence[int] = (),
    seed: int = TEST,
    keep: bool = True,
    purpose: str = "",
) -> Measured:
    """Train a model if it is not kept, and measure it after each of `loops` (none: its own number).

    What was measured is kept, and with `keep` the model too.
    """
    task = recipe.task

    def make() -> dict[str, Tensor]:
        curve = watch(task, recipe.train.steps, site)
        found = made(recipe, site, fresh=fresh, keep=keep, watch=curve, purpose=purpose)
        points = [[row["step"], row["last"], row["mean"]] for row in found.log if row.get("event") == "error"]
        if found.model is None:
            nothing = zeros(task, WATCHED, VALIDATION)
            points.append([recipe.train.steps, final(task, nothing), sum(nothing) / len(nothing)])
        return {
            "outcome": torch.tensor([float(OUTCOMES.index(found.outcome))]),
            "errors": torch.tensor(_errors(found, task, prompts, loops, seed, site)),
            "curve": torch.tensor(points).reshape(-1, 3),
        }

    found = kept("measured", recipe, (prompts, seed, *loops), site, make)
    steps, last, mean = found["curve"].T.tolist()
    return Measured(
        outcome=OUTCOMES[int(found["outcome"])],
        loops=list(loops),
        errors=found["errors"].tolist(),
        steps=[round(s) for s in steps],
        last=last,
        mean=mean,
    )


def watch(task: Task[Any], steps: int, site: Site) -> Watch:
    """The learning curve of a run, on a few prompts of validation."""

    def look(model: Model) -> dict[str, float]:
        found = tested(model, task, prompts=WATCHED, seed=VALIDATION, device=site.device)
        return {"last": final(task, found[-1]), "mean": sum(found[-1]) / len(found[-1])}

    return Watch(every=max(steps // LOOKS, min(APART, steps // 10), 1), look=look)


def watched(recipe: Recipe, site: Site, *, fresh: bool) -> Model:
    """The model of a recipe, kept with the learning curve that a comparison may ask of it."""
    return trained(recipe, site, fresh=fresh, watch=watch(recipe.task, recipe.train.steps, site))


def tested(
    model: Any,
    task: Task[Any],
    *,
    prompts: int,
    seed: int = TEST,
    device: str = "cpu",
    loops: Sequence[int] = (),
    last: bool = False,
) -> list[list[float]]:
    """Squared errors before noise, by loop, in the order of `loops`, and position."""
    steps: Any = list(loops) or None
    found = evaluate(
        model, task, prompts=prompts, steps=steps, seed=seed, device=device, clean=True, portable=True, last=last
    )
    return [found.mean[found.steps.index(loop)] for loop in steps or found.steps]


def _errors(
    found: Made, task: Task[Any], prompts: int, loops: Sequence[int], seed: int, site: Site
) -> list[list[float]]:
    if found.model is None:
        return [zeros(task, prompts, seed)] * max(len(loops), 1)
    return tested(found.model, task, prompts=prompts, seed=seed, device=site.device, loops=loops)


def zeros(task: Task[Any], prompts: int, seed: int = TEST) -> list[float]:
    """The squared errors of the zero predictor before noise, by position: the mean squares of what is asked."""
    return evaluate(Zero(), task, prompts=prompts, seed=seed, clean=True).zeros


def oracles(task: Task[Any], site: Site, prompts: int, seed: int = TEST) -> list[float]:
    """The squared errors of the oracle before noise, by position, on the prompts that models are tested on; kept."""

    def make() -> dict[str, Tensor]:
        return {"errors": torch.tensor(tested(oracle, task, prompts=prompts, seed=seed)[-1])}

    if (oracle := task.oracle) is None:
        return [0.0] * len(zeros(task, 1, seed))
    found: list[float] = kept("oracle", task, (prompts, seed), site, make)["errors"].tolist()
    return found


@dataclass(frozen=True)
class Zero(Algorithm[Any, Tensor]):
    """Says 0 to everything."""

    steps: ClassVar[int] = 0  # type: ignore[misc]
    limit: ClassVar[int] = 0  # type: ignore[misc]

    def prepare(self, p: Any) -> Any:
        return p

    def init(self, p: Any) -> Tensor:
        some = next(v for v in vars(p).values() if isinstance(v, Tensor))
        return some.new_zeros(p.asked)

    def step(self, p: Any, s: Tensor, t: int) -> Tensor:
        raise ValueError("Zero is a closed form and has no step")

    def read(self, p: Any, s: Tensor) -> Tensor:
        return s


def at(curve: tuple[Sequence[int], Sequence[float]], step: float) -> float:
    """The error of a learning curve at a step: between its points on a line of the logarithms."""
    steps, errors = curve
    if step <= steps[0]:
        return errors[0]
    for (a, x), (b, y) in zip(zip(steps, errors, strict=True), zip(steps[1:], errors[1:], strict=True), strict=False):
        if step <= b:
            share = math.log(step / a) / math.log(b / a)
            return math.exp((1 - share) * math.log(max(x, 1e-30)) + share * math.log(max(y, 1e-30)))
    return errors[-1]


def reached(curve: tuple[Sequence[int], Sequence[float]], error: float) -> int | None:
    """The first step of a learning curve at which it is at most so large; None if it never is."""
    return next((step for step, value in zip(*curve, strict=True) if value <= error), None)


def fall(curve: tuple[Sequence[int], Sequence[float]]) -> float:
    """The share of the error that the last third of the steps took away; below `FLAT` the curve has flattened."""
    steps, errors = curve
    positive = steps, [max(error, LEAST) for error in errors]  # one without noise may be rounding about 0
    return 1 - positive[1][-1] / at(positive, 2 / 3 * steps[-1])


@dataclass(frozen=True)
class PowerLaw:
    """error = scale * steps^-exponent, fitted to the logarithms."""

    scale: float
    exponent: float

    @classmethod
    def of(cls, steps: Sequence[float], errors: Sequence[float]) -> PowerLaw:
        """Least squares on the logarithms."""
        x = torch.tensor(steps, dtype=torch.float64).log()
        y = torch.tensor(errors, dtype=torch.float64).log()
        slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
        return cls(float((y.mean() - slope * x.mean()).exp()), -float(slope))

    def steps(self, error: float) -> float:
        """Where it comes to an error: infinite if it does not fall."""
        power = math.log(self.scale / error) / self.exponent if self.exponent > 0 else math.inf
        return math.exp(power) if power < 100 else math.inf


def pilot_site(site: Site) -> Site:
    """The seed of pilots, the same for every run."""
    return replace(site, seed=PILOT_SEED)
