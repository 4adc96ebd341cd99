"""Softmax models of AlgoFormer and Fu et al. as experiments train them: recipes by depth, loops and task.

Training them to where a comparison means something takes a GPU. The cpu presets train nothing: they load models that a
gpu run has kept, and say so where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from algoformer.experiments.experiment import Site, assumed, stated
from algoformer.experiments.trained import trained
from algoformer.models import AlgoFormerConfig, LoopedConfig, LSTMConfig, Model, TransformerConfig
from algoformer.task import Task
from algoformer.tasks import Autoregression, ChainOfThought, LinearRegression, Representation
from algoformer.training import Ramp, Recipe, TrainConfig


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
    train: bool = assumed(True)  # or only load what is kept

    def model(self, config: Any, task: Task[Any], site: Site, *, window: int | None = None) -> Model:
        """The trained model of a config on a task."""
        return trained(self.recipe(config, task, window=window), site, fresh=self.train)

    def recipe(self, config: Any, task: Task[Any], *, window: int | None = None) -> Recipe:
        """How it is trained; the number of active inputs grows by the loss where there is one."""
        dims = Ramp(start=min(self.start_dims, self.d), stop=self.d) if hasattr(task, "active") else None
        train = TrainConfig(
            steps=self.steps, batch=self.batch, lr=self.lr, warmup=self.warmup,
            schedule="cosine" if self.cosine else "constant", window=window, dims=dims,
            log_every=min(50, self.steps),
        )  # fmt: skip
        return Recipe(model=config, task=task, train=train)

    def sizes(self, task: Task[Any]) -> dict[str, Any]:
        """The sizes of a model for this task."""
        sizes: dict[str, Any] = {"features": self.d, "width": self.width, "heads": self.heads}
        if isinstance(task, Autoregression | ChainOfThought):
            sizes["labels"] = self.d
        if isinstance(task, ChainOfThought):
            sizes["positions"] = (self.n + 1) * (task.layers + 1)
        return sizes

    def algoformer(self, task: Task[Any], loops: int, **more: Any) -> AlgoFormerConfig:
        """Pre, loop and post of one layer each, unless said otherwise."""
        return AlgoFormerConfig(**(self.sizes(task) | {"loops": loops} | more))

    def looped(self, task: Task[Any], loops: int) -> LoopedConfig:
        """One layer, looped."""
        return LoopedConfig(**self.sizes(task), loops=loops)

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


# What one GPU does in minutes a model: our shorter recipe, 24,000 steps at 3e-4 with a cosine.
SHORT: dict[str, Any] = {"steps": 24_000, "lr": 3e-4, "cosine": True}
TINY: dict[str, Any] = {
    "d": 2, "n": 4, "width": 8, "heads": 2, "steps": 3, "batch": 4, "warmup": 1, "start_dims": 1, "prompts": 8,
}  # fmt: skip


def stored(config: Any) -> Any:
    """The same experiment without training: models come from those kept."""
    return replace(config, train=False)
