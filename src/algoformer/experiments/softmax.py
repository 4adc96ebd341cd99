"""Softmax models of AlgoFormer and Fu et al. as experiments train them: recipes by depth, loops and task.

Training them to where a comparison means something takes a GPU. The cpu presets load models that a gpu run has kept,
and say so where there is none; only what asks encoders in small trains them, in minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from algoformer.experiments.experiment import Site, assumed, stated
from algoformer.experiments.protocol import (
    PILOT,
    PILOT_SEED,
    RATES,
    VALIDATION,
    WATCHED,
    Measured,
    measured,
    pilot_site,
    watched,
    zeros,
)
from algoformer.models import AlgoFormerConfig, LoopedConfig, LSTMConfig, Model, TransformerConfig
from algoformer.task import Task
from algoformer.tasks import Autoregression, ChainOfThought, LinearRegression, Representation
from algoformer.training import Ramp, Recipe, TrainConfig


class Rate(NamedTuple):
    """A learning rate, and what its pilots came to: the mean error over positions, over the zero predictor's."""

    lr: float
    tried: dict[float, float]


AHEAD = 50  # steps whose prompts are drawn at once: as many launches as for one


@dataclass(frozen=True, kw_only=True)
class Softmax:
    """How a softmax model is trained and judged. One recipe for every kind of model, so that they can be compared."""

    d: int = stated(20)
    n: int = stated(40)
    width: int = stated(256)
    heads: int = assumed(8)
    steps: int = stated(500_000)
    batch: int = assumed(64)
    lr: float = stated(1e-4)
    cosine: bool = assumed(False)
    warmup: int = assumed(500)
    start_dims: int = assumed(5)
    prompts: int = assumed(1280)
    ema: float = assumed(0.0)  # of the weights: what is evaluated is their average
    rates: tuple[float, ...] = assumed(())  # to choose the learning rate from, by pilots; none: lr
    pilot: int = assumed(PILOT)
    train: bool = assumed(True)  # or only load what is kept

    def model(self, config: Any, task: Task[Any], site: Site, *, window: int | None = None) -> Model:
        """The trained model of a config on a task."""
        recipe = self.recipe(config, task, window=window, lr=self.rate(config, task, site, window=window).lr)
        return watched(recipe, site, fresh=self.train)

    def measured(
        self,
        config: Any,
        task: Task[Any],
        site: Site,
        *,
        loops: tuple[int, ...] = (),
        keep: bool = True,
        purpose: str = "",
        **how: Any,
    ) -> Measured:
        """The errors of a config on a task after training, and its learning curve."""
        recipe = self.recipe(config, task, **how)
        return measured(recipe, site, fresh=self.train, prompts=self.prompts, loops=loops, keep=keep, purpose=purpose)

    def rate(self, config: Any, task: Task[Any], site: Site, *, window: int | None = None) -> Rate:
        """The learning rate of a config on a task: the best of `rates` by pilots, or `lr` where there are none."""
        if not self.rates:
            return Rate(self.lr, {})
        zero = sum(zeros(task, WATCHED, VALIDATION))
        tried = {}
        for recipe in self.pilots(config, task, window=window):
            found = measured(
                recipe,
                pilot_site(site),
                fresh=self.train,
                prompts=WATCHED,
                seed=VALIDATION,
                keep=False,
                purpose="pilot",
            )
            tried[recipe.train.lr] = sum(found.errors[-1]) / zero
        return Rate(min(tried, key=lambda lr: tried[lr] if tried[lr] == tried[lr] else float("inf")), tried)

    def pilots(self, config: Any, task: Task[Any], *, window: int | None = None) -> list[Recipe]:
        """The trainings that choose the learning rate."""
        made = (self.recipe(config, task, window=window, lr=lr, steps=self.pilot) for lr in self.rates)
        return [replace(recipe, train=replace(recipe.train, seed=PILOT_SEED)) for recipe in made]

    def recipe(
        self,
        config: Any,
        task: Task[Any],
        *,
        window: int | None = None,
        lr: float | None = None,
        steps: int | None = None,
        cosine: bool | None = None,
        precision: Literal["auto", "tf32"] = "auto",
    ) -> Recipe:
        """How it is trained; the number of active inputs grows by the loss where there is one."""
        dims = Ramp(start=min(self.start_dims, self.d), stop=self.d) if hasattr(task, "active") else None
        steps = self.steps if steps is None else steps
        falling = self.cosine if cosine is None else cosine
        whole = config.loops if not getattr(config, "injection", True) else None  # or pre would never learn
        train = TrainConfig(
            steps=steps, batch=self.batch, lr=self.lr if lr is None else lr, warmup=self.warmup, ema=self.ema,
            schedule="cosine" if falling else "constant", window=window, gradient_loops=whole, dims=dims,
            precision=precision, log_every=min(50, steps), checkpoint_every=5000, ahead=AHEAD,
        )  # fmt: skip
        return Recipe(model=config, task=task, train=train)

    def sizes(self, task: Task[Any]) -> dict[str, Any]:
        """The sizes of a model for this task."""
        sizes: dict[str, Any] = {"features": self.d, "width": self.width, "heads": self.heads}
        if isinstance(task, Autoregression | ChainOfThought):
            sizes["labels"] = self.d
        if isinstance(task, ChainOfThought):
            sizes["positions"] = (task.n + 1) * (task.layers + 1)
        return sizes

    def algoformer(self, task: Task[Any], loops: int, **more: Any) -> AlgoFormerConfig:
        """Pre, loop and post of one layer each, unless said otherwise."""
        return AlgoFormerConfig(**(self.sizes(task) | {"loops": loops} | more))

    def looped(self, task: Task[Any], loops: int, *, layers: int = 1) -> LoopedConfig:
        """One layer, looped, unless there are more."""
        return LoopedConfig(**self.sizes(task), layers=layers, loops=loops)

    def standard(self, task: Task[Any], layers: int, **more: Any) -> TransformerConfig:
        """Layers without loops."""
        return TransformerConfig(**(self.sizes(task) | {"layers": layers} | more))

    def lstm(self, layers: int) -> LSTMConfig:
        """The recurrent baseline."""
        return LSTMConfig(features=self.d, width=self.width, layers=layers)

    def task(self, name: str, noise: float = 0.0) -> Task[Any]:
        """A task by its name in AlgoFormer's Figure 2, or linear regression."""
        if name == "representation":
            return Representation(d=self.d, n=self.n, noise=noise, dense=True)
        if name == "autoregression":
            return Autoregression(d=self.d, n=self.n, every=True)
        if name == "chain":
            return ChainOfThought(d=self.d, n=self.n, dense=True)
        return LinearRegression(d=self.d, n=self.n, noise=noise, dense=True)


@dataclass(frozen=True, kw_only=True)
class Encoders(Softmax):
    """On linear regression: encoders, which learn in small what takes a decoder a GPU; without queries decoders."""

    queries: int = assumed(0)  # of a prompt; 0: a decoder answers every label from the pairs before it

    def task(self, name: str, noise: float = 0.0) -> Task[Any]:
        if not self.queries:
            return super().task(name, noise)
        return LinearRegression(d=self.d, n=self.n, noise=noise, queries=self.queries)

    def sizes(self, task: Task[Any]) -> dict[str, Any]:
        return super().sizes(task) | ({"causal": False, "positions": 0} if self.queries else {})


# What one GPU does. COMPARED: a comparison, at a constant learning rate, of averaged weights. SHORT: our recipe for the
# models that Fu et al. ask. At a constant 3e-4 twelve layers come apart, and from five inputs on it can take them
# 50,000 steps to begin (`ours_headline`); from one on they begin sooner.
COMPARED: dict[str, Any] = {"steps": 60_000, "rates": RATES, "ema": 0.999, "prompts": 6400}
SHORT: dict[str, Any] = {"steps": 100_000, "lr": 3e-4, "cosine": True, "start_dims": 1}
SMALL: dict[str, Any] = {  # an encoder on one core of a CPU: 3 to 7 minutes
    "d": 5, "n": 10, "queries": 10, "width": 64, "heads": 4, "steps": 3000, "batch": 32, "lr": 1e-3, "cosine": True,
    "warmup": 100, "start_dims": 1, "ema": 0.99, "prompts": 6400,
}  # fmt: skip
TINY: dict[str, Any] = {
    "d": 2, "n": 4, "width": 8, "heads": 2, "steps": 3, "batch": 4, "warmup": 1, "start_dims": 1, "prompts": 8,
    "pilot": 2,
}  # fmt: skip


def stored(config: Any) -> Any:
    """The same experiment without training: models come from those kept."""
    return replace(config, train=False)
