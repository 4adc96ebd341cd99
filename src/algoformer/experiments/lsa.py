"""Linear self-attention networks as Giannou et al. 2024 train them, and small ones that a CPU trains in a minute.

A curriculum over dimensions sets inputs to 0; that of their code truncates the weights alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.experiments.answers import kept
from algoformer.experiments.experiment import Site, assumed, coded, stated
from algoformer.experiments.protocol import TEST, Zero
from algoformer.experiments.trained import made
from algoformer.models import LinearSelfAttentionConfig
from algoformer.tasks import Conditioned, Isotropic, LinearRegression
from algoformer.training import Evaluation, Ramp, Recipe, TrainConfig, evaluate

EACH = 16  # test prompts that share their inputs' covariance


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Models of several depths, each trained on its own. kappa = 1 is N(0, I), as in the authors' code."""

    d: int = stated(10)
    n: int = stated(50)
    layers: tuple[int, ...] = stated((1, 2, 3, 4, 5, 6))
    heads: int = stated(4)
    width: int | None = stated(64)
    scratch: int = coded(10)
    hidden: bool = coded(False)  # is the query hidden from the keys?
    mean: bool = coded(False)
    clip: float | None = coded(10.0)
    init: float | None = coded(2e-4)
    steps: int = coded(100_000)
    batch: int = coded(2000)
    lr: float = coded(1e-4)
    final_lr: float = coded(5e-5)
    warmup: int = coded(10_000)
    gradient_clip: float = coded(10.0)
    second_beta: float = coded(0.999)
    robust: float | None = coded(None)
    ema: float = coded(0.0)
    curriculum: bool = coded(True)
    norm: bool = stated(False)
    prompts: int = coded(1000)
    train: bool = assumed(True)  # or only load what is kept

    def task(self, kappa: float, noise: float = 0.0) -> LinearRegression:
        """Linear regression with inputs of this condition number."""
        covariance = Isotropic() if kappa == 1 else Conditioned(kappa=kappa, shared=True)
        return LinearRegression(d=self.d, n=self.n, covariance=covariance, noise=noise)

    def model(self, layers: int, task: LinearRegression, site: Site) -> Algorithm[Any, Any]:
        """The trained model of a depth; one whose training diverged has learned nothing, and says 0."""
        return made(self.recipe(layers, task), site, fresh=self.train).model or Zero()

    def tested(
        self, algorithm: Algorithm[Any, Any], task: LinearRegression, site: Site, steps: Sequence[int] | None = None
    ) -> Evaluation:
        """On prompts that are the same for all, every `EACH` of them with a covariance of their own."""
        return evaluate(
            algorithm, task, prompts=self.prompts, steps=steps, seed=TEST, batch=EACH, device=site.device, portable=True
        )

    def errors(self, layers: int, task: LinearRegression, site: Site) -> tuple[float, float]:
        """Mean and median error of the trained model of a depth over the zero predictor's."""

        def make() -> dict[str, Tensor]:
            found = self.tested(self.model(layers, task, site), task, site)
            return {"errors": torch.tensor([found.last, found.median[-1][-1] / found.zero])}

        mean, median = kept("errors", self.recipe(layers, task), (self.prompts,), site, make)["errors"].tolist()
        return mean, median

    def recipes(self) -> Iterator[Recipe]:
        """All trainings; of those with one condition number."""
        for layers in self.layers:
            yield self.recipe(layers, self.task(self.kappa))  # type: ignore[attr-defined]

    def recipe(self, layers: int, task: LinearRegression) -> Recipe:
        """How the model of a depth is trained."""
        model = LinearSelfAttentionConfig(
            features=self.d, layers=layers, heads=self.heads, width=self.width, scratch=self.scratch,
            hidden=self.hidden, mean=self.mean, norm=self.norm, clip=self.clip, init=self.init,
        )  # fmt: skip
        ramps: dict[str, Any] = {}
        if self.curriculum:
            pace = max(self.steps // 20, 1)  # 5,000 in the authors' code
            ramps["dims"] = Ramp(start=2, stop=self.d, every=pace)
            ramps["examples"] = Ramp(start=10, stop=self.n, by=5, every=pace)
        train = TrainConfig(
            steps=self.steps, batch=self.batch, optimiser="adam", lr=self.lr, final_lr=self.final_lr,
            betas=(0.9, self.second_beta), warmup=self.warmup, clip=self.gradient_clip, robust=self.robust,
            ema=self.ema, precision="fp32", **ramps,
        )  # fmt: skip
        return Recipe(model=model, task=task, train=train)


# What one GPU does: a fifth of the steps, at a higher rate and from larger weights, which learn sooner. Without norm a
# few prompts carry the squared loss, and as inputs are added two and three layers lose what they had learned; with the
# logarithm of 1 + loss / 10 they keep it (`tests/test_training_quality.py`).
NORMED_MEDIUM: dict[str, Any] = {
    "layers": (1, 3, 6, 12), "steps": 20_000, "warmup": 2000, "lr": 5e-4, "init": 0.02, "prompts": 6400,
}  # fmt: skip
MEDIUM: dict[str, Any] = NORMED_MEDIUM | {
    "layers": (1, 2, 3, 4, 6), "lr": 2e-4, "final_lr": 0.0, "ema": 0.999, "robust": 10.0,
}  # fmt: skip
SMALL: dict[str, Any] = {
    "d": 5, "n": 20, "layers": (1, 2, 3, 4), "heads": 2, "width": None, "scratch": 0, "hidden": True, "mean": True,
    "clip": None, "init": None, "steps": 800, "batch": 512, "lr": 0.01, "final_lr": 0.0, "warmup": 100,
    "gradient_clip": 1.0, "second_beta": 0.99, "robust": 0.05, "ema": 0.99, "curriculum": False,
}  # fmt: skip
TINY: dict[str, Any] = SMALL | {"d": 3, "n": 8, "layers": (1, 2), "steps": 6, "batch": 16, "warmup": 2, "prompts": 64}
