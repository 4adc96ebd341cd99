"""Giannou et al. 2024, Figures 1 and 7: logistic regression, transformer layers beside steps of Newton's method.

A softmax encoder is trained to give the weights that Newton's method finds for the regularised logistic loss. By the
construction a step takes 13 layers; trained, the transformer is said to be ahead of that within a few layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from algoformer.experiments.drawing import COLOURS, axes, key
from algoformer.experiments.experiment import Claim, Site, assumed, coded, stated
from algoformer.experiments.softmax import stored
from algoformer.experiments.trained import trained
from algoformer.models import TransformerConfig
from algoformer.prompt import Prompt
from algoformer.solvers import DampedNewton
from algoformer.task import Sample, Task, Truth
from algoformer.tasks import LogisticRegression
from algoformer.training import Recipe, TrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVISION = 2
SOURCE = "Figure 7"


@dataclass(frozen=True, kw_only=True)
class Config:
    """One model for each depth. The authors' code has mu = 0.01 and width 256 where the text has 0.1 and 32."""

    d: int = stated(5)
    n: int = stated(26)
    mu: float = stated(0.1)
    width: int = stated(32)
    heads: int = stated(4)
    layers: tuple[int, ...] = coded((1, 6, 12, 15, 20))
    newton: int = coded(30)
    steps: int = coded(1000)
    batch: int = assumed(64)
    lr: float = coded(1e-4)
    final_lr: float = coded(5e-5)
    ahead: int = assumed(100)  # steps whose prompts are drawn, and solved by Newton's method, at once
    layers_a_step: int = stated(13)
    prompts: int = assumed(1000)
    train: bool = assumed(True)  # or only load what is kept

    @property
    def task(self) -> Weights:
        """What is asked."""
        return Weights(d=self.d, n=self.n, mu=self.mu, newton=self.newton)

    def recipes(self) -> Iterator[Recipe]:
        """All trainings, one for each depth."""
        for layers in self.layers:
            model = TransformerConfig(
                features=self.d, positions=0, width=self.width, heads=self.heads, layers=layers, causal=False,
                activation="relu",
            )  # fmt: skip
            train = TrainConfig(
                steps=self.steps, batch=self.batch, lr=self.lr, final_lr=self.final_lr, warmup=0, optimiser="adam",
                log_every=min(50, self.steps), ahead=self.ahead,
            )  # fmt: skip
            yield Recipe(model=model, task=self.task, train=train)


PAPER = Config()
GPU = Config(steps=20_000, lr=1e-3, final_lr=0.0, layers=(1, 6, 12, 20, 40))
CPU = stored(GPU)
SMOKE = Config(d=2, n=4, width=8, heads=2, layers=(1, 2), newton=4, steps=3, batch=4, prompts=8)


@dataclass(frozen=True, kw_only=True)
class Weights(Task[Prompt]):
    """Asks the weights that Newton's method ends with, one query for each: the basis vectors."""

    d: int
    n: int
    mu: float
    newton: int

    def sample(self, batch: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Sample[Prompt]:
        drawn = LogisticRegression(d=self.d, n=self.n).sample(batch, generator, dtype)
        basis = torch.eye(self.d, dtype=dtype, device=generator.device).expand(batch, -1, -1)
        prompt = Prompt(drawn.prompt.x, drawn.prompt.y, basis, check=False)
        w = DampedNewton(mu=self.mu, steps=self.newton, damping="backtracking").predict(prompt)
        return Sample(prompt, w, Truth(w, drawn.truth.latent))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Regularised logistic loss by layers and by Newton steps; and the squared error of the weights, over theirs."""

    layers: list[int]
    loss: list[float]
    error: list[float]
    newton: list[float]
    zero: float
    layers_a_step: int


def run(config: Config, site: Site) -> Result:
    """Train or load one encoder for each depth, and put its weights into the loss."""
    task = config.task
    fresh = torch.Generator(site.device).manual_seed(10**6 + site.seed)
    sample = task.sample(config.prompts, fresh)
    loss, error = [], []
    for recipe in config.recipes():
        made = trained(recipe, site, fresh=config.train)
        with torch.no_grad():
            w = made.predict(sample.prompt)
        loss.append(_loss(sample.prompt, w, config.mu))
        error.append(float((w - sample.target).square().mean() / sample.target.square().mean()))
    steps = DampedNewton(mu=config.mu, damping="backtracking").trace(
        sample.prompt, max(config.layers) // config.layers_a_step + 2
    )
    return Result(
        layers=list(config.layers),
        loss=loss,
        error=error,
        newton=[_loss(sample.prompt, w, config.mu) for w in steps],
        zero=float(torch.tensor(2.0).log()),
        layers_a_step=config.layers_a_step,
    )


def _loss(p: Prompt, w: Tensor, mu: float) -> float:
    """Mean over prompts of mean_i log(1 + exp(-y_i <a_i, w>)) + mu |w|^2 / 2."""
    fit = torch.nn.functional.softplus(-p.y * (p.x @ w)).mean((1, 2))
    return float((fit + mu / 2 * w.square().sum((1, 2))).mean())


def claims(result: Result) -> list[Claim]:
    """Ahead of the construction, and better with depth."""
    able = (result.error[-1],)
    second = result.layers[1]
    return [
        Claim(
            text=f"{second} layers have a lower loss than a step of Newton's method, {result.layers_a_step} layers "
            "(difference below 0)",
            source="Figures 1, 7",
            measured=result.loss[1] - result.newton[1],
            sense="<",
            bound=0.0,
            errors=able,
        ),
        Claim(
            text="the error of the weights falls with depth: deepest over shallowest below 1",
            source=SOURCE,
            measured=result.error[-1] / result.error[0],
            sense="<",
            bound=1.0,
            errors=able,
        ),
    ]


def plot(result: Result) -> Figure:
    """Loss above where Newton's method ends, its steps stretched to 13 layers each, and the error of the weights."""
    fig, (left, right) = axes(10, 3.8, columns=2)
    least = result.newton[-1]
    seen = 1e-7  # of a loss in float32
    gaps, others = ([max(v - least, seen) for v in losses] for losses in (result.loss, result.newton))
    left.semilogy(result.layers, gaps, "o-", color=COLOURS[0], label="transformer")
    words = f"Newton, {result.layers_a_step} layers a step"
    left.semilogy([result.layers_a_step * t for t in range(len(others))], others, "s--", color=COLOURS[1], label=words)
    left.axhline(seen, color="#888888", linestyle="--", linewidth=0.8, label="float32 sees no less")
    left.axhline(result.zero - least, color="#888888", linestyle=":", label="zero weights")
    left.set(xlabel="layers", ylabel=f"logistic loss above its least, {least:.4f}")
    key(left)
    right.semilogy(result.layers, result.error, "o-", color=COLOURS[0])
    right.set(xlabel="layers", ylabel="error of the weights / their size")
    return fig
