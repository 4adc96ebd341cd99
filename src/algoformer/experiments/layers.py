"""What each layer of a trained transformer knows: a linear read-out for every layer (Fu et al. 2024, Section 4).

The read-outs are fitted in closed form on other prompts of the same task, one for all positions, as Fu et al. retrain
theirs by gradient descent; like theirs, that of the last layer sees the stream behind the model's norm, the others see
it as it is. What the layers say on fixed prompts is kept, so that figures need no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from algoformer.algorithm import Algorithm
from algoformer.analysis import induced_trace
from algoformer.analysis.probe import Probe, fit
from algoformer.experiments.answers import kept
from algoformer.experiments.experiment import Site
from algoformer.experiments.softmax import Softmax
from algoformer.models import Model
from algoformer.prompt import Dense
from algoformer.task import Task

MORE = 8  # fitted on as many prompts as are read, a read-out of 256 numbers is worse than the model's own


@dataclass(frozen=True, eq=False)
class Read:
    """Dense prompts in float64, and answers [t b o k]: of every layer, the embedding first, or of the model alone."""

    prompt: Dense
    answers: Tensor

    @property
    def errors(self) -> Tensor:
        """Squared error at the last position over the zero predictor's, by layer."""
        target = self.prompt.y
        return (self.answers - target)[:, :, -1].square().mean((1, 2)) / target[:, -1].square().mean()


@dataclass(frozen=True, eq=False)
class Weighed:
    """Dense prompts, the weights that layers 1, 2, .. induce from the first i = 1..n pairs, and how linear they are."""

    prompt: Dense
    w: Tensor
    linearity: Tensor


def layer_answers(settings: Softmax, config: Any, task: Task[Any], site: Site) -> Read:
    """The answers of every layer of a trained model, each by its own read-out."""

    def make(model: Model) -> dict[str, Tensor]:
        return {"answers": read_layers(model, task, settings.prompts, site).answers}

    prompt, found = _kept("read", settings, (settings.prompts,), config, task, site, make)
    return Read(prompt, found["answers"])


def model_answers(settings: Softmax, config: Any, task: Task[Any], site: Site) -> Read:
    """The answers of a trained model itself."""

    def make(model: Model) -> dict[str, Tensor]:
        return {"answers": model(fixed(task, settings.prompts, site).to(device=site.device))[None]}

    prompt, found = _kept("model", settings, (settings.prompts,), config, task, site, make)
    return Read(prompt, found["answers"])


def layer_weights(settings: Softmax, prompts: int, config: Any, task: Task[Any], site: Site) -> Weighed:
    """The weights that every layer of a trained model induces, on the first `prompts` of the fixed ones."""

    def make(model: Model) -> dict[str, Tensor]:
        found = weigh_layers(model, task, settings.prompts, prompts, site)
        return {"w": found.w, "linearity": found.linearity}

    prompt, found = _kept("weighed", settings, (settings.prompts, prompts), config, task, site, make)
    return Weighed(prompt, found["w"], found["linearity"])


def read_layers(model: Model, task: Task[Any], prompts: int, site: Site) -> Read:
    """The answers of every layer on the fixed prompts, by read-outs fitted on others."""
    prompt = fixed(task, prompts, site)
    with torch.no_grad():
        answers = read_outs(model, task, prompts, site).trace(prompt.to(device=site.device))
    return Read(prompt.to(dtype=torch.float64), answers.double().cpu())


def weigh_layers(model: Model, task: Task[Any], prompts: int, weighed: int, site: Site) -> Weighed:
    """The weights that every layer induces on the first of the fixed prompts, by the same read-outs."""
    prompt = fixed(task, prompts, site)[:weighed]
    pairs = Dense(prompt.x[:, :-1], prompt.y[:, :-1], check=False).to(device=site.device)
    g = torch.Generator(site.device).manual_seed((site.seed << 8) + 4)
    with torch.no_grad():
        reader = read_outs(model, task, prompts, site)
        found = induced_trace(reader, pairs, g, range(1, reader.steps + 1), rows=1024)
    w, linearity = (torch.stack([getattr(f, part) for f in found]).double().cpu() for part in ("w", "linearity"))
    return Weighed(prompt.to(dtype=torch.float64), w, linearity)


def fixed(task: Task[Any], prompts: int, site: Site, stream: int = 3) -> Dense:
    """Prompts that are a function of the seed and of no device."""
    sample = task.sample(prompts, torch.Generator().manual_seed((site.seed << 8) + stream))
    return Dense(sample.prompt.x, sample.target, check=False)


class Layer(NamedTuple):
    """The state of a model, and how many layers it has gone through."""

    t: int
    state: Any


@dataclass(frozen=True, eq=False)
class ReadOuts(Algorithm[Any, Layer]):
    """A model of which every layer is read by a linear map of its own."""

    model: Model
    probes: Sequence[Probe]

    @property
    def steps(self) -> int:  # type: ignore[override]
        return self.model.steps

    @property
    def limit(self) -> int | None:  # type: ignore[override]
        return self.model.limit

    def prepare(self, p: Any) -> Any:
        return self.model.prepare(p)

    def init(self, p: Any) -> Layer:
        return Layer(0, self.model.init(p))

    def step(self, p: Any, s: Layer, t: int) -> Layer:
        return Layer(t + 1, self.model.step(p, s.state, t))

    def read(self, p: Any, s: Layer) -> Tensor:
        h = _seen(self.model, s.state, s.t)
        return self.probes[s.t](h.flatten(0, 1).double()).to(h.dtype).reshape(p.asked)


def read_outs(model: Model, task: Task[Any], prompts: int, site: Site) -> ReadOuts:
    """The model with a read-out for every layer, fitted on `MORE` times as many prompts of their own."""
    known = fixed(task, MORE * prompts, site, stream=2)
    target = known.y.double().flatten(0, 1)
    with torch.no_grad():
        q = model.prepare(known.to(device=site.device))
        seen = (_seen(model, s, t) for t, s in enumerate(model.states(q)))
        fits = [fit(h.double().cpu().flatten(0, 1), target) for h in seen]
    parts = ("centre", "scale", "w", "offset")
    return ReadOuts(model, [Probe(*(getattr(f, part).to(site.device) for part in parts)) for f in fits])


def _kept(
    what: str,
    settings: Softmax,
    sizes: tuple[int, ...],
    config: Any,
    task: Task[Any],
    site: Site,
    make: Callable[[Model], dict[str, Tensor]],
) -> tuple[Dense, dict[str, Tensor]]:
    """The first of the fixed prompts in float64, and tensors about them that are kept or made from the model."""
    prompt = fixed(task, sizes[0], site)[: sizes[-1]]

    def made() -> dict[str, Tensor]:
        model = settings.model(config, task, site)
        with torch.no_grad():
            return {"y": prompt.y, **make(model)}

    recipe = settings.recipe(config, task, lr=settings.rate(config, task, site).lr)
    found = kept(what, recipe, sizes, site, made)
    y = found.pop("y")
    if y.shape != prompt.y.shape or not torch.allclose(y, prompt.y.double(), rtol=1e-3, atol=1e-3):
        raise ValueError("kept answers must be to the prompts drawn here; the labels are others")
    return prompt.to(dtype=torch.float64), found


def _seen(model: Any, state: Any, layer: int) -> Tensor:
    """The stream at the tokens that are read; behind the norm that the model's own head has, if it is the last."""
    h: Tensor = state.h[:, state.layout.rows]
    out: Tensor = model.answer.norm(h) if layer == model.steps else h
    return out
